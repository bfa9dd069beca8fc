"""The records of an estimator before a fit: each kind once, in one order, standardised, with what it counts.

A sample weight is a number of people: a record of weight 2 is two people, and of weight 0 none. So equal records
are put together, and the fit is the same, to the last bit, in whatever order and multiplicity they are given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.linear_design import Array
from fedfair.fairness.superquantile_weights import worst_weights

MIN_DEVIATION = 1e-12
"""A column that varies by less than this part of its mean is a constant: its scale is 1."""


@dataclass(frozen=True, slots=True)
class CountedRecords:
    """Different records, and how many people each stands for.

    Attributes:
        features: float64 array (n, p), standardised.
        answers: float64 array (n,): classes or targets.
        counts: float64 array (n,), positive: people of each kind.
        mean: of the columns, float64 array (p,).
        scale: of the columns, float64 array (p,), positive.
    """

    features: Array = field(repr=False)
    answers: Array = field(repr=False)
    counts: Array = field(repr=False)
    mean: Array = field(repr=False)
    scale: Array = field(repr=False)

    @property
    def people(self) -> float:
        """How many people there are."""
        return float(self.counts.sum())

    @property
    def shares(self) -> Array:
        """Each record's share of all people: float64 array (n,), summing to 1."""
        shares: Array = self.counts / self.counts.sum()
        return shares

    def worst(self, losses: Array, size: float) -> float:
        """Return the mean loss of the worst group of a size, where each record counts for its people."""
        if len(losses) == 1:
            return float(losses[0])
        return float(worst_weights(losses, self.shares, size) @ losses)


def counted_records(features: NDArray[np.floating], answers: Array, weights: Array) -> CountedRecords:
    """Return the different records of positive weight.

    Args:
        features: array (n, p), finite.
        answers: float64 array (n,), finite.
        weights: float64 array (n,), not negative, at least one positive.
    """
    present = weights > 0.0
    table = np.column_stack([np.asarray(features, np.float64), answers])[present]
    order = np.lexsort(table.T[::-1])
    table, held = table[order], weights[present][order]
    first = np.append(True, (table[1:] != table[:-1]).any(axis=1))
    counts = np.add.reduceat(held, np.flatnonzero(first))
    table = table[first]
    columns, shares = table[:, :-1], counts / counts.sum()
    mean = shares @ columns
    deviation = np.sqrt(shares @ (columns - mean) ** 2)
    varies = deviation > MIN_DEVIATION * np.maximum(np.abs(mean), math.ulp(1.0))
    scale = np.where(varies, deviation, 1.0)
    return CountedRecords((columns - mean) / scale, table[:, -1], counts, mean, scale)
