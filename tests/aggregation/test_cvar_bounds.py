import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.cvar_bounds import (
    Cores,
    Interval,
    cvar_bounds,
    histogram_bounds,
    objective_bounds,
    quantile,
    summarise,
    total_sum_error,
)
from fedfair.aggregation.loss_histogram import HistogramSpec, block_layout, loss_block, rounded_losses
from fedfair.errors import PlanError, RemoteProtocolError
from fedfair.fairness.cvar import cvar, rcvar, tail_count, threshold_interval
from fedfair.fairness.population_bounds import LossHistogram, join_small_bins
from tests.oracles.header_places import HEAD, block_length

SPEC = HistogramSpec(4, 2.0)
SIZES = (0.01, 0.05, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0)

edgy = st.sampled_from([0.0, 5e-324, 0.5, math.nextafter(0.5, 0), math.nextafter(0.5, 1), 1.0, 2.0, 2.5, 1e9])
losses_lists = st.one_of(
    st.lists(edgy, min_size=1, max_size=30),
    st.lists(st.floats(0, 3), min_size=1, max_size=30),
    st.lists(st.floats(2, 1e12), min_size=1, max_size=30),  # all in the overflow bin
    st.tuples(st.floats(0, 3), st.integers(1, 40)).map(lambda pair: [pair[0]] * pair[1]),  # all equal
)
specs = st.builds(HistogramSpec, st.integers(1, 64), st.floats(0.01, 8))
sizes = st.one_of(st.sampled_from(SIZES), st.floats(1e-4, 1.0))


def block(losses: list[float], spec: HistogramSpec = SPEC, sites: int = 1) -> np.ndarray:
    """Return the sum of the blocks of some sites that share the losses between them."""
    total = np.zeros(block_length(spec))
    for site in range(sites):
        own = np.array(losses[site::sites], float)
        total += loss_block(own, own < 0.7, float(own.sum()), spec)
    return total


def exact_cvar(losses: list[float], size: float) -> Fraction:
    left = k = Fraction(tail_count(len(losses), size))
    total = Fraction(0)
    for loss in sorted(losses, reverse=True):
        part = min(left, Fraction(1))
        total, left = total + part * Fraction(loss), left - part
    return total / k


@settings(deadline=None, max_examples=150)
@given(losses_lists, specs, sizes, st.integers(1, 4))
def test_the_truth_is_in_every_interval(losses: list[float], spec: HistogramSpec, size: float, sites: int) -> None:
    (bound,) = cvar_bounds(block(losses, spec, sites), (size,), spec)
    # Without a tolerance: the comparison is in exact arithmetic.
    assert Fraction(bound.lower) <= exact_cvar(losses, size) <= Fraction(bound.upper)
    assert bound.lower <= cvar(np.array(losses), size) <= bound.upper


@settings(deadline=None, max_examples=70)
@given(losses_lists, specs, sizes, st.lists(st.integers(1, 64)))
def test_the_truth_is_in_joins(losses: list[float], spec: HistogramSpec, size: float, joints: list[int]) -> None:
    whole = block(losses, spec)
    counts, sums = whole[HEAD : HEAD + spec.bins + 1], whole[HEAD + spec.bins + 1 :]
    known = histogram_bounds(spec.edges, counts, sums, [size], rounding=spec.rounding)
    assert known == cvar_bounds(whole, [size], spec)
    starts = sorted({0, *(joint for joint in joints if joint <= spec.bins)})
    joined = [np.add.reduceat(values, starts) for values in (counts, sums)]
    (bound,) = histogram_bounds(spec.edges[starts], *joined, [size], rounding=spec.rounding)
    assert Fraction(bound.lower) <= exact_cvar(losses, size) <= Fraction(bound.upper)


def certain(losses: list[float], spec: HistogramSpec, fewest: int, size: float) -> tuple[Interval, Interval]:
    """Return the intervals of bins that were joined around cores, with the cores and without."""
    found = block_layout(spec).read(block(losses, spec))
    counts, sums = found["counts"], found["losses"]
    held = join_small_bins(
        LossHistogram.planned(spec.bins, spec.loss_range, tuple(map(int, counts)), tuple(sums.tolist())), fewest
    )
    edges, places = np.append(spec.edges, math.inf), np.array(held.cores)
    cores = Cores(edges[places], edges[places + 1], held.most_beside_core)
    joined = held.lower_edges, np.array(held.counts, float), np.array(held.sums)
    (narrow,), (wide,) = (histogram_bounds(*joined, [size], known, spec.rounding) for known in (cores, None))
    return narrow, wide


