"""From a loss histogram to the statements of a certificate, in the same steps when it is issued and checked.

Which bounds exist and why they hold is decided by `fedfair.aggregation.cvar_bounds` (the evaluated records) and
`fedfair.fairness.population_bounds` (the population), for weighted sites with `fedfair.fairness.site_mixture`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedfair.aggregation.cvar_bounds import Cores, Interval, histogram_bounds, total_sum_error
from fedfair.aggregation.loss_histogram import HistogramSpec, Rounding
from fedfair.certificate.document import Population, Statement
from fedfair.fairness.population_bounds import LossHistogram, population_bounds
from fedfair.fairness.site_mixture import largest_ratio


def statements(
    histogram: LossHistogram,
    group_sizes: Sequence[float],
    population: Population | None,
    sites: Mapping[str, int] | None = None,
) -> tuple[Statement, ...]:
    """Return what a histogram proves about groups of each size.

    Args:
        histogram: of the evaluated losses.
        group_sizes: shares (rho) in (0, 1].
        population: how to speak of people who were not evaluated; None to say nothing of them.
        sites: evaluated records by site, which weights of the population need.

    Raises:
        DataError: the population weighs a site of whose records no number is known.
        RemoteProtocolError: no losses whatsoever have this histogram.
        PlanError: a group size is outside (0, 1].
    """
    counts, sums = np.array(histogram.counts, np.float64), np.array(histogram.sums, np.float64)
    edges, places = np.append(histogram.planned_edges, math.inf), np.array(histogram.cores)
    cores = Cores(edges[places], edges[places + 1], histogram.most_beside_core)
    rounding = _rounding(histogram)
    sample = histogram_bounds(histogram.lower_edges, counts, sums, group_sizes, cores, rounding)
    bounds: Sequence[float | None] = [None] * len(group_sizes)
    if population is not None:
        ratio = 1.0
        if population.weights is not None:
            ratio = largest_ratio(population.weights, sites or {}, histogram.records)
        rounded = population_bounds(
            histogram,
            [size / ratio for size in group_sizes],
            delta=population.delta,
            method=population.method,
            sum_error=total_sum_error(counts, sums),
        )
        # min(loss, L) is at most its rounded value and `inside`: from L on both are L.
        bounds = [min(bound + rounding.inside, histogram.loss_range) for bound in rounded]
    return tuple(
        Statement(group_size=size, sample=(interval.lower, interval.upper), population=bound)
        for size, interval, bound in zip(group_sizes, sample, bounds, strict=True)
    )


def nearest_statement(proven: Sequence[Statement], group_size: float) -> Statement:
    """Return the statement about the group size that is nearest to a given one."""
    return min(proven, key=lambda statement: abs(statement.group_size - group_size))


def mean_loss(histogram: LossHistogram) -> float:
    """Return the mean of all losses, as the sites have rounded them."""
    return math.fsum(histogram.sums) / histogram.records


def mean_bound(histogram: LossHistogram) -> Interval:
    """Return an interval that holds the mean of the losses before they were rounded."""
    counts, sums = np.array(histogram.counts, np.float64), np.array(histogram.sums, np.float64)
    return histogram_bounds(histogram.lower_edges, counts, sums, [1.0], rounding=_rounding(histogram))[0]


def _rounding(histogram: LossHistogram) -> Rounding:
    return HistogramSpec(histogram.bins, histogram.loss_range).rounding
