"""Estimates the figures of one split from sums under noise, each with an interval that says how far it may be off.

The noise is normal, of a known deviation s in every released unit (`dp_histogram.py`), so that what is added up
tells its own error. Losses above the histogram's range L count as L in all of it. Decides the estimates:

    mean loss       the released sum of losses over the records: unbiased, with the deviation s L / n
    accuracy        the noised diagonal over the records, less its share of what the cells are too many in all:
                    unbiased, with the deviation s sqrt(classes - 1) / n, then cut to [0, 1]
    smoothed        the released sum over the records: unbiased
    worst group     of the most likely histogram. No estimate of it is unbiased, because it is no linear function
                    of counts; this one is too large where the noise exceeds the counts, and off by less than a
                    bin's width without noise

and the intervals. Those of mean and accuracy hold with 95 % each. Those of the worst groups hold with 95 % for all
sizes at once: how many losses exceed each edge is within a band (Bonferroni over the edges, 2.5 %), the mean is
within its interval (2.5 %), and the worst group's risk rises with the first and lies between the mean and the mean
over the group's size. With T losses above t, the k largest add up to the integral of min(T, k) over [0, L].

An interval says what the noise alone leaves open. It is no proof: one in twenty is wrong. Sites without records in
a split add no noise to it, and are counted all the same, so that intervals are a little too wide there. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.cvar_bounds import GroupBound, Interval, SplitSummary
from fedfair.aggregation.dp_histogram import likely_histogram, middles
from fedfair.aggregation.loss_histogram import HistogramSpec
from fedfair.fairness.cvar import tail_count

RISK = 0.05
"""The chance that an interval does not hold its figure."""


@dataclass(frozen=True, slots=True)
class NoisedSplit:
    """The released numbers of one split, summed over all sites.

    Attributes:
        block: of `loss_histogram.block_fields`, as `dp_histogram` releases it, with at least one record.
        matrix: float64 array (classes, classes), or (0, 0).
        spec: the histogram of the plan.
        deviation: standard deviation of the noise of each number, in its unit, above 0.
    """

    block: np.void
    matrix: NDArray[np.float64]
    spec: HistogramSpec
    deviation: float

    @property
    def records(self) -> int:
        """Return how many records there are, which is public."""
        return int(self.block["records"])

    @property
    def mean(self) -> float:
        """Return the estimate of the mean loss; noise may bring it below 0."""
        return float(self.block["losses"][-1]) / self.records

    @property
    def smoothed(self) -> float:
        """Return the estimate of the mean of the smoothed objective; noise may bring it below 0."""
        return float(self.block["smoothed"]) / self.records

    @property
    def accuracy(self) -> float | None:
        """Return the estimate of the share that is classified correctly, in [0, 1]; None without classes."""
        return None if not self.spec.has_classes else min(max(self._right(), 0.0), 1.0)

    def mean_interval(self, risk: float = RISK) -> Interval:
        """Return an interval that fails to hold the mean loss with this chance."""
        error = _quantile(risk / 2.0) * self.deviation * self.spec.loss_range / self.records
        return _within(self.mean, error, self.spec.loss_range)

    def summary(self, group_sizes: Sequence[float]) -> SplitSummary:
        """Return everything that is reported about the split.

        Args:
            group_sizes: shares (rho) in (0, 1].

        Raises:
            PlanError: a group size is outside (0, 1].
        """
        mean = self.mean_interval()
        return SplitSummary(
            self.records,
            self.mean,
            self.accuracy,
            self.smoothed,
            dict(zip(group_sizes, self._groups(group_sizes), strict=True)),
            mean_bound=mean,
            mean_interval=mean,
            accuracy_interval=self._accuracy_interval(),
        )

    def objective(self, worst_group_size: float, tradeoff: float) -> Interval:
        """Return an interval that holds (1 - tradeoff) * worst-group risk + tradeoff * mean with 95 %."""
        worst = self._groups([worst_group_size])[0].bound
        mean = self.mean_interval(RISK / 2.0)
        return Interval(
            (1.0 - tradeoff) * worst.lower + tradeoff * mean.lower,
            (1.0 - tradeoff) * worst.upper + tradeoff * mean.upper,
        )

    def quantile(self, level: float) -> float:
        """Return about the loss that a share `level`, in [0, 1), of the records does not exceed."""
        k = tail_count(self.records, 1.0 - level)
        above = likely_histogram(self.block, self.spec)[::-1].cumsum()
        place = min(int(np.searchsorted(above, k, side="left")), self.spec.bins)
        return float(middles(self.spec)[::-1][place])

    def _right(self) -> float:
        """Return the estimated share of correct classifications before it is cut to [0, 1]."""
        right = float(self.block["correct"])
        if self.matrix.size:
            surplus = float(self.matrix.sum()) - self.records
            right = float(np.trace(self.matrix)) - surplus / len(self.matrix)
        return right / self.records

    def _accuracy_interval(self) -> Interval | None:
        if not self.spec.has_classes:
            return None
        cells = math.sqrt(len(self.matrix) - 1.0) if self.matrix.size else 1.0
        error = _quantile(RISK / 2.0) * cells * self.deviation / self.records
        return _within(self._right(), error, 1.0)

    def _groups(self, group_sizes: Sequence[float]) -> list[GroupBound]:
        counts, band = likely_histogram(self.block, self.spec)[::-1], self._band()
        return [self._group(size, counts, band) for size in group_sizes]

    def _group(
        self, size: float, counts: NDArray[np.float64], band: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> GroupBound:
        k, n, end = tail_count(self.records, size), self.records, self.spec.loss_range
        mean, (fewest, most) = self.mean_interval(RISK / 2.0), band
        width = end / self.spec.bins
        # Between two edges as many losses exceed t as exceed the upper one at least, and the lower one at most.
        least = width * float(np.minimum(fewest[1:], k).sum()) / k
        greatest = width * float(np.minimum(most[:-1], k).sum()) / k
        lower = min(max(least, mean.lower), end)
        upper = max(min(greatest, mean.upper * n / k, end), lower)
        before = counts.cumsum() - counts
        taken = np.clip(k - before, 0.0, counts)
        found = float((taken * middles(self.spec)[::-1]).sum()) / k
        worst = min(max(found, lower), upper)
        best = (n * self.mean - k * worst) / (n - k) if k < n else math.nan
        return GroupBound(worst, best, worst - best, Interval(lower, upper))

    def _band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the fewest and the most losses that are at or above each edge: arrays (bins + 1,)."""
        counts, n = np.array(self.block["counts"]), float(self.records)
        bins = len(counts)
        summed = np.arange(bins, 0, -1, dtype=np.float64)
        # What all counts together are off by is known, and is taken from each in equal parts.
        above = counts[::-1].cumsum()[::-1] + (n - float(counts.sum())) * summed / bins
        error = _quantile(RISK / 4.0 / bins) * self.deviation * np.sqrt(summed * (bins - summed) / bins)
        most = np.minimum.accumulate(np.clip(above + error, 0.0, n))
        fewest = np.maximum.accumulate(np.clip(above - error, 0.0, n)[::-1])[::-1]
        return fewest, most


def _within(found: float, error: float, end: float) -> Interval:
    lower, upper = (min(max(found + shift, 0.0), end) for shift in (-error, error))
    return Interval(lower, upper)


def _quantile(chance: float) -> float:
    """Return what a standard normal number exceeds with this chance, rounded up so that platforms agree."""
    return math.ceil(100.0 * -NormalDist().inv_cdf(chance)) / 100.0
