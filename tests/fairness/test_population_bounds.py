"""Population bounds of the fairness certificate, against slow definitions and over redraws of the records."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from fedfair.errors import DataError, PlanError
from fedfair.fairness.cvar import cvar
from fedfair.fairness.population_bounds import (
    METHODS,
    LossHistogram,
    Method,
    _binomial_upper,
    dkw_margin,
    join_small_bins,
    population_bounds,
)

RHO = (0.02, 0.05, 0.1, 0.3, 0.5, 1.0)


def histogram(losses: NDArray[np.float64], bins: int, loss_range: float) -> LossHistogram:
    edges = np.linspace(0.0, loss_range, bins + 1)
    place = np.searchsorted(edges, losses, side="right") - 1
    counts = np.bincount(place, minlength=bins + 1)
    sums = np.bincount(place, weights=losses, minlength=bins + 1)
    return LossHistogram.planned(bins, loss_range, tuple(counts.tolist()), tuple(sums.tolist()))


def by_order_statistics(losses: NDArray[np.float64], size: float, loss_range: float, margin: float) -> float:
    """Return (1/rho) * integral of min(rho, S_n + margin) over [0, L], loss by loss: the unbinned bound."""
    points = np.concatenate([[0.0], np.sort(np.minimum(losses, loss_range)), [loss_range]])
    total = 0.0
    for low, high in itertools.pairwise(points):
        share_above = np.count_nonzero(losses > low) / len(losses)
        total += (high - low) * min(size, share_above + margin)
    return total / size


def coarse_losses(seed: int, records: int) -> NDArray[np.float64]:
    """Return losses as a classifier has them: most small, a worse tenth, some far above the range of 4."""
    generator = np.random.default_rng(seed)
    worse = generator.random(records) < 0.1
    return np.where(worse, 0.7 + generator.exponential(1.0, records), generator.exponential(0.1, records))


losses_lists = st.one_of(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 9.0]), min_size=1, max_size=60),
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60),
)
deltas = st.floats(1e-6, 0.5)


@settings(deadline=None, max_examples=70)
@given(losses_lists, st.integers(1, 40), st.floats(0.1, 4.0), st.floats(0.01, 1.0), deltas)
def test_the_binned_dkw_bound_is_never_below_the_unbinned_one(
    losses: list[float], bins: int, loss_range: float, size: float, delta: float
) -> None:
    values = np.array(losses)
    (bound,) = population_bounds(histogram(values, bins, loss_range), [size], delta=delta, method="dkw")
    unbinned = by_order_statistics(values, size, loss_range, dkw_margin(len(losses), delta))
    assert bound >= min(unbinned, loss_range) * (1 - 1e-12)
    # Over a bin, min(rho, .) of the mean exceeds the mean of min(rho, .) by at most the bin's whole rho.
    assert bound <= unbinned + loss_range / bins + 1e-12


@settings(deadline=None, max_examples=70)
@given(losses_lists, st.integers(1, 40), st.floats(0.1, 4.0), deltas, st.sampled_from(METHODS))
def test_bounds_fall_with_the_group_size_and_lie_between_the_sample_and_the_range(
    losses: list[float], bins: int, loss_range: float, delta: float, method: Method
) -> None:
    values = np.array(losses)
    bounds = population_bounds(histogram(values, bins, loss_range), RHO, delta=delta, method=method)
    assert all(left >= right * (1 - 1e-12) for left, right in itertools.pairwise(bounds))
    for size, bound in zip(RHO, bounds, strict=True):
        assert cvar(np.minimum(values, loss_range), size) * (1 - 1e-12) <= bound <= loss_range


@settings(deadline=None, max_examples=70)
@given(losses_lists, st.integers(1, 40), st.floats(0.1, 4.0), st.integers(1, 80), deltas, st.sampled_from(METHODS))
def test_joining_bins_keeps_records_and_sums_and_never_lowers_a_bound(
    losses: list[float], bins: int, loss_range: float, fewest: int, delta: float, method: Method
) -> None:
    fine = histogram(np.array(losses), bins, loss_range)
    joined = join_small_bins(fine, fewest)
    assert joined.records == fine.records
    assert math.fsum(joined.sums) == pytest.approx(math.fsum(fine.sums), rel=1e-12)
    assert all(count == 0 or count >= min(fewest, fine.records) for count in joined.counts)
    before = population_bounds(fine, RHO, delta=delta, method=method)
    after = population_bounds(joined, RHO, delta=delta, method=method)
    assert all(new >= old * (1 - 1e-12) for old, new in zip(before, after, strict=True))


def test_joining_leaves_bins_with_enough_records_alone() -> None:
    held = LossHistogram.planned(4, 4.0, (9, 2, 0, 3, 1), (1.0, 3.0, 0.0, 10.0, 5.0))
    joined = join_small_bins(held, 3)
    # One loss lies above the core 3, two are left over at 1 and join the nine below.
    assert joined == LossHistogram(4, 4.0, (0, 2, 3), (11, 0, 4), (4.0, 0.0, 15.0), (0, 2, 3), 3)
    assert join_small_bins(held, 1) == held
    empty = LossHistogram.planned(4, 4.0, (0, 0, 7, 0, 0), (0.0, 0.0, 15.0, 0.0, 0.0))
    assert join_small_bins(empty, 3) == LossHistogram(4, 4.0, (0, 2, 3), (0, 7, 0), (0.0, 15.0, 0.0), (0, 2, 3), 3)
    bounds = [population_bounds(each, RHO, delta=0.05) for each in (empty, join_small_bins(empty, 3))]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)
    assert join_small_bins(held, 99) == LossHistogram(4, 4.0, (0,), (15,), (19.0,), (0,), 99)
    leftover = LossHistogram.planned(4, 4.0, (2, 0, 9, 0, 1), (1.0, 0.0, 20.0, 0.0, 5.0))
    assert join_small_bins(leftover, 3) == LossHistogram(4, 4.0, (0,), (12,), (26.0,), (2,), 3)


def test_dkw_and_binomial_bounds_by_hand() -> None:
    # Eight losses in [0, 1) of sum 2 and two in [1, 2) of sum 3; none above 2. The mean of S_n over [0, 1) is
    # (2 * 1 + 2) / 10 = 0.4, over [1, 2) it is (3 - 2) / 10 = 0.1. delta = exp(-1.25) makes the margin
    # sqrt(1.25 / 20) = 0.25, so at rho = 0.5 the integral is min(0.5, 0.65) + min(0.5, 0.35) = 0.85.
    held = LossHistogram.planned(2, 2.0, (8, 2, 0), (2.0, 3.0, 0.0))
    (bound,) = population_bounds(held, [0.5], delta=math.exp(-1.25), method="dkw")
    assert bound == pytest.approx(0.85 / 0.5, rel=1e-12)
    # No loss of n reaches the second bin: its share is at most 1 - (delta / B)^(1/n), at delta/2 in a pair.
    n, delta = 400, 0.05
    held = LossHistogram.planned(2, 2.0, (n, 0, 0), (0.0, 0.0, 0.0))
    (alone,) = population_bounds(held, [0.1], delta=delta)
    assert alone == pytest.approx((0.1 + 1.0 - (delta / 2) ** (1 / n)) / 0.1, rel=1e-8)
    (bound,) = population_bounds(held, [0.1], delta=delta, method="dkw-binomial")
    tail = 1.0 - (delta / 2 / 2) ** (1 / n)
    body = math.sqrt(math.log(2 / delta) / (2 * n))  # all losses are 0, so the first bin has only the margin
    assert bound == pytest.approx((min(0.1, body) + min(tail, body)) / 0.1, rel=1e-8)
    held = join_small_bins(LossHistogram.planned(1, 1.0, (3, 1), (1.0, 2.0)), 2)
    with pytest.raises(DataError, match="joined already"):
        join_small_bins(held, 3)


@settings(deadline=None, max_examples=70)
@given(losses_lists, st.integers(1, 40), st.floats(0.1, 4.0), st.integers(1, 80))
def test_fewer_losses_are_beside_cores(losses: list[float], bins: int, loss_range: float, fewest: int) -> None:
    fine = histogram(np.array(losses), bins, loss_range)
    joined = join_small_bins(fine, fewest)
    ends = (*joined.starts[1:], bins + 1)
    for start, core, end in zip(joined.starts, joined.cores, ends, strict=True):
        assert sum(fine.counts[start:core]) < fewest
        assert sum(fine.counts[core + 1 : end]) < fewest


RANGE = 8 * math.log(2)
BULK = 0.19614


def with_outliers(outliers: int, value: float, low: int = 0) -> NDArray[np.float64]:
    """Return 3000 equal losses, but for some outliers and some losses of 0."""
    losses = np.full(3000, BULK)
    losses[:outliers], losses[outliers : outliers + low] = value, 0.0
    return losses


def bound_of(held: LossHistogram) -> float:
    return population_bounds(held, [0.1], delta=0.05, method="dkw-binomial")[0]


def test_three_outliers_of_three_thousand_do_not_void_the_bound_of_the_worst_tenth() -> None:
    def bound(losses: NDArray[np.float64], fewest: int) -> float:
        return bound_of(join_small_bins(histogram(losses, 256, RANGE), fewest))

    # The outliers are published with all others, because they are fewer than ten: this made it 5.545.
    assert bound(with_outliers(0, 6.0), 10) == pytest.approx(0.376, abs=5e-4)
    assert bound(with_outliers(3, 6.0), 1) == pytest.approx(0.495, abs=1e-3)
    assert bound(with_outliers(3, 6.0), 10) == pytest.approx(0.620, abs=5e-4)
    # Losses that are left over at the other end join the same bin, which then begins at 0.
    assert bound(with_outliers(3, 6.0, low=5), 10) == pytest.approx(0.681, abs=5e-4)
    # Nine losses of the whole range would not lift it further, but for the width of the bin of all others.
    assert bound(with_outliers(3, 6.0), 10) <= bound(with_outliers(9, 6.0), 1) + RANGE / 256


@settings(deadline=None, max_examples=70)
@given(st.integers(1, 9), st.floats(0.0, 9.0), st.integers(0, 9), st.floats(0.02, 1.0), st.sampled_from(METHODS))
def test_outliers_lift_the_bound_by_no_more_than_few_losses_of_the_whole_range_or_the_mean_of_their_bin(
    outliers: int, value: float, low: int, size: float, method: Method
) -> None:
    fewest, width = 10, RANGE / 256
    losses = with_outliers(outliers, value, low)
    held = join_small_bins(histogram(losses, 256, RANGE), fewest)
    (bound,) = population_bounds(held, [size], delta=0.05, method=method)
    # The worst that is said of the core's neighbours: nine losses of the range.
    worst = with_outliers(fewest - 1, RANGE)
    (as_few,) = population_bounds(histogram(worst, 256, RANGE), [size], delta=0.05, method=method)
    edge, margin = held.lower_edges[-1], dkw_margin(3000, 0.05 if method == "dkw" else 0.025)
    excess = (held.sums[-1] - held.counts[-1] * edge) / 3000
    by_mean = edge + (excess + margin * (RANGE - edge)) / size
    assert cvar(np.minimum(losses, RANGE), size) * (1 - 1e-12) <= bound
    # The binomial band knows no mean.
    assert bound <= (as_few + width if method == "binomial" else min(as_few + width, by_mean)) + 1e-9


def outliers_of_a_population(seed: int, records: int) -> NDArray[np.float64]:
    """Return losses of which one in a thousand is far above all others."""
    generator = np.random.default_rng(seed)
    return np.where(generator.random(records) < 1e-3, 3.9, 0.2 + 0.01 * generator.random(records))


@pytest.mark.parametrize("method", METHODS)
def test_bounds_with_outliers_in_joined_bins_hold_in_as_many_redraws_as_promised(method: Method) -> None:
    population, delta = outliers_of_a_population(7, 50_000), 0.2
    truth = [cvar(np.minimum(population, 4.0), size) for size in RHO]
    generator = np.random.default_rng(8)
    failed = 0
    for _ in range(REDRAWS):
        held = join_small_bins(histogram(generator.choice(population, 1000), 64, 4.0), 10)
        bounds = population_bounds(held, RHO, delta=delta, method=method)
        failed += any(bound < true for bound, true in zip(bounds, truth, strict=True))
    assert failed <= binom.isf(1e-6, REDRAWS, delta)


@settings(deadline=None, max_examples=70)
@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=9), st.data())
def test_the_binomial_bound_holds_for_own_chances(chances: list[float], data: st.DataObject) -> None:
    # The exact distribution of the count, one record after the other. The level is the largest in use.
    level = data.draw(st.floats(1e-6, 0.25))
    n, mean = len(chances), sum(chances) / len(chances)
    distribution = np.array([1.0])
    for chance in chances:
        distribution = np.convolve(distribution, [1 - chance, chance])
    upper = _binomial_upper(np.arange(n + 1.0), n, level)
    assert distribution[upper < mean].sum() <= level * (1 + 1e-9)


REDRAWS, FEWER = 200, 80
POPULATION = coarse_losses(1, 50_000)


def failures(method: Method, delta: float, records: int, fewest: int, redraws: int = REDRAWS) -> int:
    """Return in how many redraws the bound of any group size is below the population's own risk."""
    truth = [cvar(np.minimum(POPULATION, 4.0), size) for size in RHO]
    generator = np.random.default_rng(2)
    failed = 0
    for _ in range(redraws):
        drawn = generator.choice(POPULATION, records)
        held = join_small_bins(histogram(drawn, 64, 4.0), fewest)
        bounds = population_bounds(held, RHO, delta=delta, method=method)
        failed += any(bound < true for bound, true in zip(bounds, truth, strict=True))
    return failed


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("records", "fewest"), [(60, 1), (300, 10)])
def test_the_bounds_hold_together_in_as_many_redraws(method: Method, records: int, fewest: int) -> None:
    # If a bound fails with probability delta, the number of failures is Binomial(redraws, delta): above this
    # quantile it lies with probability 1e-6 at most.
    delta = 0.2
    assert failures(method, delta, records, fewest, FEWER) <= binom.isf(1e-6, FEWER, delta)


