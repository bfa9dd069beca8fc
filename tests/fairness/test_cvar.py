import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedfair.errors import DataError, PlanError
from fedfair.fairness.cvar import cvar, optimal_threshold, rcvar, tail_count, threshold_interval, worst_and_best

# Few distinct values, so that ties are the rule; and any value at all, but for those so small that relative
# precision is lost when they are multiplied.
ties = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 7.0]), min_size=1, max_size=25)
anything = st.lists(st.one_of(st.just(0.0), st.floats(1e-200, 1e6)), min_size=1, max_size=25)
losses_lists = st.one_of(ties, anything)
sizes = st.one_of(st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0]), st.floats(0.005, 1.0))


def variational(losses: np.ndarray, group_size: float, threshold: float) -> float:
    """Return c + mean((l - c)+) / rho at the threshold c: CVaR at an optimal threshold, and never below."""
    return threshold + float(np.maximum(losses - threshold, 0.0).mean()) / group_size


def by_linear_program(losses: np.ndarray, size: float) -> float:
    """Return max q.l over 0 <= q_i <= 1/(rho n), sum q = 1: the dual form of CVaR."""
    bound = 1 / (size * len(losses))
    solution = linprog(-losses, A_eq=np.ones((1, len(losses))), b_eq=[1.0], bounds=(0.0, bound))
    assert solution.status == 0
    return -solution.fun


def by_fractions(losses: list[float], size: float) -> Fraction:
    """Return the fractional mean of the worst records in exact arithmetic."""
    k = Fraction(tail_count(len(losses), size))
    left, total = k, Fraction(0)
    for loss in sorted(losses, reverse=True):
        part = min(left, Fraction(1))
        total += part * Fraction(loss)
        left -= part
    return total / k


@pytest.mark.parametrize(
    ("losses", "size", "worst", "best"),
    [
        ([0, 1, 2, 3], 0.4, (3 + 0.6 * 2) / 1.6, (0.4 * 2 + 1 + 0) / 2.4),
        ([3, 0, 2, 1], 0.5, 2.5, 0.5),
        ([0, 1, 2, 3], 0.1, 3.0, (0.6 * 3 + 2 + 1) / 3.6),  # k = 0.4 < 1: the largest loss
        ([5, 5, 5, 1], 0.25, 5.0, 11 / 3),  # E[L | L >= q] would be 5 too, but for the rest only 1
        ([4, 2, 2, 2, 0], 0.4, 3.0, 4 / 3),  # a tie across the boundary; E[L | L >= 2] = 2.5
        ([1.5], 0.3, 1.5, 1.5),
        ([0, 0, 0], 0.5, 0.0, 0.0),
    ],
)
def test_hand_worked_examples(losses: list[float], size: float, worst: float, best: float) -> None:
    # Numbers of order 1 and a handful of operations.
    assert worst_and_best(np.array(losses, float), size) == pytest.approx((worst, best), rel=1e-14)


@settings(deadline=None, max_examples=30)
@given(losses_lists, sizes)
def test_cvar_is_the_optimum_of_the_dual_linear_program(losses: list[float], size: float) -> None:
    values = np.array(losses)
    # HiGHS is feasible and optimal within 1e-7 of the data's scale.
    assert cvar(values, size) == pytest.approx(by_linear_program(values, size), rel=1e-6, abs=1e-7)


@settings(deadline=None, max_examples=70)
@given(losses_lists, sizes)
def test_cvar_is_the_exact_fractional_mean(losses: list[float], size: float) -> None:
    assert cvar(np.array(losses), size) == pytest.approx(float(by_fractions(losses, size)), rel=1e-14)


@settings(deadline=None, max_examples=70)
@given(losses_lists, sizes)
def test_cvar_is_the_minimum_of_the_variational_form(losses: list[float], size: float) -> None:
    values = np.array(losses)
    # The form is convex and piecewise linear with its joints at the losses, so its minimum is at one of them.
    everywhere = [variational(values, size, c) for c in [0.0, *losses, *(0.5 * values + 0.1)]]
    found = cvar(values, size)
    # The form divides rounding errors of the largest loss by rho; a rho n that was snapped to a whole number
    # within 1e-9 records moves it by as much of the largest loss.
    slack = 1e-9 * max(losses) + 1e-300
    assert min(everywhere) == pytest.approx(found, abs=slack)
    low, high = threshold_interval(values, size)
    for c in (low, 0.5 * (low + high), high, optimal_threshold(values, size)):
        assert variational(values, size, c) == pytest.approx(found, abs=slack)


