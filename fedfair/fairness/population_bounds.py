"""Bounds every sizeable group's mean loss in the population, from held-out losses.

Decides the population half of the fairness certificate, from a loss histogram alone; the half about the evaluated
records is `fedfair.aggregation.cvar_bounds`'s, and how both are signed and shown is `fedfair.certificate`'s.

The population mixes the sites' people in the proportions of the evaluated records, one record a person; for other
proportions see `fedfair.fairness.site_mixture`. Let X = min(loss, L) with the histogram's range L, S(x) = P(X > x)
in the population, and S_n the same of the n records, drawn independently of each other. The mean of X over any
group that makes up at least rho of the population is at most

    CVaR_rho = min over c of c + E (X - c)+ / rho = (1/rho) * integral from 0 to L of min(rho, S(x)) dx    (*)

(Rockafellar and Uryasev 2000, Theorem 1, at the quantile c). The integral grows with S, so any U with S <= U
everywhere gives a bound for every rho at once; Thomas and Learned-Miller 2019 bound CVaR in this way. Two such U:

    binomial  at each of the B lower edges e of the histogram as it was planned, n P_n(X >= e) is binomial, so the
              upper end of Clopper and Pearson 1934 at level delta / B holds at all of them; S(x) <= P(X >= e) at
              every x >= e. Far tighter in the tail, which is where the worst group is
    dkw       S_n(x) + sqrt(log(1/delta) / (2n)) at every x, with probability 1 - delta: Dvoretzky, Kiefer and
              Wolfowitz 1956, one-sided, constant of Massart 1990, delta <= 1/2

"dkw-binomial" is the lower of the two at every x, each at delta / 2.

Where each site's number of records was fixed, the records are no draws from one population: a loss of site k is at
least e with a chance p_k of its own. Then n P_n(X >= e) is a sum of independent indicators whose chances have the
mean p = P(X >= e), and "binomial" still holds. Proof: it fails where p > u(count), that is, where the count is at
most c, the largest with u(c) < p. Hoeffding 1956: for c <= np - 1 that is no more likely than for the binomial, so
its chance is at most the level. And c > np - 1 cannot be. We define u(c) = 1 for c >= n - 1, so c <= n - 2 and
p < 1 - 1/n; there a binomial count is at most np with a chance above 1/4 (Greenberg and Mohri 2014), more than any
level delta / B in use. For "dkw" the constant is proven for draws from one population only.

From counts and sums alone: over one bin
[e, e') the mean of S_n is (above * (e' - e) + sum - count * e) / (n (e' - e)), exactly, and because min(rho, .) is
concave, the bin's part of (*) is at most its width times min(rho, mean of U). In the open bin the sum counts more
than min(loss, L), so there the mean is at most that. Binning therefore loosens the bound, and never breaks it.

Joined bins: a few outliers far above all others are published together with others, in a bin that may reach up
to L. At each planned edge d inside such a bin, from e on, the number of its losses that are at least d is at most

    count               everywhere
    (sum - count * e) / (d - e)    Markov: each of them is at least d - e above e
    fewest - 1          above the bin's core, the planned bin outside which fewer than `fewest` lie on either side

Both bands grow with that number, so the smallest of the three gives bands at all planned edges. Of these and the
bin's mean of S_n, the one with the lower part of (*) counts. So outliers that are fewer than `fewest` lift the
bound at most as fewest - 1 losses of L each would, or as the bin's mean says, but for one planned bin's width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError, PlanError
from fedfair.fairness.binomial_tail import upper_chance

Method: TypeAlias = Literal["binomial", "dkw-binomial", "dkw"]

METHODS: tuple[Method, ...] = get_args(Method)
"""The ways to a population bound, the one to take first; choose before looking at the losses."""

MAX_DELTA = 0.5
"""Massart's constant is proven for delta up to one half."""

MIN_DELTA = 1e-12
"""Smaller chances of error are beyond what the inverse of the binomial tail is tested for."""

MIN_GROUP_SIZE = 1e-12
"""The least share of the population that a statement covers; its inverse stays far below the largest float."""

MAX_RECORDS = 1 << 50
MAX_SUM = 1e300
"""Up to these, counts are exact as floating-point numbers and no sum of sums overflows."""

_INVERSE_ERROR = 1e-9
"""Far above the relative error of the inverse of the binomial tail."""


