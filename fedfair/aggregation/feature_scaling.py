"""Feature scaling from one sum: how many values each numeric column has, their sum and their sum of squares.

Means and variances (divisor n, ddof=0) are those of all values that are present at any site, so that a column
which one site has never measured is scaled by the others' values. A value that is missing becomes 0 after scaling,
which is the overall mean. Which columns are numeric is the schema's decision, and who may add to the sum is
the round's.

The sums are fixed-point numbers once they are masked (`masked_encoding.py`). A column is therefore counted in a
unit, the power of two that its declared range fits in: dividing by it and multiplying by it again is exact, so
that a unit changes no bit of a result. A column without a range has the unit 1. Numpy only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.feature_moments import column_count, moments_layout, units_of
from fedfair.aggregation.header import NO_RECORDS
from fedfair.aggregation.requests import FeatureScaling
from fedfair.errors import LocalProtocolError, RemoteProtocolError

MAX_SQUARES = 2.0**54
"""The greatest sum of squares that one site can add: `sum_kinds.MAX_INTEGER`."""

MIN_VALUE = 2.0**-20
"""In units of the column: below it a square is of the size of the rounding of a masked sum, 2^-56, times 2^16."""


def scaling_from_sums(header: NDArray[np.float64], units: tuple[float, ...] = ()) -> FeatureScaling:
    """Return means and standard deviations from the total of `column_sums`.

    A column without any value gets mean 0 and scale 1. The variance is a difference of two numbers of the
    size of the mean square, each with a relative rounding error of up to n * 2^-53. A smaller result may be a
    constant column's, or one's that varies by a few millionths of its size, such as milliseconds since 1970 within
    an hour: it gets the largest deviation that the rounding may hide, at least 1, so that neither is blown up.

    Raises:
        RemoteProtocolError: no records at all, or sums that no data can have.
    """
    found = moments_layout(column_count(header)).read(header)
    records, counts, sums, squares = (found[name] for name in ("records", "counts", "sums", "squares"))
    if not records > 0:
        raise RemoteProtocolError(
            f"the standardisation sum is over {records:g} training records: {NO_RECORDS}",
            "look at the plan's filters",
        )
    if (counts < 0).any() or (counts > records).any():
        raise RemoteProtocolError(f"a numeric column has {counts.max():g} values in {records:g} training records")
    present = np.maximum(counts, 1.0)
    mean = sums / present
    mean_square = squares / present
    with np.errstate(over="ignore", invalid="ignore"):
        variance = mean_square - mean**2
    if not np.isfinite(variance).all():
        column = int(np.argmin(np.isfinite(variance)))
        raise RemoteProtocolError(
            f"numeric column {column} has the sum {sums[column]:g} and the sum of squares {squares[column]:g}"
        )
    noise = np.maximum(counts, 4.0) * 2.0**-52 * mean_square
    if (variance < -noise).any():
        column = int(np.argmin(variance))
        raise RemoteProtocolError(f"numeric column {column} has a negative variance {variance[column]:g}")
    unit = units_of(units, len(mean))
    deviation = np.sqrt(np.maximum(variance, noise)) * unit
    return FeatureScaling(mean * unit, np.where(variance > noise, deviation, np.maximum(deviation, 1.0)))


def scale_columns(
    features: NDArray[np.floating], numeric: tuple[int, ...], scaling: FeatureScaling
) -> NDArray[np.floating]:
    """Return a copy of `features` (n, columns) with x_j replaced by (x_j - mean_j) / scale_j, j in `numeric`.

    A missing x_j becomes 0.

    Raises:
        LocalProtocolError: the scaling is for another number of numeric columns.
    """
    if scaling.mean.shape != (len(numeric),) or scaling.scale.shape != (len(numeric),):
        raise LocalProtocolError(
            f"the scaling has {scaling.mean.shape} means and {scaling.scale.shape} scales, "
            f"the features have {len(numeric)} numeric columns"
        )
    scaled = features.copy()
    columns = list(numeric)
    values = (features[:, columns] - scaling.mean) / scaling.scale
    scaled[:, columns] = np.where(np.isnan(values), 0.0, values)
    return scaled