def test_the_one_sided_margin_is_nearly_as_small_as_can_be() -> None:
    # P(sup (F - F_n) > margin) tends to exp(-2 n margin^2) = delta for a continuous F, so a margin that holds
    # cannot be much smaller: at least delta/2 of the redraws must break it, but for a chance below 1e-6.
    delta, records = 0.2, 2000
    generator = np.random.default_rng(4)
    broken = 0
    for _ in range(REDRAWS):
        uniform = np.sort(generator.random(records))
        broken += np.max(uniform - np.arange(records) / records) > dkw_margin(records, delta)
    assert binom.isf(1 - 1e-6, REDRAWS, delta / 2) <= broken <= binom.isf(1e-6, REDRAWS, delta)


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_the_distance_to_the_sample_shrinks_with_the_root_of_the_number_of_records(method: Method) -> None:
    # The same histogram with every count a hundred times larger: the sample's risk stays, and every term of the
    # margin shrinks by 10 or more (1/sqrt(n), or 1/n), but for the bins' own width.
    losses = np.tile(coarse_losses(5, 2000), 1)
    few, many = histogram(losses, 128, 4.0), histogram(np.tile(losses, 100), 128, 4.0)
    for size in (0.1, 0.3, 1.0):
        sample = cvar(np.minimum(losses, 4.0), size)
        wide, narrow = (population_bounds(held, [size], delta=0.05, method=method)[0] for held in (few, many))
        assert narrow - sample <= (wide - sample) / 10 + 4.0 / 128
        assert wide < 4.0