@dataclass(frozen=True, slots=True)
class LossHistogram:
    """A histogram of losses: its edges, and the count and the sum of the losses in each bin.

    The plan's histogram has `bins` equal bins over [0, loss_range] and an open one above; neighbours may have been
    joined since, around a core.

    Attributes:
        bins: number of equal bins (B) before any joining, at least 1.
        loss_range: where the open bin began (L), positive and finite.
        starts: for each bin, the number of the planned bin that it begins with: 0 first, increasing, at most bins.
        counts: losses in each bin, at least 0, of which at least one is not; of the length of `starts`.
        sums: their sums; of the length of `starts`.
        cores: for each bin, the number of one of its planned bins, such that fewer than `fewest` of its losses lie
            below that one, and fewer than `fewest` above; of the length of `starts`.
        fewest: see `cores`; 1 where no bins are joined, at least 1.
    """

    bins: int
    loss_range: float
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    sums: tuple[float, ...]
    cores: tuple[int, ...]
    fewest: int

    @classmethod
    def planned(
        cls, bins: int, loss_range: float, counts: tuple[int, ...], sums: tuple[float, ...]
    ) -> LossHistogram:
        """Return the plan's histogram, of which no bins are joined; counts and sums have bins + 1 entries."""
        places = tuple(range(bins + 1))
        return cls(bins, loss_range, places, counts, sums, places, 1)

    def __post_init__(self) -> None:
        if self.bins < 1 or not (self.loss_range > 0.0 and math.isfinite(self.loss_range)):
            raise DataError(f"{self.bins} bins over [0, {self.loss_range}] make no histogram")
        if not self.starts or not len(self.starts) == len(self.counts) == len(self.sums) == len(self.cores):
            raise DataError(
                f"a histogram has {len(self.starts)} edges, {len(self.counts)} counts, {len(self.sums)} sums and "
                f"{len(self.cores)} cores"
            )
        increasing = all(left < right for left, right in itertools.pairwise(self.starts))
        if self.starts[0] != 0 or self.starts[-1] > self.bins or not increasing:
            raise DataError(f"the bins of a histogram do not begin at increasing places from 0 to {self.bins}")
        ends = (*self.starts[1:], self.bins + 1)
        inside = all(low <= core < end for low, core, end in zip(self.starts, self.cores, ends, strict=True))
        if self.fewest < 1 or not inside:
            raise DataError("a bin of a histogram has a core outside itself, or may hold fewer than 1 loss")
        if min(self.counts) < 0 or not 1 <= sum(self.counts) <= MAX_RECORDS:
            raise DataError(f"a histogram counts a negative number of losses, none, or more than {MAX_RECORDS}")
        if not all(0.0 <= value <= MAX_SUM for value in (*self.sums, self.loss_range)):
            raise DataError(f"a histogram has a sum or a range that is negative or above {MAX_SUM}")

    @property
    def records(self) -> int:
        """Number of losses (n)."""
        return sum(self.counts)

    @property
    def most_beside_core(self) -> int:
        """How many losses of a bin lie below its core at most, and how many above."""
        return min(self.fewest - 1, self.records)

    @property
    def planned_edges(self) -> NDArray[np.float64]:
        """Where each bin of the plan began: increasing array (bins + 1,), from 0 to the range."""
        return np.linspace(0.0, self.loss_range, self.bins + 1)

    @property
    def lower_edges(self) -> NDArray[np.float64]:
        """Where each bin begins: increasing array, from 0 on."""
        return self.planned_edges[list(self.starts)]


