"""Bounds every sizeable group's mean loss in the population, from held-out losses.

Decides the population half of the fairness certificate, from a loss histogram alone; the half about the evaluated
records is `fedfair.aggregation.cvar_bounds`'s, and how both are signed and shown is `fedfair.certificate`'s.

Let X = min(loss, L) with the histogram's range L, S(x) = P(X > x) in the population, and S_n the same of n records
drawn independently from it. The mean of X over any group that makes up at least rho of the population is at most

    CVaR_rho = min over c of c + E (X - c)+ / rho = (1/rho) * integral from 0 to L of min(rho, S(x)) dx    (*)

(Rockafellar and Uryasev 2000, Theorem 1, at the quantile c). The integral grows with S, so any U with S <= U
everywhere gives a bound for every rho at once; Thomas and Learned-Miller 2019 bound CVaR in this way. Two such U:

    dkw       S_n(x) + sqrt(log(1/delta) / (2n)) at every x, with probability 1 - delta: Dvoretzky, Kiefer and
              Wolfowitz 1956, one-sided, constant of Massart 1990, delta <= 1/2
    binomial  at each of the B lower edges e of the histogram as it was planned, n P_n(X >= e) is binomial, so the
              upper end of Clopper and Pearson 1934 at level delta / B holds at all of them; S(x) <= P(X >= e) at
              every x >= e. Far tighter in the tail, which is where the worst group is

"dkw-binomial" is the lower of the two at every x, each at delta / 2. From counts and sums alone: over one bin
[e, e') the mean of S_n is (above * (e' - e) + sum - count * e) / (n (e' - e)), exactly, and because min(rho, .) is
concave, the bin's part of (*) is at most its width times min(rho, mean of U). Binning therefore loosens the bound,
and never breaks it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv

from fedfair.errors import DataError, PlanError

Method: TypeAlias = Literal["dkw-binomial", "dkw"]

METHODS: tuple[Method, ...] = get_args(Method)
"""The ways to a population bound, the tighter one first; choose before looking at the losses."""

MAX_DELTA = 0.5
"""Massart's constant is proven for delta up to one half."""

MIN_DELTA = 1e-12
"""Smaller chances of error are beyond what the inverse of the incomplete beta function is accurate for."""

MIN_GROUP_SIZE = 1e-12
"""The least share of everybody that a statement can be about; its inverse stays far below the largest float."""

MAX_RECORDS = 1 << 50
MAX_SUM = 1e300
"""Up to these, counts are exact as floating-point numbers and no sum of sums overflows."""

_INVERSE_ERROR = 1e-9
"""Far above the relative error of the inverse of the incomplete beta function."""


@dataclass(frozen=True, slots=True)
class LossHistogram:
    """A histogram of losses: its edges, and the count and the sum of the losses in each bin.

    The plan's histogram has `bins` equal bins over [0, loss_range] and an open one above; neighbours may have been
    joined since.

    Attributes:
        bins: number of equal bins (B) before any joining, at least 1.
        loss_range: where the open bin began (L), positive and finite.
        starts: for each bin, the number of the planned bin that it begins with: 0 first, increasing, at most bins.
        counts: losses in each bin, at least 0, of which at least one is not; of the length of `starts`.
        sums: their sums; of the length of `starts`.
    """

    bins: int
    loss_range: float
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    sums: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.bins < 1 or not (self.loss_range > 0.0 and math.isfinite(self.loss_range)):
            raise DataError(f"{self.bins} bins over [0, {self.loss_range}] make no histogram")
        if not self.starts or not len(self.starts) == len(self.counts) == len(self.sums):
            raise DataError(
                f"a histogram has {len(self.starts)} edges, {len(self.counts)} counts and {len(self.sums)} sums"
            )
        increasing = all(left < right for left, right in itertools.pairwise(self.starts))
        if self.starts[0] != 0 or self.starts[-1] > self.bins or not increasing:
            raise DataError(f"the bins of a histogram do not begin at increasing places from 0 to {self.bins}")
        if min(self.counts) < 0 or not 1 <= sum(self.counts) <= MAX_RECORDS:
            raise DataError(f"a histogram counts a negative number of losses, none, or more than {MAX_RECORDS}")
        if not all(0.0 <= value <= MAX_SUM for value in (*self.sums, self.loss_range)):
            raise DataError(f"a histogram has a sum or a range that is negative or above {MAX_SUM}")

    @property
    def records(self) -> int:
        """Number of losses (n)."""
        return sum(self.counts)

    @property
    def lower_edges(self) -> NDArray[np.float64]:
        """Where each bin begins: increasing array, from 0 on."""
        return np.linspace(0.0, self.loss_range, self.bins + 1)[list(self.starts)]