@settings(deadline=None, max_examples=100)
@given(losses_lists, specs, sizes, st.integers(1, 40))
def test_the_truth_is_inside_cores(losses: list[float], spec: HistogramSpec, size: float, fewest: int) -> None:
    narrow, wide = certain(losses, spec, fewest, size)
    assert Fraction(narrow.lower) <= exact_cvar(losses, size) <= Fraction(narrow.upper)
    assert narrow.lower == wide.lower
    assert narrow.upper <= wide.upper * (1 + 1e-12)


@settings(deadline=None, max_examples=70)
@given(losses_lists, specs, st.integers(1, 4))
def test_the_error_of_all_sums_together_is_bounded(losses: list[float], spec: HistogramSpec, sites: int) -> None:
    whole = block(losses, spec, sites)
    counts, sums = whole[HEAD : HEAD + spec.bins + 1], whole[HEAD + spec.bins + 1 :]
    exact = sum(map(Fraction, rounded_losses(np.array(losses), spec).tolist()))
    assert abs(sum(map(Fraction, sums.tolist())) - exact) <= Fraction(total_sum_error(counts, sums))


@settings(deadline=None, max_examples=70)
@given(losses_lists, specs, sizes, st.floats(0, 1), st.integers(1, 4))
def test_the_true_objective_is_inside_its_interval(
    losses: list[float], spec: HistogramSpec, size: float, tradeoff: float, sites: int
) -> None:
    bound = objective_bounds(block(losses, spec, sites), size, tradeoff, spec)
    mean = sum(map(Fraction, losses)) / len(losses)
    truth = (1 - Fraction(tradeoff)) * exact_cvar(losses, size) + Fraction(tradeoff) * mean
    assert Fraction(bound.lower) <= truth <= Fraction(bound.upper)
    assert bound.lower <= rcvar(np.array(losses), size, tradeoff) <= bound.upper


@settings(deadline=None, max_examples=70)
@given(st.lists(st.floats(0, 1.87), min_size=1, max_size=60), st.integers(1, 64), sizes)
def test_below_the_range_widths_are_the_bins_share(losses: list[float], bins: int, size: float) -> None:
    spec = HistogramSpec(bins, 2.0)
    (bound,) = cvar_bounds(block(losses, spec), (size,), spec)
    k = tail_count(len(losses), size)
    worst_first = np.sort(rounded_losses(np.array(losses), spec))[::-1]
    boundary = worst_first[math.ceil(k) - 1]
    width = 2.0 / bins
    number = np.searchsorted(spec.edges, boundary, side="right") - 1
    inside = ((spec.edges[number] <= worst_first) & (worst_first < spec.edges[number] + width * 1.0001)).sum()
    assert bound.upper - bound.lower <= width * min(k, inside) / k + width / 8 + 1e-12