def join_small_bins(histogram: LossHistogram, fewest: int) -> LossHistogram:
    """Return the histogram with neighbours joined until no bin holds 1 to fewest - 1 losses.

    A histogram that is published tells the sum of each bin; over one loss that is the loss itself. Bins are
    joined from the worst on, until there are enough losses. The planned bin that makes them enough is the core,
    and fewer than `fewest` losses lie above it. Whatever is left over at the other end joins the last bin that is
    large enough, below its core. Neighbours that are all empty become one, which changes no bound.

    A core tells hardly anything new. That fewer than `fewest` losses lie above it follows from these rules. Only
    the bin with the leftovers tells by its core where 1 to fewest - 1 losses end, as other bins do by their edge.

    Args:
        histogram: as it was planned.
        fewest: losses that a bin holds at least, unless it is empty or there are fewer in all; at least 1.

    Raises:
        DataError: bins of the histogram are joined already.
    """
    if len(histogram.starts) != histogram.bins + 1:
        raise DataError("bins of this histogram are joined already", "join those of the plan's histogram")
    groups: list[list[int]] = []
    for place in reversed(range(len(histogram.starts))):
        held = _held(histogram, groups[-1]) if groups else fewest
        if 0 < held < fewest or held == histogram.counts[place] == 0:
            groups[-1].append(place)
        else:
            groups.append([place])
    cores = [min(group) for group in groups]
    while len(groups) > 1 and 0 < _held(histogram, groups[-1]) < fewest:
        last = groups.pop()
        groups[-1] += last
    groups.reverse()
    return LossHistogram(
        histogram.bins,
        histogram.loss_range,
        tuple(min(group) for group in groups),
        tuple(_held(histogram, group) for group in groups),
        tuple(math.fsum(histogram.sums[place] for place in group) for group in groups),
        tuple(reversed(cores[: len(groups)])),
        fewest,
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
    method: Method = "binomial",
    sum_error: float = 0.0,
) -> list[float]:
    """Return, for each group size, a bound on the mean of min(loss, L) over every group of the population.

    All of them, and those of every other group size, hold together with probability at least 1 - delta over the
    draw of the records, if they were drawn independently of each other and of the model. The population mixes the
    sites' people in the proportions of the records. A bound of L says nothing.

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
    if method not in METHODS:
        raise PlanError(f"no population bound is called {method!r}", f"use {' or '.join(METHODS)}")
    level = 0.5 * delta if method == "dkw-binomial" else delta
    counts, starts = _at_least(histogram, sum_error), list(histogram.starts)
    upper = np.ones(histogram.bins + 1)
    if method != "dkw":
        upper = _binomial_upper(counts, histogram.records, level / histogram.bins)
    mean = upper[starts]
    if method != "binomial":
        margin = dkw_margin(histogram.records, level)
        upper = np.minimum(upper, counts / histogram.records + margin)
        mean = np.minimum(mean, _mean_survival(histogram, sum_error) + margin)
    pieces = np.diff(histogram.planned_edges, append=histogram.loss_range)
    widths = np.diff(histogram.lower_edges, append=histogram.loss_range)
    bounds = []
    for size in group_sizes:
        if not 0.0 < size <= 1.0:
            raise PlanError(f"group size is {size}, outside (0, 1]")
        by_edges = np.add.reduceat(pieces * np.minimum(size, upper), starts)
        area = float(np.minimum(widths * np.minimum(size, mean), by_edges).sum())
        # Upwards by more than the products and their sum can lose.
        bounds.append(min(area * (1.0 + len(pieces) * 2.0**-50) / size, histogram.loss_range))
    return bounds


def _mean_survival(histogram: LossHistogram, sum_error: float) -> NDArray[np.float64]:
    """Return the mean of S_n over each bin, or more where a sum may be off or the bin is open."""
    counts, records = np.asarray(histogram.counts, np.float64), histogram.records
    widths = np.diff(histogram.lower_edges, append=histogram.loss_range)
    above = counts[::-1].cumsum()[::-1] - counts
    with np.errstate(over="ignore"):
        mean = (above + _excess(histogram, sum_error) / np.where(widths > 0.0, widths, 1.0)) / records
    return np.minimum(mean, (above + counts) / records)


def _excess(histogram: LossHistogram, sum_error: float) -> NDArray[np.float64]:
    """Return by how much the losses of each bin are above its lower edge, in all, or more."""
    counts = np.asarray(histogram.counts, np.float64)
    return np.maximum(np.asarray(histogram.sums) - counts * histogram.lower_edges + sum_error, 0.0)


def _at_least(histogram: LossHistogram, sum_error: float) -> NDArray[np.float64]:
    """Return how many losses are not below each edge of the plan, or more: the module says why."""
    places = np.arange(histogram.bins + 1)
    owner = np.searchsorted(histogram.starts, places, side="right") - 1
    counts = np.asarray(histogram.counts, np.float64)
    inside = counts[owner]
    beyond_core = places > np.asarray(histogram.cores)[owner]
    few = np.where(beyond_core, np.minimum(inside, histogram.most_beside_core), inside)
    distance = histogram.planned_edges - histogram.lower_edges[owner]
    with np.errstate(over="ignore"):
        markov = _excess(histogram, sum_error)[owner] / np.where(distance > 0.0, distance, 1.0)
    # Upwards by more than the quotient can lose.
    markov = np.floor(markov * (1.0 + 2.0**-50))
    above = counts[::-1].cumsum()[::-1] - counts
    return above[owner] + np.where(distance > 0.0, np.minimum(few, markov), few)


def _binomial_upper(counts: NDArray[np.float64], records: int, level: float) -> NDArray[np.float64]:
    """Return the upper ends of one-sided Clopper-Pearson intervals for shares of which `counts` were drawn.

    They are 1 where all were drawn but one at most: the module says why.
    """
    drawn, place = np.unique(counts, return_inverse=True)
    ends = [
        1.0
        if count >= records - 1
        else min(upper_chance(int(count), records, level) * (1.0 + _INVERSE_ERROR), 1.0)
        for count in drawn
    ]
    return np.array(ends)[place]
