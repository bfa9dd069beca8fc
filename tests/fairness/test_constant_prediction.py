"""The best constant prediction by hand, by a convex solver over records, and by trying predictions."""

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import DataError, PlanError
from fedfair.fairness.constant_prediction import base_rate_risk, best_constant_risk, majority_share
from fedfair.fairness.cvar import cvar, rcvar

COUNTS = st.lists(st.integers(0, 30), min_size=2, max_size=5).filter(lambda counts: sum(counts) > 0)


def entropy(*shares: float) -> float:
    return -sum(share * math.log(share) for share in shares if share)


@pytest.mark.parametrize(
    ("counts", "size", "tradeoff", "expected"),
    [
        # The mean is least where the prediction is the shares.
        ((90, 10), 1.0, 0.0, entropy(0.9, 0.1)),
        ((90, 10), 0.1, 1.0, entropy(0.9, 0.1)),
        # The worst tenth can be all of the rare class, or all of the other: half and half costs both log(2).
        ((90, 10), 0.1, 0.0, math.log(2)),
        # The rare class is a quarter of the worst 40 %: nothing is better than a quarter and three quarters.
        ((90, 10), 0.4, 0.0, entropy(0.25, 0.75)),
        # 0.2 of the mean: the rare class weighs between 0.02 and 0.02 + 0.8 * 0.25 = 0.22.
        ((90, 10), 0.4, 0.2, entropy(0.22, 0.78)),
        # Of the worst 60 %, the rarest class is a sixth; the others share the rest evenly.
        ((60, 30, 10), 0.6, 0.0, entropy(1 / 6, 5 / 12, 5 / 12)),
        # A class that nobody has needs no chance.
        ((50, 50, 0), 0.1, 0.0, math.log(2)),
        ((7, 0), 0.1, 0.5, 0.0),
        # A group of less than one record is the worst record.
        ((9, 1), 1e-300, 0.0, math.log(2)),
    ],
)
def test_a_value_by_hand(counts: tuple[int, ...], size: float, tradeoff: float, expected: float) -> None:
    assert best_constant_risk(counts, size, tradeoff) == pytest.approx(expected, rel=1e-14, abs=1e-15)


@settings(deadline=None, max_examples=6)
@given(counts=COUNTS, size=st.floats(0.05, 1.0), tradeoff=st.floats(0.0, 1.0))
def test_a_convex_solver_finds_no_better_one(counts: list[int], size: float, tradeoff: float) -> None:
    records = np.repeat(np.arange(len(counts)), counts)
    chances, threshold = cp.Variable(len(counts)), cp.Variable()
    losses = cp.hstack([-cp.log(chances[label]) for label in records])
    worst = threshold + cp.sum(cp.pos(losses - threshold)) / (size * len(records))
    # A group of less than one record is the worst record.
    worst = cp.max(losses) if size * len(records) < 1.0 else worst
    objective = (1.0 - tradeoff) * worst + tradeoff * cp.sum(losses) / len(records)
    solved = cp.Problem(cp.Minimize(objective), [cp.sum(chances) == 1.0, chances >= 0.0])
    solved.solve(solver=cp.CLARABEL)
    # The solver stops at a relative gap of 1e-8, of numbers of order 1.
    assert best_constant_risk(counts, size, tradeoff) == pytest.approx(solved.value, abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    counts=COUNTS, size=st.floats(0.01, 1.0), tradeoff=st.floats(0.0, 1.0),
    weights=st.lists(st.floats(0.001, 1.0), min_size=5, max_size=5),
)  # fmt: skip
def test_no_constant_does_better(counts: list[int], size: float, tradeoff: float, weights: list[float]) -> None:
    best = best_constant_risk(counts, size, tradeoff)
    chances = np.array(weights[: len(counts)]) / sum(weights[: len(counts)])
    losses = np.repeat(-np.log(chances), counts)
    assert best <= rcvar(losses, size, tradeoff) + 1e-12
    assert best <= math.log(len(counts)) + 1e-12


@pytest.mark.parametrize("counts", [(), (0, 0), (-1, 2)])
def test_no_records_have_no_constant_prediction(counts: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="records"):
        best_constant_risk(counts, 0.1)


@pytest.mark.parametrize(("size", "tradeoff"), [(0.0, 0.0), (1.1, 0.0), (math.nan, 0.0), (0.1, -0.1), (0.1, 2.0)])
def test_a_size_or_a_tradeoff_out_of_range_is_refused(size: float, tradeoff: float) -> None:
    with pytest.raises(PlanError, match="outside"):
        best_constant_risk((1, 1), size, tradeoff)


def test_the_majority_share_by_hand() -> None:
    assert majority_share((887, 113)) == 0.887
    with pytest.raises(DataError, match="most frequent"):
        majority_share((0, 0))


def test_the_base_rate_by_hand() -> None:
    # Of the worst fifth, half is the rare class and half the other.
    expected = 0.5 * -math.log(0.1) + 0.5 * -math.log(0.9)
    assert base_rate_risk((90, 10), 0.2) == pytest.approx(expected)
    assert base_rate_risk((90, 10), 1.0) == pytest.approx(entropy(0.9, 0.1))
    assert base_rate_risk((7, 0), 0.3) == 0.0
    assert base_rate_risk((9, 1), 1e-300) == pytest.approx(-math.log(0.1))


@given(counts=COUNTS, size=st.floats(0.01, 1.0))
def test_the_base_rate_has_the_worst_group_that_sorted_records_have(counts: list[int], size: float) -> None:
    shares = np.array(counts) / sum(counts)
    losses = np.concatenate(
        [np.full(count, -math.log(share)) for count, share in zip(counts, shares, strict=True) if count]
    )
    assert base_rate_risk(counts, size) == pytest.approx(float(cvar(losses, size)), rel=1e-9, abs=1e-12)
    assert base_rate_risk(counts, size) >= best_constant_risk(counts, size) - 1e-12


@pytest.mark.parametrize(("counts", "size"), [((), 0.5), ((0, 0), 0.5), ((3, -1), 0.5)])
def test_a_base_rate_of_nobody_is_refused(counts: tuple[int, ...], size: float) -> None:
    with pytest.raises(DataError, match="which no records have"):
        base_rate_risk(counts, size)
    with pytest.raises(PlanError, match="outside"):
        base_rate_risk((1, 1), 0.0)
