"""The headers of all sums as places in a vector, written out by hand: what `aggregation.header` derives from
fields."""

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import HistogramSpec

HEAD = 3
"""Values of a block before its counts: records, correct classifications, sum of the smoothed objective."""

SLOT = 3
"""Values of one site in one split: records, correct classifications, sum of the losses."""

WHOLE, REAL = True, False


def block_length(spec: HistogramSpec) -> int:
    return HEAD + 2 * (spec.bins + 1)


def matrix_length(classes: int) -> int:
    return classes**2 if classes <= 64 else 0


def evaluation_header_length(spec: HistogramSpec, classes: int) -> int:
    """Without rows of sites."""
    return 3 * (block_length(spec) + matrix_length(classes))


def split_header(
    header: NDArray[np.float64], spec: HistogramSpec, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return views: blocks (3, block_length), and matrices (3, classes, classes) or None."""
    end = evaluation_header_length(spec, classes)
    blocks, matrices = np.split(header[:end], [3 * block_length(spec)])
    shape = (3, classes, classes)
    return blocks.reshape(3, -1), matrices.reshape(shape) if len(matrices) else None


def block_counts(spec: HistogramSpec, *, noised: bool) -> list[bool]:
    bins = spec.bins + 1
    return [WHOLE, not noised, REAL, *[not noised] * bins, *[REAL] * bins]


def evaluation_counts(
    spec: HistogramSpec, classes: int, sites: int, columns: int = 0, *, noised: bool
) -> list[bool]:
    matrices = [not noised] * (3 * matrix_length(classes))
    rows = [not noised, not noised, REAL] * (3 * sites)
    return [*block_counts(spec, noised=noised) * 3, *matrices, *rows, *score_counts(columns, noised=noised)]


def score_counts(columns: int, *, noised: bool) -> list[bool]:
    """Positives, negatives, sums of scores, and the sum of squares: for each split, each column."""
    if not columns:
        return []
    joined = 2048 // columns // 16
    return ([not noised] * (2 * 16 * joined) + [REAL] * (joined + 1)) * (3 * columns)


def moments_counts(columns: int, *, noised: bool) -> list[bool]:
    return [WHOLE, *[not noised] * columns, *[REAL] * (2 * columns)]


def quantile_counts(sizes: int) -> list[bool]:
    """The longest step has 2048 counts, or 1024 for each size, in each split; then three sums for each size."""
    return [WHOLE] * (3 * max(2048, 1024 * sizes)) + [REAL] * (3 * sizes * 3)


def site_rows(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a view of the rows at the end of a header: array (sites, splits, 3)."""
    return table.reshape(-1, 3, SLOT)
