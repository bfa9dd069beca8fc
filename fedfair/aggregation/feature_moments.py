"""The moments that a site adds to a standardisation: count, sum and sum of squares of every column.

Decides the layout of the header, and how large the noise on it is; what the opened sums say is
`feature_scaling.py`'s. The values are counted in the units of their columns. Numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Bits, Everything, Field, Header, Number

_VALUES = Everything(
    "sums over the training records of all sites, and never over fewer: policy.reveals may leave out "
    "feature-sums, policy.min_collaborators, privacy.sample_level"
)


def moments_layout(columns: int) -> Header:
    """Return the layout of the header: of records, of present values, of their sums and of their squares' sums.

    Args:
        columns: how many are numeric.
    """
    each = (columns,)
    return Header(
        Field("records", Number.PUBLIC_COUNT, lone=Bits(0)),
        Field("counts", Number.COUNT, each, lone=Bits(columns)),
        Field("sums", Number.REAL, each, lone=_VALUES),
        Field("squares", Number.REAL, each, lone=_VALUES),
    )


def column_count(header: NDArray[np.float64]) -> int:
    """Return how many numeric columns a header is of."""
    return (len(header) - moments_layout(0).length) // (moments_layout(1).length - moments_layout(0).length)


def column_sums(
    columns: Iterable[NDArray[np.floating]], count: int, units: tuple[float, ...] = ()
) -> NDArray[np.float64]:
    """Return the header of one site's contribution, as `moments_layout` says, from one column after the other.

    Args:
        columns: float arrays (n,), the numeric columns of the site's training records, NaN where missing.
        count: how many columns there are.
        units: what each column is counted in; empty for 1.
    """
    layout = moments_layout(count)
    header = layout.zeros()
    found = layout.read(header)
    for place, (values, unit) in enumerate(zip(columns, units_of(units, count), strict=True)):
        found["records"] = len(values)
        known = ~np.isnan(values)
        present = np.where(known, values.astype(np.float64, copy=False), 0.0) / unit
        found["counts"][place], found["sums"][place] = known.sum(), present.sum()
        # Several columns were once squared together, in another order of addition than one alone.
        pair = np.stack([present] * min(count, 2)).T
        found["squares"][place] = np.einsum("ij,ij->j", pair, pair)[0]
    return header


def noise_deviation(released: int, noise_multiplier: float) -> float:
    """Return the standard deviation of the noise with which one site releases its sums: sigma sqrt(3 d).

    With differential privacy every numeric column has a declared range, so that a record adds, for each of d
    columns, whether it has a value, x / unit and (x / unit)^2, each at most 1: together no more than sqrt(3 d).

    Args:
        released: how many numbers those are, 3 d.
        noise_multiplier: sigma, above 0.
    """
    return noise_multiplier * math.sqrt(released)


def possible_sums(header: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Return sums that some values may have, near the total of noised ones: what `scaling_from_sums` takes.

    A variance is taken to be at least what noise alone could make of none, so that a column which hardly varies is
    not blown up to the size of its noise.

    Args:
        header: float64 array, as `moments_layout` says, in units of the columns; the records are exact.
        deviation: standard deviation of the noise on every number of the total.
    """
    layout = moments_layout(column_count(header))
    found = layout.read(header)
    counts = np.clip(found["counts"], 0.0, found["records"])
    sums = np.clip(found["sums"], -counts, counts)
    least = sums**2 / np.maximum(counts, 1.0) + deviation
    squares = np.maximum(found["squares"], least)
    return layout.built(records=found["records"], counts=counts, sums=sums, squares=squares)


def unit_of(least: float, greatest: float) -> float:
    """Return the power of two that every value of a range fits in: |x| / unit is at most 1."""
    return math.ldexp(1.0, math.frexp(max(abs(least), abs(greatest)))[1])


def units_of(units: tuple[float, ...], columns: int) -> NDArray[np.float64]:
    """Return the unit of each column: 1 where none is stated."""
    return np.array(units) if units else np.ones(columns)
