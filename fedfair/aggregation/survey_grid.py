"""A coarse sketch of a column from sums: how many of its values are in each bin of a fixed grid.

A grid is the same at every site, because it follows from the plan, so that counts add up. A column with a declared
range has `RANGE_BINS` bins of equal width over it. Any other column has a signed logarithmic grid, which needs no
range: bins that end at powers of the square root of 2, for both signs, and one for all that is too small.

Bound. The value at a rank lies in the bin in which the cumulated count passes that rank, exactly, since counts are
exact. The estimate is a middle of that bin. Over a range it is the arithmetic one, so it is off by at most half a
bin, the range's width / 128. On the logarithmic grid it is the geometric one of [s, s sqrt(2)), s 2^(1/4). So the
ratio of estimate and value is between 2^(-1/4) and 2^(1/4): the relative error is at most 2^(1/4) - 1, or 18.9 %.
A magnitude below 2^-24 is taken for 0, and is off by less than that. Numpy only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

RANGE_BINS = 64
"""Bins of a column with a declared range."""

LEAST_POWER, GREATEST_POWER = -24, 28
"""The magnitudes of the logarithmic grid: from 2^-24 to 2^28, beyond the greatest of which a sum has room."""

LEAST = math.ldexp(1.0, LEAST_POWER)
"""Below this magnitude a value is taken for 0."""

STEPS = 2
"""Bins for each doubling of a magnitude."""

MAGNITUDES = (GREATEST_POWER - LEAST_POWER) * STEPS
"""Bins for each sign."""

RELATIVE_BOUND: float = 2.0 ** (1 / (2 * STEPS)) - 1.0
"""The greatest relative error of a quantile on the logarithmic grid: 0.189."""

_ROOT = math.sqrt(0.5)


@dataclass(frozen=True)
class ColumnGrid:
    """The bins of one column.

    Attributes:
        range: the least and the greatest value that are declared; None for the logarithmic grid.
    """

    range: tuple[float, float] | None = None

    @property
    def bins(self) -> int:
        """Return how many there are."""
        return RANGE_BINS if self.range is not None else 2 * MAGNITUDES + 1

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Return where bins end: float64 array (bins - 1,), rising; a bin's least value is in it."""
        if self.range is not None:
            least, greatest = self.range
            return least + (greatest - least) * (np.arange(1, RANGE_BINS) / RANGE_BINS)
        sizes = np.array([_power(step) for step in range(MAGNITUDES)])
        # Below zero a bin holds its end of greater magnitude and not the other, so that no value has two bins.
        return np.concatenate([np.nextafter(-sizes[::-1], 0.0), sizes])

    @cached_property
    def middles(self) -> NDArray[np.float64]:
        """Return the estimate for a value in each bin: float64 array (bins,)."""
        if self.range is not None:
            least, greatest = self.range
            return least + (greatest - least) * ((np.arange(RANGE_BINS) + 0.5) / RANGE_BINS)
        sizes = np.array([_power(step) for step in range(MAGNITUDES)]) * 2.0 ** (1 / (2 * STEPS))
        return np.concatenate([-sizes[::-1], [0.0], sizes])

    def places(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the number of each value's bin: int64 array of the same shape; beyond the grid, the last one.

        Args:
            values: without NaN.
        """
        return np.searchsorted(self.edges, values, side="right").astype(np.int64)

    def counts(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return how many values are in each bin: int64 array (bins,); a NaN is in none."""
        return np.bincount(self.places(values[~np.isnan(values)]), minlength=self.bins)

    def bound(self, estimate: float) -> float:
        """Return the greatest distance between an estimate of a quantile and the quantile, for values in the grid.

        Args:
            estimate: one of the middles.
        """
        if self.range is not None:
            least, greatest = self.range
            return (greatest - least) / (2 * RANGE_BINS)
        # The value is at most 2^(1/4) times the estimate, and at least 2^(-1/4) times it.
        return max(abs(estimate) * RELATIVE_BOUND, LEAST)


def quantile(counts: NDArray[np.floating] | NDArray[np.integer], grid: ColumnGrid, share: float) -> float | None:
    """Return the estimate of the value at a share of a column's sorted values; None without values.

    Args:
        counts: how many values each bin has.
        grid: the bins.
        share: from 0 to 1; the value is the first of which at least this share is no greater.
    """
    total = float(counts.sum())
    if total <= 0:
        return None
    rank = max(math.ceil(share * total), 1)
    return float(grid.middles[int(np.searchsorted(np.cumsum(counts), rank, side="left"))])


def _power(step: int) -> float:
    """Return 2^-24 times the square root of 2 so often, with no rounding where that is a power of 2."""
    whole, half = divmod(step, STEPS)
    return math.ldexp(1.0 if half == 0 else 2.0 * _ROOT, LEAST_POWER + whole)
