"""The risk of the worst group from anything that holds losses: exact with ties and with fractional counts."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedfair.errors import DataError, PlanError
from fedfair.fairness.worst_group import worst_group_risk

LOSSES = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=12)
SIZES = st.integers(1, 64).map(lambda n: n / 64)


def greedy(losses: list[float], size: float) -> Fraction:
    """Take the greatest losses one by one, the last one in part, in exact arithmetic."""
    left = total = Fraction(size) * len(losses)
    taken = Fraction(0)
    for loss in sorted(losses, reverse=True):
        part = min(left, Fraction(1))
        taken += part * Fraction(loss)
        left -= part
    return taken / total


@given(LOSSES, SIZES)
def test_it_is_the_mean_of_the_greatest_losses_the_last_in_part(losses: list[float], size: float) -> None:
    assert worst_group_risk(losses, size) == pytest.approx(float(greedy(losses, size)), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_optimum_of_the_linear_program_over_weights(seed: int) -> None:
    draw = np.random.default_rng(seed)
    losses = draw.integers(0, 4, 15) / 2 + draw.integers(0, 2) * draw.normal(size=15)  # with ties, or without
    size = float(draw.uniform(0.01, 1.0))
    found = linprog(
        -losses, A_eq=np.ones((1, 15)), b_eq=[1.0], bounds=[(0.0, min(1.0, 1.0 / (size * 15)))] * 15,
        method="highs",
    )  # fmt: skip
    # Below 1/n no weight can reach its bound, and the program's own bound of 1 takes its place.
    assert worst_group_risk(losses, size) == pytest.approx(-found.fun, rel=1e-9)


def test_a_hand_worked_fraction_and_its_limits() -> None:
    # 0.4 of 4 losses are 1.6 records: all of the 3 and 0.6 of the 2.
    assert worst_group_risk([0.0, 1.0, 2.0, 3.0], 0.4) == pytest.approx((3.0 + 0.6 * 2.0) / 1.6, abs=1e-15)
    losses = [0.5, 2.0, 1.0, 2.0]
    assert worst_group_risk(losses, 1.0) == pytest.approx(1.375, abs=1e-15)
    assert worst_group_risk(losses, 1e-9) == 2.0
    assert worst_group_risk([3.0], 0.5) == 3.0
    assert worst_group_risk([-2.0, -1.0], 0.5) == -1.0


@pytest.mark.parametrize(
    "losses",
    [
        (1.0, 2.0), np.array([1.0, 2.0], np.float32), np.array([1, 2]), pd.Series([1.0, 2.0], index=[7, 3]),
        torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    ],
)  # fmt: skip
def test_whatever_holds_one_loss_for_each_record_is_taken(losses: object) -> None:
    assert worst_group_risk(losses, 0.5) == 2.0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([], "at least one record"), ([[1.0], [2.0]], "one loss for each record"),
        (1.0, "one loss for each record"),
        ([1.0, math.nan, math.inf], "2 of 3 losses are NaN or infinite, the first at place 1"),
        (["a"], "not numbers"), ([[1.0], [2.0, 3.0]], "no list of numbers"), (None, "not numbers"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_losses_is_refused_in_words(losses: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        worst_group_risk(losses, 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0.0, -0.1, 1.1, math.nan])
def test_a_size_that_is_no_share_is_refused(size: float) -> None:
    with pytest.raises(PlanError, match="outside"):
        worst_group_risk([1.0], size)