@settings(deadline=None, max_examples=70)
@given(ties, sizes)
def test_the_threshold_interval_is_exactly_the_set_of_minimisers(losses: list[float], size: float) -> None:
    values = np.array(losses)
    low, high = threshold_interval(values, size)
    k = tail_count(len(losses), size)
    # c is optimal if and only if P(l > c) <= rho <= P(l >= c), or c = 0 and nothing pulls it up.
    for c in (low, 0.5 * (low + high), high):
        assert (values > c).sum() <= k
        assert c == 0.0 or k <= (values >= c).sum()
    for c in (low - 1e-3, high + 1e-3):
        assert c < 0 or (values > c).sum() > k or k > (values >= c).sum()


@settings(deadline=None, max_examples=70)
@given(losses_lists, sizes)
def test_worst_and_best_add_up_to_all_records(losses: list[float], size: float) -> None:
    values = np.array(losses)
    worst, best = worst_and_best(values, size)
    k, n = tail_count(len(losses), size), len(losses)
    if k == n:
        return
    assert k * worst + (n - k) * best == pytest.approx(values.sum(), rel=1e-13)
    assert best <= worst * (1 + 1e-13)


@pytest.mark.thorough
@settings(deadline=None, max_examples=30)
@given(losses_lists, sizes, st.randoms(use_true_random=False))
def test_no_group_of_the_size_has_a_mean_above_cvar(losses: list[float], size: float, random: Random) -> None:
    values = np.array(losses)
    bound = cvar(values, size)
    smallest = math.ceil(tail_count(len(values), size))
    for _ in range(20):
        members = random.sample(range(len(values)), random.randint(smallest, len(values)))
        assert values[members].mean() <= bound * (1 + 1e-13)
    if tail_count(len(values), size) == smallest:  # the bound is attained by the worst records themselves
        assert np.sort(values)[-smallest:].mean() == pytest.approx(bound, rel=1e-13)


@settings(deadline=None, max_examples=40)
@given(losses_lists, sizes, sizes)
def test_cvar_falls_from_the_maximum_to_the_mean(losses: list[float], one: float, other: float) -> None:
    values = np.array(losses)
    small, large = sorted((one, other))
    slack = 1 + 2e-9  # whole numbers of records are recognised within 1e-9
    assert values.mean() <= cvar(values, large) * slack
    assert cvar(values, large) <= cvar(values, small) * slack
    assert cvar(values, small) <= values.max() * (1 + 1e-15)


@settings(deadline=None, max_examples=40)
@given(losses_lists, sizes, st.floats(0, 1), st.floats(0, 1))
def test_rcvar_goes_from_cvar_to_the_mean(losses: list[float], size: float, one: float, other: float) -> None:
    values = np.array(losses)
    assert rcvar(values, size, 0.0) == cvar(values, size)
    assert rcvar(values, size, 1.0) == values.mean()
    low, high = sorted((one, other))
    assert rcvar(values, size, high) <= rcvar(values, size, low) * (1 + 1e-13)


def test_whole_groups_and_threshold_intervals_by_hand() -> None:
    worst, best = worst_and_best(np.array([0.5, 2.0, 0.1]), 1.0)
    assert worst == pytest.approx(2.6 / 3, rel=1e-15)
    assert math.isnan(best)
    assert tail_count(10, 0.3) == 3.0
    assert tail_count(10, 0.1 + 0.2) == 3.0
    assert tail_count(569, 0.1) == pytest.approx(56.9)
    assert tail_count(3, 0.1) == pytest.approx(0.3)
    assert tail_count(7, 1.0) == 7.0
    values = np.array([4.0, 3.0, 2.0, 1.0])
    assert threshold_interval(values, 0.5) == (2.0, 3.0)  # two records exactly: anything between
    assert threshold_interval(values, 0.6) == (2.0, 2.0)  # 2.4 records: the third loss
    assert threshold_interval(values, 1.0) == (0.0, 1.0)
    assert threshold_interval(values, 0.1) == (4.0, 4.0)
    assert threshold_interval(np.array([2.0, 2.0, 2.0, 1.0]), 0.5) == (2.0, 2.0)  # an atom
    losses = np.full(1_000_000, 0.1, np.float32)
    assert cvar(losses, 0.5) == pytest.approx(float(np.float32(0.1)), rel=1e-14)


@pytest.mark.parametrize("losses", [[], [1.0, math.nan], [math.inf], [-1e-9, 1.0], [[1.0, 2.0]]])
def test_losses_without_a_risk_are_refused(losses: list[float]) -> None:
    with pytest.raises(DataError, match="losses"):
        cvar(np.array(losses, float), 0.5)


@pytest.mark.parametrize("size", [0.0, -0.1, 1.0001, math.nan])
def test_a_group_size_that_is_no_share_is_refused(size: float) -> None:
    with pytest.raises(PlanError, match="group size"):
        cvar(np.ones(3), size)
