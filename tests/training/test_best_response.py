"""An adversary that answers the losses of a batch: its closed form against the linear programme that it solves."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from fedfair.fairness.cvar import rcvar
from fedfair.training.loss_weightings.best_response import best_response

LOSSES = st.lists(st.floats(0, 50, width=32), min_size=1, max_size=12)
SHARES, FLOORS = st.floats(0.01, 1.0), st.sampled_from([0.0, 0.05, 0.5, 1.0])
NOTHING = torch.tensor(0.0)


def answer(losses: object, share: float, floor: float = 0.0) -> NDArray[np.float64]:
    found = best_response(share, floor)(torch.tensor(losses, dtype=torch.float64), NOTHING)
    return found.numpy()


def programme(losses: NDArray[np.float64], share: float, floor: float) -> float:
    """Return the best value of the adversary: weights between floor and (1 - floor) / share + floor, of mean 1."""
    count = len(losses)
    solved = linprog(
        -losses / count, A_eq=np.full((1, count), 1.0 / count), b_eq=[1.0],
        bounds=[(floor, (1.0 - floor) / share + floor)] * count,
    )  # fmt: skip
    assert solved.success
    return -float(solved.fun)


@settings(deadline=None, max_examples=70)
@given(LOSSES, SHARES, FLOORS)
def test_the_answer_is_the_programmes_and_fedsrcvars(losses: list[float], share: float, floor: float) -> None:
    values = np.array(losses)
    weights = answer(values, share, floor)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights * len(values) >= floor - 1e-12).all()
    # Twelve products of numbers below 50 and 100, and the solver's own tolerance of 1e-7.
    assert weights @ values == pytest.approx(programme(values, share, floor), rel=1e-6, abs=1e-6)
    assert weights @ values == pytest.approx(rcvar(values, share, floor), rel=1e-9, abs=1e-9)


def test_answers_by_hand_with_ties_batches_and_single_precision() -> None:
    # Half of five records: the losses 5 and 4, and half of the record with 3.
    assert answer([5.0, 1.0, 4.0, 3.0, 2.0], 0.5) == pytest.approx(np.array([2, 0, 2, 1, 0]) / 5)
    assert answer([5.0, 1.0, 4.0, 3.0, 2.0], 0.5, 0.5) == pytest.approx(np.array([1.5, 0.5, 1.5, 1, 0.5]) / 5)
    assert answer([1.0, 1.0, 1.0, 1.0], 0.25) == pytest.approx([0.25] * 4)
    assert answer([2.0, 1.0, 1.0, 0.0], 0.5) == pytest.approx([0.5, 0.25, 0.25, 0.0])
    both = np.random.default_rng(2).random((2, 7))
    np.testing.assert_array_equal(answer(both, 0.3, 0.1), [answer(one, 0.3, 0.1) for one in both])
    losses = torch.rand(4096, generator=torch.Generator().manual_seed(3))
    # 4096 roundings of numbers of about 1 / 400.
    assert float(best_response(0.1)(losses, NOTHING).sum()) == pytest.approx(1.0, abs=4096 * 2.0**-24)
