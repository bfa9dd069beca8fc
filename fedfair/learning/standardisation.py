"""Feature scaling from one sum: sites add (n, sum x, sum x^2) per numeric column and get back mean and scale.

Variances are those of the pooled training records with divisor n (ddof=0). Which columns are numeric is the
schema's decision, and who may add to the sum is the round's. Numpy only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import RemoteProtocolError
from fedfair.learning.exchange import FeatureScaling


def column_sums(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the header of one site's contribution: [n, sum of x_j, sum of x_j^2].

    Args:
        values: float array (n, numeric columns) of the site's training records.
    """
    wide = values.astype(np.float64, copy=False)
    return np.concatenate([[len(wide)], wide.sum(axis=0), np.einsum("ij,ij->j", wide, wide)])


def scaling_from_sums(header: NDArray[np.float64]) -> FeatureScaling:
    """Return means and standard deviations from the total of `column_sums`.

    A column that never varies gets scale 1. The variance is a difference of two numbers of the size of the mean
    square, each with a relative rounding error of up to n * 2^-53; a smaller result than that is rounding noise
    of a constant column.

    Raises:
        RemoteProtocolError: no records at all, or sums that no data can have.
    """
    count, sums, squares = header[0], *np.split(header[1:], 2)
    if not count > 0:
        raise RemoteProtocolError(
            f"the standardisation sum is over {count:g} training records", "at least one site needs records"
        )
    mean = sums / count
    mean_square = squares / count
    variance = mean_square - mean**2
    noise = max(count, 4.0) * 2.0**-52 * mean_square
    if (variance < -noise).any():
        column = int(np.argmin(variance))
        raise RemoteProtocolError(f"numeric column {column} has a negative variance {variance[column]:g}")
    constant = variance <= noise
    return FeatureScaling(mean, np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance))))


def scale_columns(
    features: NDArray[np.floating], numeric: tuple[int, ...], scaling: FeatureScaling
) -> NDArray[np.floating]:
    """Return a copy of `features` (n, columns) with x_j replaced by (x_j - mean_j) / scale_j, j in `numeric`."""
    scaled = features.copy()
    columns = list(numeric)
    scaled[:, columns] = (features[:, columns] - scaling.mean) / scaling.scale
    return scaled