def test_a_core_ties_and_the_overflow_leave_no_more_room_than_the_rounding() -> None:
    # 5 losses of 0 and 3 of 6 are published with 2992 of 13/64: all but 9 of any of them are at least 3/16. The
    # one bin is open, so each of 300 losses may be half of 1/128 more, and a sixteenth of itself.
    losses = [6.0] * 3 + [13 / 64] * 2992 + [0.0] * 5
    total = 18 + 2992 * 13 / 64
    narrow, wide = certain(losses, HistogramSpec(64, 4.0), 10, 0.1)
    for bound, most in ((wide, total), (narrow, total - 2691 * 3 / 16)):
        assert bound.upper == pytest.approx((most * 17 / 16 + 300 / 256) / 300, rel=1e-9)
    (bound,) = cvar_bounds(block([1.0] * 7), (0.5,), SPEC)
    assert bound.lower <= 1.0 <= bound.upper
    assert bound.upper - bound.lower == pytest.approx(1 / 16, rel=1e-12)  # all at the lower edge of their bin
    (bound,) = cvar_bounds(block([2.0, 3.0, 10.0]), (1 / 3,), SPEC)
    # The largest of three losses of at least 2 with the sum 15, which may be a sixteenth of itself away.
    assert (bound.lower, bound.upper) == pytest.approx((5.0 * 15 / 16, 11.0 * 17 / 16), rel=1e-13)
    for loss, rounded, away in ((0.3, 5 / 16, 1 / 32), (1.7, 27 / 16, 1 / 32), (55.0, 56.0, 56 / 16)):
        for bound in cvar_bounds(block([loss]), SIZES, SPEC):
            assert bound.lower <= loss <= bound.upper
            # Only the rounding slack is left: 22 * 2^-52 of the loss, divided by k >= 0.01.
            assert (bound.lower, bound.upper) == pytest.approx((rounded - away, rounded + away), rel=6e-13)
    (bound,) = cvar_bounds(block([0.1, 0.2, 0.3, 1.1, 1.4]), (0.1,), SPEC)
    # The top bin is [1, 1.5) with the sum 18/16 + 22/16: its largest rounded loss lies between the mean and 1.5.
    assert (bound.lower, bound.upper) == pytest.approx((1.25 - 1 / 32, 1.5 + 1 / 32), rel=1e-13)


def test_a_summary_by_hand() -> None:
    losses = [0.25, 0.75, 1.25, 1.75]
    summary = summarise(block(losses, sites=2), (0.5, 1.0), SPEC)
    assert (summary.n, summary.mean, summary.accuracy) == (4, pytest.approx(1.0), 0.25)
    assert summary.smoothed == pytest.approx(1.0)
    assert (summary.mean_bound.lower, summary.mean_bound.upper) == pytest.approx((1 - 1 / 32, 1 + 1 / 32))
    half = summary.by_group_size[0.5]
    assert (half.worst, half.best, half.disparity) == pytest.approx((1.5, 0.5, 1.0), rel=1e-12)
    assert half.bound.lower <= 1.5 <= half.bound.upper
    everybody = summary.by_group_size[1.0]
    assert everybody.worst == pytest.approx(1.0, rel=1e-12)
    assert math.isnan(everybody.best)
    assert math.isnan(everybody.disparity)


@settings(deadline=None, max_examples=70)
@given(losses_lists, specs, st.integers(1, 4))
def test_accuracy_is_exact_and_the_mean_inside(losses: list[float], spec: HistogramSpec, sites: int) -> None:
    summary = summarise(block(losses, spec, sites), (), spec)
    assert summary.n == len(losses)
    exact, bound = sum(map(Fraction, losses)) / len(losses), summary.mean_bound
    assert Fraction(bound.lower) <= exact <= Fraction(bound.upper)
    assert bound.lower <= summary.mean <= bound.upper
    # At most 30 additions and 65 bins, of non-negative numbers.
    assert summary.smoothed == pytest.approx(math.fsum(losses) / len(losses), rel=1e-13)
    assert summary.accuracy == (np.array(losses) < 0.7).mean()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 1.999), min_size=1, max_size=40), st.integers(1, 64), sizes)
def test_the_quantile_is_within_a_bin_of_an_optimal_threshold(losses: list[float], bins: int, size: float) -> None:
    spec = HistogramSpec(bins, 2.0)
    found = quantile(block(losses, spec), 1.0 - size, spec)
    # 1 - (1 - rho) is rho up to one rounding, which a whole number of records absorbs.
    _, high = threshold_interval(np.array(losses), 1.0 - (1.0 - size))
    assert abs(found - high) <= 2.0 / bins * (1 + 1 / 16) + 1e-12