@pytest.mark.parametrize("delta", [0.0, -0.1, 0.51, math.nan])
def test_a_delta_for_which_nothing_is_proven_is_refused(delta: float) -> None:
    with pytest.raises(PlanError, match="delta is"):
        population_bounds(histogram(np.zeros(3), 2, 1.0), [0.5], delta=delta)


def test_the_combined_band_is_tight_and_says_nothing_of_few_records() -> None:
    held = histogram(coarse_losses(6, 1000), 64, 4.0)
    for size in (0.05, 0.1):
        alone, combined, uniform = (
            population_bounds(held, [size], delta=0.05, method=each)[0] for each in METHODS
        )
        sample = cvar(np.minimum(coarse_losses(6, 1000), 4.0), size)
        assert max(alone, combined) - sample < 0.7 * (uniform - sample)
    assert population_bounds(histogram(np.zeros(20), 16, 2.0), [0.1], delta=0.05, method="dkw") == [2.0]
    inside, far = np.full(1000, 0.5), np.full(1000, 0.5)
    inside[:300], far[:300] = 2.0, 1e9
    bounds = [population_bounds(histogram(each, 8, 2.0), RHO, delta=0.05) for each in (inside, far)]
    assert bounds[0] == bounds[1]
    assert bounds[0][0] == pytest.approx(2.0, rel=1e-12)
    held = histogram(np.zeros(3), 2, 1.0)
    for size in (0.0, 1.1, math.nan):
        with pytest.raises(PlanError, match="group size is"):
            population_bounds(held, [size], delta=0.05)
    with pytest.raises(PlanError, match="no population bound is called 'guess'"):
        population_bounds(held, [0.5], delta=0.05, method="guess")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bins", "loss_range", "starts", "counts", "sums"),
    [
        (0, 1.0, (0,), (1,), (0.0,)), (1, math.inf, (0, 1), (1, 0), (0.0, 0.0)),
        (1, 1.0, (0, 1), (1,), (0.0, 0.0)), (1, 1.0, (), (), ()), (1, 1.0, (0, 2), (1, 0), (0.0, 0.0)),
        (2, 1.0, (1, 2), (1, 0), (0.0, 0.0)), (2, 1.0, (0, 0), (1, 0), (0.0, 0.0)),
        (1, 1.0, (0, 1), (2, -1), (0.0, 0.0)), (2, 1.0, (0, 2**63, 1), (1, 0, 0), (0.0, 0.0, 0.0)),
        (1, 1.0, (0, 1), (0, 0), (0.0, 0.0)), (1, 1.0, (0, 1), (10**400, 0), (0.0, 0.0)),
        (1, 1.0, (0, 1), (1, 1), (0.0, 1e308)), (1, 1e308, (0, 1), (1, 1), (0.0, 1.0)),
        (1, 1.0, (0, 1), (1, 0), (math.nan, 0.0)),
    ],
)  # fmt: skip
def test_numbers_that_are_no_histogram_are_refused(
    bins: int, loss_range: float, starts: tuple[int, ...], counts: tuple[int, ...], sums: tuple[float, ...]
) -> None:
    with pytest.raises(DataError, match="histogram"):
        LossHistogram(bins, loss_range, starts, counts, sums, starts, 1)


@pytest.mark.parametrize(("cores", "fewest"), [((0, 1), 1), ((1, 2, 2), 1), ((0, 1, 3), 1), ((0, 1, 2), 0)])
def test_cores_outside_their_bins_are_refused(cores: tuple[int, ...], fewest: int) -> None:
    with pytest.raises(DataError, match="histogram"):
        LossHistogram(2, 1.0, (0, 1, 2), (1, 1, 1), (0.1, 0.6, 1.2), cores, fewest)
