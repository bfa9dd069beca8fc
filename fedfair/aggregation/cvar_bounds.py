"""Bounds every worst-group risk by the summed loss histograms of all sites.

Knows nothing of sites or losses, only the sum of the blocks that `loss_histogram.py` describes. The accuracy is
exact; the mean and the smoothed objective are those of the rounded losses. For the worst k = rho n records let j
be the bin that the k-th largest loss falls in, S the sum of the bins above it, and `need` the records still
missing there. Of the losses in bin j, only their count, sum, and edges are known, so the sum F of the `need`
largest of them is anything between

    need * sum_j / count_j     (the largest `need` have at least the bin's mean) and
    min(need * upper edge,  sum_j - (count_j - need) * lower edge)

and CVaR = (S + F) / k. F is linear between whole numbers of records, so a fractional `need` takes the upper
bound between those of its neighbours: this is tighter, exact for a bin with one record, and holds for k < 1
too, where CVaR is the largest loss. The overflow bin's upper edge is infinite; its sum still bounds it. Where bins
were joined around cores, at most `others` losses lie below the core of bin j and at most `others` above it. So
all but `others` of any of its losses are within the core's edges, which takes the place of the bin's own.

So far these are the losses that were summed, l', which sites have rounded: l' - d(l') <= l <= l' + d(l'), where d
is a constant below the end of the range and a share of l' from there on (`loss_histogram.Rounding`). Let T be the
worst k of the l', of which m are in the open bin and have the sum O. Then

    CVaR of l  >=  (sum over T of l' - d) / k   (the mean of any k losses is at most that of the worst k), and
    CVaR of l  <=  CVaR of (l' + d)  =  (sum over T of l' + d) / k   (CVaR grows with every loss, and l' + d is
                                                                       ordered as l' is, for d never falls)

so the interval widens at each end by ((k - m) inside + beyond O) / k: half a step of the grid, and a sixteenth of
what lies beyond the range. For the mean, k is n. Where the open bin was joined with others, its losses may be
below the end of the range, and `inside` is added for each of them too.

Floating-point errors of the sums widen the interval (`_relative_error`), and so does what a masked sum loses
(`MASKED_STEP`), so the truth of the losses before any rounding is inside without exception.
The width is at most one bin's width times share_j / rho, beside what the rounding of the losses costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import UNROUNDED, HistogramSpec, Rounding, block_layout
from fedfair.aggregation.loss_metrics import Metrics
from fedfair.errors import PlanError, RemoteProtocolError
from fedfair.fairness.cvar import tail_count

MASKED_STEP = 2.0**-56
"""The most that a masked sum may be off for each addend; a bin with m losses has at most m of them."""

_UNDERFLOW = 2.0**-1000
"""More than everything that products of the smallest floating-point numbers can lose."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Two numbers with the truth between them, both included.

    Attributes:
        lower: not above the truth.
        upper: not below the truth.
    """

    lower: float
    upper: float

    @property
    def midpoint(self) -> float:
        """The estimate with the smallest possible error, half the width."""
        return 0.5 * (self.lower + self.upper)


@dataclass(frozen=True, slots=True)
class Cores:
    """The part of each bin that holds nearly all of its losses; arrays (bins,).

    Attributes:
        lower_edges: where each core begins.
        upper_edges: where it ends; infinite for an open one.
        others: at most so many losses of a bin lie below its core, and at most so many above.
    """

    lower_edges: NDArray[np.float64]
    upper_edges: NDArray[np.float64]
    others: int


@dataclass(frozen=True, slots=True)
class GroupBound:
    """The risk of the worst group of one size, as far as sums can tell.

    Attributes:
        worst: middle of the interval of the worst group's mean loss (CVaR).
        best: mean loss of all others if `worst` is right; NaN at group size 1.
        disparity: worst - best; NaN at group size 1.
        bound: the interval that holds the worst group's mean loss; of sums under noise with 95 % (`RISK`).
        at_least: the smallest loss in the worst group, rounded to float32; None where only a histogram was summed.
    """

    worst: float
    best: float
    disparity: float
    bound: Interval
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """The summary of one split of all records together, from sums.

    Attributes:
        n: number of records, at least 1.
        mean: mean of the rounded losses.
        accuracy: share classified correctly, in [0, 1]; None where there are no classes.
        smoothed: mean of the smoothed objective f~ of the rounded losses, at the broadcast threshold.
        by_group_size: the risks for each group size (rho) asked for.
        metrics: of a task without classes, as `loss_metrics.py` has them.
        above: how many losses are in the open bin, from the end of the range on; 0 of sums under noise.
        mean_bound: an interval that holds the mean loss; under noise the same as `mean_interval`.
        mean_interval: holds the mean loss with 95 % under the noise; None where the sums are exact.
        accuracy_interval: the same of the accuracy.
    """

    n: int
    mean: float
    accuracy: float | None
    smoothed: float
    by_group_size: Mapping[float, GroupBound]
    mean_bound: Interval
    metrics: Metrics = field(default_factory=dict)
    above: int = 0
    mean_interval: Interval | None = None
    accuracy_interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class _Histogram:
    """A block in its parts, from the worst bin to the best; arrays (bins + 1,); `others` as in `Cores`."""

    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    lower_edges: NDArray[np.float64]
    upper_edges: NDArray[np.float64]
    core_lower: NDArray[np.float64]
    core_upper: NDArray[np.float64]
    others: int
    rounding: Rounding

    @property
    def records(self) -> int:
        return int(self.counts.sum())

    @property
    def mean_bound(self) -> Interval:
        """An interval that holds the mean of the losses."""
        total = float(self.sums.sum())
        error = self.rounded_away(self.records, float(self.sums[0]))
        slack = self.relative_error * (total + error) + self.records * MASKED_STEP + _UNDERFLOW
        return Interval(max((total - error - slack) / self.records, 0.0), (total + error + slack) / self.records)

    @property
    def relative_error(self) -> float:
        """The relative error that a sum of bins, and the few operations on it, may carry."""
        return _relative_error(self.records, len(self.counts))

    def rounded_away(self, worst: float, in_open_bin: float) -> float:
        """Return the most by which the sum of the worst losses may be off because each of them was rounded.

        Args:
            worst: how many of them (k).
            in_open_bin: the sum of those of them that are in the open bin, or more.
        """
        is_joined = self.lower_edges[0] < self.rounding.end
        within = worst if is_joined else worst - min(worst, float(self.counts[0]))
        return within * self.rounding.inside + self.rounding.beyond * in_open_bin


def summarise(block: NDArray[np.float64], group_sizes: Iterable[float], spec: HistogramSpec) -> SplitSummary:
    """Return everything that is reported about one split.

    Args:
        block: float64 array, as `block_layout` says: the sum of the blocks of all sites.
        group_sizes: shares (rho) in (0, 1].
        spec: the histogram of the plan.

    Raises:
        RemoteProtocolError: no losses whatsoever have this sum, or it is over no record.
        PlanError: a group size is outside (0, 1].
    """
    histogram, found = _parse(block, spec), block_layout(spec).read(block)
    records = histogram.records
    mean = float(histogram.sums.sum()) / records
    risks = {size: group_bound(_cvar_bound(histogram, size), size, records, mean) for size in group_sizes}
    accuracy = int(found["correct"]) / records if spec.has_classes else None
    smoothed, above = float(found["smoothed"]) / records, int(histogram.counts[0])
    return SplitSummary(records, mean, accuracy, smoothed, risks, histogram.mean_bound, above=above)


def cvar_bounds(block: NDArray[np.float64], group_sizes: Iterable[float], spec: HistogramSpec) -> list[Interval]:
    """Return, for each group size, an interval that holds the mean loss of the worst group of that size.

    Arguments and faults as in `summarise`.
    """
    histogram = _parse(block, spec)
    return [_cvar_bound(histogram, size) for size in group_sizes]


def histogram_bounds(
    lower_edges: NDArray[np.float64],
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    group_sizes: Iterable[float],
    cores: Cores | None = None,
    rounding: Rounding = UNROUNDED,
) -> list[Interval]:
    """Return the intervals of `cvar_bounds` for bins of any widths, such as joined bins of a plan.

    Args:
        lower_edges: increasing array (bins,), from 0 on; the last bin is open.
        counts: whole numbers (bins,), not all 0.
        sums: of the losses in each bin (bins,).
        group_sizes: shares (rho) in (0, 1].
        cores: where most of each bin's losses lie; None if nothing is known of that.
        rounding: how far the losses that the intervals are about may be from those that were summed.

    Raises:
        RemoteProtocolError: no losses whatsoever have these counts and sums.
        PlanError: a group size is outside (0, 1].
    """
    histogram = _from_worst(lower_edges, counts, sums, rounding, cores)
    return [_cvar_bound(histogram, size) for size in group_sizes]


def total_sum_error(counts: NDArray[np.float64], sums: NDArray[np.float64]) -> float:
    """Return the most that the sums of all bins together may be off: by rounding, and by what masks take."""
    records = int(counts.sum())
    return _relative_error(records, len(counts)) * float(sums.sum()) + records * MASKED_STEP + _UNDERFLOW


def objective_bounds(
    block: NDArray[np.float64], worst_group_size: float, tradeoff: float, spec: HistogramSpec
) -> Interval:
    """Return an interval that holds the exact objective, (1 - tradeoff) * CVaR + tradeoff * mean.

    Arguments and faults as in `summarise`; tradeoff (epsilon) is in [0, 1].
    """
    histogram = _parse(block, spec)
    return objective_interval(_cvar_bound(histogram, worst_group_size), histogram.mean_bound, tradeoff)


def objective_interval(worst: Interval, mean: Interval, tradeoff: float) -> Interval:
    """Return an interval that holds the objective.

    Args:
        worst: an interval that holds the worst group's risk.
        mean: an interval that holds the mean loss.
        tradeoff: the weight of the mean (epsilon), in [0, 1].
    """
    lower = (1.0 - tradeoff) * worst.lower + tradeoff * mean.lower
    upper = (1.0 - tradeoff) * worst.upper + tradeoff * mean.upper
    # Three operations with a relative error of 2^-53 each.
    return Interval(lower * (1.0 - 2.0**-50), upper * (1.0 + 2.0**-50) + _UNDERFLOW)


def quantile(block: NDArray[np.float64], level: float, spec: HistogramSpec) -> float:
    """Return an estimate of the loss that a share `level` of the records does not exceed.

    It is the mean of the bin that holds the quantile: exact where all losses in that bin are equal, as they
    are for a model that starts at zero, and otherwise within the bin's width; in the overflow bin there is no
    such bound.

    Args:
        block: float64 array, as `block_layout` says: the sum of the blocks of all sites.
        level: in [0, 1); 1 - rho for the optimal threshold of a worst group of size rho.
        spec: the histogram of the plan.

    Raises:
        RemoteProtocolError: no losses whatsoever have this sum, or it is over no record.
        PlanError: level is outside [0, 1).
    """
    if not 0.0 <= level < 1.0:
        raise PlanError(f"a quantile's level is in [0, 1), not {level}")
    histogram = _parse(block, spec)
    bin_at, _ = _boundary(histogram, tail_count(histogram.records, 1.0 - level))
    return float(histogram.sums[bin_at] / histogram.counts[bin_at])


def _cvar_bound(histogram: _Histogram, group_size: float) -> Interval:
    k = tail_count(histogram.records, group_size)
    bin_at, above = _boundary(histogram, k)
    need = k - above
    count, total = float(histogram.counts[bin_at]), float(histogram.sums[bin_at])
    certain = float(histogram.sums[:bin_at].sum())
    is_in_open_bin = bin_at == 0
    lower = certain + need * (total / count)
    upper = certain + _most_of_bin(histogram, bin_at, need)
    below, beyond = (
        histogram.rounded_away(k, tail if is_in_open_bin else float(histogram.sums[0])) for tail in (lower, upper)
    )
    slack = histogram.relative_error * (certain + total) + histogram.records * MASKED_STEP + _UNDERFLOW
    # The error is itself a sum of rounded numbers, each of which is off by less than any sum of bins.
    below, beyond = (away * (1.0 + histogram.relative_error) for away in (below, beyond))
    return Interval(max((lower - below - slack) / k, 0.0), (upper + beyond + slack) / k)


def _most_of_bin(histogram: _Histogram, bin_at: int, need: float) -> float:
    """Return the largest possible sum of the `need` largest losses in a bin."""
    whole = math.floor(need)
    part = need - whole
    most = _most_of_records(histogram, bin_at, whole)
    if part == 0.0:
        return most
    return (1.0 - part) * most + part * _most_of_records(histogram, bin_at, whole + 1)


def _most_of_records(histogram: _Histogram, bin_at: int, records: int) -> float:
    if records == 0:
        return 0.0
    rest, others = float(histogram.counts[bin_at]) - records, histogram.others
    lower, core_lower = float(histogram.lower_edges[bin_at]), float(histogram.core_lower[bin_at])
    upper, core_upper = float(histogram.upper_edges[bin_at]), float(histogram.core_upper[bin_at])
    by_sum = float(histogram.sums[bin_at]) - _extreme(rest, others, lower, core_lower)
    return min(_extreme(records, others, upper, core_upper), by_sum)


def _extreme(records: float, others: int, edge: float, core_edge: float) -> float:
    """Return the sum of as many losses, if `others` of them are at the bin's edge and the rest at the core's."""
    few = min(records, others)
    outside = few * edge if few > 0 else 0.0
    return outside + (records - few) * core_edge if records > few else outside


def _boundary(histogram: _Histogram, k: float) -> tuple[int, float]:
    """Return the bin of the k-th largest loss, counted from the worst bin, and the number of losses above."""
    upto = histogram.counts.cumsum()
    bin_at = int(np.searchsorted(upto, k, side="left"))
    return bin_at, float(upto[bin_at] - histogram.counts[bin_at])


def _relative_error(records: int, bins: int) -> float:
    """Return the relative error that a sum of bins, and the few operations on it, may carry.

    n records and then the bins are added, each addition with a relative error of 2^-53 of non-negative
    numbers; a dozen further operations follow. Doubling the unit covers the terms of second order (for n
    below 2^50) and the products that are subtracted in the upper bound, each of which is at most the bin's
    sum.
    """
    return (records + bins + 16) * 2.0**-52


def group_bound(
    bound: Interval, group_size: float, records: int, mean: float, at_least: float | None = None
) -> GroupBound:
    """Return what is reported about a group size, from an interval that holds the worst group's risk.

    Args:
        bound: the interval.
        group_size: the share (rho), in (0, 1].
        records: how many losses there are.
        mean: their mean.
        at_least: the smallest loss in the worst group, where it is known.
    """
    k = tail_count(records, group_size)
    worst = bound.midpoint
    best = (records * mean - k * worst) / (records - k) if k < records else math.nan
    return GroupBound(worst, best, worst - best, bound, at_least)


def _parse(block: NDArray[np.float64], spec: HistogramSpec) -> _Histogram:
    """Return the parts of a block, after checking that some list of losses has exactly these sums."""
    layout = block_layout(spec)
    if block.shape != (layout.length,) or not np.isfinite(block).all():
        raise RemoteProtocolError(
            f"the block of a split has shape {block.shape}, not ({layout.length},), or is not finite"
        )
    whole = block[layout.counts(noised=False)]
    if (whole < 0.0).any() or (whole != np.floor(whole)).any():
        raise RemoteProtocolError("the block of a split counts a negative or fractional number of records")
    found = layout.read(block)
    records, correct = int(found["records"]), int(found["correct"]) if spec.has_classes else None
    counts, sums = found["counts"], found["losses"]
    if records < 1 or (correct or 0) > records or counts.sum() != records:
        raise RemoteProtocolError(
            f"the block of a split says {records} records, {correct} correct, and {counts.sum():g} in bins"
        )
    return _from_worst(spec.edges, counts, sums, spec.rounding)


def _from_worst(
    lower_edges: NDArray[np.float64],
    counts: NDArray[np.float64],
    sums: NDArray[np.float64],
    rounding: Rounding,
    cores: Cores | None = None,
) -> _Histogram:
    """Return the parts of a histogram whose arrays run from the best bin to the worst, if losses can have them."""
    upper_edges = np.append(lower_edges[1:], math.inf)
    # A bin of which nothing else is known is its own core.
    known = cores or Cores(lower_edges, upper_edges, 0)
    histogram = _Histogram(
        counts[::-1],
        sums[::-1],
        lower_edges[::-1],
        upper_edges[::-1],
        known.lower_edges[::-1],
        known.upper_edges[::-1],
        known.others,
        rounding,
    )
    _check_sums(histogram)
    return histogram


def _check_sums(histogram: _Histogram) -> None:
    counts, sums, slack = histogram.counts, histogram.sums, histogram.relative_error
    occupied = counts > 0
    few = np.minimum(counts, histogram.others)[occupied]
    main = counts[occupied] - few
    floor = few * histogram.lower_edges[occupied] + main * histogram.core_lower[occupied]
    # No losses at an infinite edge add up to nothing.
    ceiling = np.multiply(few, histogram.upper_edges[occupied], where=few > 0, out=np.zeros_like(few))
    ceiling += np.multiply(main, histogram.core_upper[occupied], where=main > 0, out=np.zeros_like(main))
    least = floor * (1.0 - slack) - counts[occupied] * MASKED_STEP
    most = ceiling * (1.0 + slack) + counts[occupied] * MASKED_STEP
    possible = ((least <= sums[occupied]) & (sums[occupied] <= most)).all() and (sums[~occupied] == 0.0).all()
    if not possible:
        raise RemoteProtocolError(
            "the block of a split has a bin with a sum that its count and edges do not allow",
            "a participant sent numbers that no losses have; compare software versions",
        )