def test_hand_worked_intervals_and_quantiles() -> None:
    # Bins [0, .5) [.5, 1) [1, 1.5) [1.5, 2) [2, inf); losses are rounded to sixteenths. Of ten losses the worst
    # three are 3.0 and two of the bin [1, 1.5), which holds three with the sum 57/16 after rounding: their two
    # largest add up to between 2/3 of it = 2.375 and min(2 * 1.5, 57/16 - 1.0) = 2.5625. Each of the two may be
    # half a sixteenth away from its rounded value, and 3.0 a sixteenth of itself.
    losses = [0.1, 0.2, 0.2, 0.6, 0.7, 0.9, 1.05, 1.2, 1.3, 3.0]
    (bound,) = cvar_bounds(block(losses), (0.3,), SPEC)
    away = 2 / 32 + 3 / 16
    assert (bound.lower, bound.upper) == pytest.approx(((5.375 - away) / 3, (5.5625 + away) / 3), rel=1e-13)
    assert bound.lower <= 5.5 / 3 <= bound.upper  # the truth is (3 + 1.3 + 1.2) / 3
    losses = [0.1, 0.2, 0.6, 1.1, 3.0]
    found = [quantile(block(losses), level, SPEC) for level in (0.0, 0.5, 0.7, 0.85)]
    assert found == pytest.approx([2.5 / 16, 10 / 16, 18 / 16, 3.0], rel=1e-14)
    # What a model that starts at zero has: log(classes) for all records.
    spec = HistogramSpec(256, 8 * math.log(2))
    for size in (0.1, 0.3, 0.9):
        assert quantile(block([math.log(2)] * 50, spec, sites=3), 1 - size, spec) == pytest.approx(
            math.log(2), rel=1e-14
        )


def spoilt(position: int, value: float) -> np.ndarray:
    numbers = block([0.1, 0.6, 0.7, 1.2])
    numbers[position] = value
    return numbers


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (np.zeros(block_length(SPEC)), "0 records"),
        (np.zeros(5), "shape"),
        (spoilt(0, math.nan), "finite"),
        (spoilt(8, math.inf), "finite"),
        (spoilt(0, 5.0), "5 records"),
        (spoilt(0, 3.5), "fractional"),
        (spoilt(1, 5.0), "5 correct"),
        (spoilt(1, -1.0), "negative"),
        (spoilt(3, -1.0), "negative"),
        (spoilt(3, 0.5), "fractional"),
        (spoilt(8, 0.6), "do not allow"),  # one loss below .5 cannot be .6
        (spoilt(9, 0.9), "do not allow"),  # two losses of at least .5 make at least 1
        (spoilt(12, 1.0), "do not allow"),  # an empty bin with a sum
        (spoilt(8, -0.1), "do not allow"),
    ],
)
def test_sums_that_no_losses_have_are_refused(numbers: np.ndarray, message: str) -> None:
    for call in (
        lambda: cvar_bounds(numbers, (0.3,), SPEC),
        lambda: summarise(numbers, (0.3,), SPEC),
        lambda: quantile(numbers, 0.7, SPEC),
        lambda: objective_bounds(numbers, 0.3, 0.1, SPEC),
    ):
        with pytest.raises(RemoteProtocolError, match=message):
            call()


def test_shares_and_histograms_that_cannot_be_are_refused_and_a_block_is_left_as_it_was() -> None:
    with pytest.raises(RemoteProtocolError, match="a bin with a sum that its count and edges do not allow"):
        histogram_bounds(np.array([0.0, 1.0]), np.array([2.0, 1.0]), np.array([2.5, 1.0]), [0.5])
    numbers = block([0.1, 0.6])
    for size in (0.0, 1.1, math.nan):
        with pytest.raises(PlanError, match="group size"):
            cvar_bounds(numbers, (size,), SPEC)
    for level in (-0.1, 1.0, math.nan):
        with pytest.raises(PlanError, match="level"):
            quantile(numbers, level, SPEC)
    numbers = block([0.1, 0.6, 2.5])
    before = numbers.copy()
    summarise(numbers, SIZES, SPEC)
    assert (numbers == before).all()
    assert isinstance(cvar_bounds(numbers, (0.5,), SPEC)[0], Interval)
    generator = np.random.default_rng(0)
    losses = generator.gamma(0.5, 0.6, 20_000).tolist()
    spec = HistogramSpec(256, 8 * math.log(2))
    for size, bound in zip(SIZES, cvar_bounds(block(losses, spec, 3), SIZES, spec), strict=True):
        assert bound.upper - bound.lower < 9e-3
        assert bound.lower <= cvar(np.array(losses), size) <= bound.upper
