"""Evaluation sums under noise: what is released, in which units, and the possible sums nearest to what comes out.

With differential privacy every site adds noise to what it sums, so that counts are no whole numbers any more and
some fall below zero. Decides which numbers of a header carry noise and how much of each one record can move; and
makes of a noised total the histogram that some records could have had, so that everything behind it works as
before. That is post-processing: it costs no privacy, and it takes the noise of empty bins away. What follows is an
ESTIMATE: no interval around it is proved.

How many records a split has is public (a sampling rate is stated from it) and stays exact. Everything else that
one record adds falls into four parts of norm at most 1 each, in these units:

    its cell of the confusion matrix, or, where there are too many classes for one, whether it is correct    1
    its smoothed objective                                                            the largest it can be
    its bin                                                                                               1
    how far it lies beyond the lower edge of its bin                                        a bin's width

so that the whole has the sensitivity 2. Two of these are no whole numbers. Each record's are rounded to a fine
grid and added up in whole numbers, so that no sum of floats is involved, and the sum is rounded once more to the
grid of the noise (`privacy.grid`), which can move two entries because of one record. Losses are clamped to the
range of the histogram for this purpose only. With a matrix, correct classifications are its diagonal and are not
released a second time. No torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_sums import evaluation_layout, matrix_shape
from fedfair.aggregation.header import Field, Header, Number
from fedfair.aggregation.loss_histogram import HistogramSpec, block_fields
from fedfair.fairness.simplex import project_on_box

EVALUATION_SENSITIVITY = 2.0
"""The norm of what one record adds, in units: the root of four ones."""

EVALUATION_ROUNDED = 2
"""How many entries that are no whole numbers one record adds to: its smoothed objective, and its offset."""


def split_layout(spec: HistogramSpec, classes: int) -> Header:
    """Return the layout of what is released about one split: its block, and its "confusion" (classes, classes)."""
    return Header(*block_fields(spec), Field("confusion", Number.COUNT, matrix_shape(classes)))


def evaluation_units(spec: HistogramSpec, classes: int, greatest_smoothed: float) -> NDArray[np.float64]:
    """Return the unit of every number of one split's block and matrix: the noise of each is in proportion to it.

    Args:
        spec: the histogram of the plan.
        classes: how many there are.
        greatest_smoothed: the smoothed objective of a record whose loss is the end of the range.

    Returns:
        float64 array, as `split_layout` says; 0 where nothing is released or public.
    """
    width = spec.loss_range / spec.bins
    # A clamped loss in the open bin lies exactly on its edge.
    offsets = np.append(np.full(spec.bins, width), 0.0)
    has_matrix = matrix_shape(classes) != (0, 0)
    return split_layout(spec, classes).built(
        correct=float(not has_matrix), smoothed=greatest_smoothed, counts=1.0, losses=offsets, confusion=1.0
    )


def split_units(
    losses: NDArray[np.float64],
    smoothed: NDArray[np.float64],
    correct: int | None,
    matrix: NDArray[np.float64],
    greatest_smoothed: float,
    spec: HistogramSpec,
) -> NDArray[np.float64]:
    """Return what the records of one split add up to, in units, as `evaluation_units` has them.

    Args:
        losses: float64 array (n,) of clamped losses, at least one.
        smoothed: float64 array (n,), their smoothed objectives.
        correct: how many records are classified correctly; None where there are no classes.
        matrix: float64 array (classes, classes) of counts, or (0, 0).
        greatest_smoothed: the smoothed objective of a record whose loss is the end of the range.
        spec: the histogram of the plan.

    Returns:
        float64 array, as `split_layout` says, every entry within one unit for each record; 0 for the number of
        records, and for correct classifications beside a matrix.
    """
    width, length = spec.loss_range / spec.bins, spec.bins + 1
    bins = np.searchsorted(spec.edges, losses, side="right") - 1
    offsets = np.where(bins < spec.bins, (losses - spec.edges[bins]) / width, 0.0)
    return Header(*block_fields(spec), Field("confusion", Number.COUNT, matrix.shape)).built(
        correct=0.0 if matrix.size or correct is None else correct,
        smoothed=added_up(smoothed / greatest_smoothed)[0],
        counts=np.bincount(bins, minlength=length),
        losses=added_up(offsets, bins, length),
        confusion=matrix,
    )


def added_up(
    values: NDArray[np.float64], places: NDArray[np.int64] | None = None, length: int = 1
) -> NDArray[np.float64]:
    """Return sums of numbers from -1 to 1, by place, each number rounded to a fine grid and added up exactly.

    Args:
        values: float64 array (n,); what is beyond the range, or no number, counts as its end.
        places: int64 array (n,), from 0 to length - 1; None where there is one sum.
        length: how many sums.

    Returns:
        float64 array (length,), a multiple of 2^-32 or, for over a million numbers, of what stays exact.
    """
    fine = 2.0 ** min(32, 52 - len(values).bit_length())
    whole = np.rint(np.clip(np.nan_to_num(values, nan=1.0), -1.0, 1.0) * fine)
    found = np.zeros(len(whole), np.int64) if places is None else places
    return np.bincount(found, weights=whole, minlength=length) / fine


def noised_split(
    records: int, noised: NDArray[np.float64], units: NDArray[np.float64], spec: HistogramSpec, classes: int
) -> NDArray[Any]:
    """Return what one site says about one split, from what was released.

    Args:
        records: how many there are, which is public.
        noised: float64 array like `units`: `split_units` on its grid, with its noise.
        units: from `evaluation_units`.
        spec: the histogram of the plan.
        classes: how many there are.

    Returns:
        The fields of `split_layout`.
    """
    found = split_layout(spec, classes).read(units * noised)
    # Offsets are counted from the lower edges of the noised counts.
    found["losses"] += spec.edges * found["counts"]
    found["records"] = records
    return found


def possible_header(header: NDArray[np.float64], spec: HistogramSpec, classes: int) -> NDArray[np.float64]:
    """Return the header of records that may exist, near the total of noised ones.

    Args:
        header: float64 array, as `evaluation_layout` says: the sum of what all sites released; the numbers of
            records in it are exact.
        spec: the histogram of the plan.
        classes: how many there are.

    Returns:
        A header with whole counts from 0 on that add up to the records, and sums that fit them.
    """
    possible = header.copy()
    sums = evaluation_layout(spec, classes).read(possible)
    for block, matrix in zip(sums["splits"], sums["confusion"], strict=True):
        records = int(block["records"])
        _make_possible(block, records, spec)
        if matrix.size:
            matrix[:] = _whole_counts(matrix.ravel(), records).reshape(classes, classes)
            block["correct"] = np.trace(matrix)
    return possible


def _make_possible(block: np.void, records: int, spec: HistogramSpec) -> None:
    counts, sums = block["counts"], block["losses"]
    width = spec.loss_range / spec.bins
    offsets = sums - spec.edges * counts
    counts[:] = _whole_counts(counts, records)
    most = np.append(np.full(spec.bins, width), 0.0) * counts
    sums[:] = spec.edges * counts + np.clip(offsets, 0.0, most)
    if spec.has_classes:
        block["correct"] = min(max(round(block["correct"]), 0), records)
    block["smoothed"] = max(float(block["smoothed"]), 0.0) if records else 0.0


def _whole_counts(noised: NDArray[np.float64], records: int) -> NDArray[np.float64]:
    """Return whole numbers from 0 on that add up to `records`, near the nearest point of that simplex."""
    nearest = project_on_box(noised, 0.0, float(records), float(records))
    whole = np.floor(nearest)
    missing = records - int(whole.sum())
    whole[np.argsort(whole - nearest, kind="stable")[:missing]] += 1.0
    return whole