def join_small_bins(histogram: LossHistogram, fewest: int) -> LossHistogram:
    """Return the histogram with neighbours joined until no bin holds 1 to fewest - 1 losses.

    A histogram that is published tells the sum of each bin; over one loss that is the loss itself. Bins are joined
    from the worst on; whatever is left over at the other end joins the last bin that is large enough. Neighbours
    that are all empty become one, which changes no bound.

    Args:
        histogram: any.
        fewest: losses that a bin holds at least, unless it is empty or there are fewer in all; at least 1.
    """
    groups: list[list[int]] = []
    for place in reversed(range(len(histogram.starts))):
        held = _held(histogram, groups[-1]) if groups else fewest
        if 0 < held < fewest or held == histogram.counts[place] == 0:
            groups[-1].append(place)
        else:
            groups.append([place])
    while len(groups) > 1 and 0 < _held(histogram, groups[-1]) < fewest:
        last = groups.pop()
        groups[-1] += last
    groups.reverse()
    return LossHistogram(
        histogram.bins,
        histogram.loss_range,
        tuple(histogram.starts[min(group)] for group in groups),
        tuple(_held(histogram, group) for group in groups),
        tuple(math.fsum(histogram.sums[place] for place in group) for group in groups),
    )


def _held(histogram: LossHistogram, places: Iterable[int]) -> int:
    return sum(histogram.counts[place] for place in places)


def dkw_margin(records: int, delta: float) -> float:
    """Return by how much the population's distribution function may lie below the sample's, anywhere.

    Args:
        records: losses drawn independently (n), at least 1.
        delta: chance that it lies below by more, somewhere; above 0, at most 1/2.

    Returns:
        sqrt(log(1/delta) / (2n)); Massart 1990, one-sided.
    """
    return math.sqrt(math.log(1.0 / delta) / (2.0 * records))


def population_bounds(
    histogram: LossHistogram,
    group_sizes: Iterable[float],
    *,
    delta: float,
    method: Method = "dkw-binomial",
    sum_error: float = 0.0,
) -> list[float]:
    """Return, for each group size, a bound on the mean of min(loss, L) over every group of the population.

    All of them, and those of every other group size, hold together with probability at least 1 - delta over the
    draw of the records, if they were drawn independently of each other and of the model. A bound of L says
    nothing.

    Args:
        histogram: of the losses of n records, L its range.
        group_sizes: the least share (rho) that such a group has of the population, each in (0, 1].
        delta: chance that some bound is wrong, above 0, at most 1/2.
        method: one of `METHODS`, chosen before the losses were seen.
        sum_error: the most that the histogram's sums may be off, as the sum of their errors.

    Raises:
        PlanError: a group size, delta or the method is not one of those.
    """
    if not 0.0 < delta <= MAX_DELTA:
        raise PlanError(f"delta is {delta}, outside (0, {MAX_DELTA}]", "0.05 is 95 % confidence")
    widths = np.diff(histogram.lower_edges, append=histogram.loss_range)
    survival = _survival_band(histogram, widths, delta, method, sum_error)
    bounds = []
    for size in group_sizes:
        if not 0.0 < size <= 1.0:
            raise PlanError(f"group size is {size}, outside (0, 1]")
        # Upwards by more than the products and their sum can lose.
        area = float((widths * np.minimum(size, survival)).sum()) * (1.0 + len(widths) * 2.0**-50)
        bounds.append(min(area / size, histogram.loss_range))
    return bounds


def _survival_band(
    histogram: LossHistogram, widths: NDArray[np.float64], delta: float, method: Method, sum_error: float
) -> NDArray[np.float64]:
    """Return an upper bound on the mean of S over each bin."""
    if method == "dkw":
        return _mean_survival(histogram, widths, sum_error) + dkw_margin(histogram.records, delta)
    if method == "dkw-binomial":
        uniform = _mean_survival(histogram, widths, sum_error) + dkw_margin(histogram.records, 0.5 * delta)
        return np.minimum(uniform, _binomial_upper(histogram, 0.5 * delta / histogram.bins))
    raise PlanError(f"no population bound is called {method!r}", f"use {' or '.join(METHODS)}")


def _mean_survival(histogram: LossHistogram, widths: NDArray[np.float64], sum_error: float) -> NDArray[np.float64]:
    """Return the mean of S_n over each bin, or more where a sum may be off or the bin is open."""
    counts, records = np.asarray(histogram.counts, np.float64), histogram.records
    at_least = _at_least(histogram)
    held = np.maximum(np.asarray(histogram.sums) - counts * histogram.lower_edges + sum_error, 0.0)
    # Losses above the range would count too much in the open bin's sum, so its count alone is used.
    mean = (at_least - counts + held / np.where(widths > 0.0, widths, 1.0)) / records
    mean[-1] = np.inf
    return np.minimum(mean, at_least / records)


def _binomial_upper(histogram: LossHistogram, level: float) -> NDArray[np.float64]:
    """Return the upper ends of one-sided Clopper-Pearson intervals for P(loss >= lower edge of each bin)."""
    at_least = _at_least(histogram)
    others = histogram.records - at_least
    upper = betainccinv(at_least + 1.0, np.maximum(others, 1.0), level) * (1.0 + _INVERSE_ERROR)
    return np.where(others == 0.0, 1.0, np.minimum(upper, 1.0))


def _at_least(histogram: LossHistogram) -> NDArray[np.float64]:
    """Return how many losses are not below each bin's lower edge."""
    return np.asarray(histogram.counts, np.float64)[::-1].cumsum()[::-1]
