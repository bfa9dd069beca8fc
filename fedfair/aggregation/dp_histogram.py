"""Evaluation sums under noise: what is released, in which units, and how a histogram is made of it.

With differential privacy every site adds noise to what it sums, so that counts are no whole numbers any more and
some fall below zero. Decides which numbers of a header carry noise and how much of each one record can move; and
which histogram is the most likely one behind a noised total. That is post-processing: it costs no privacy. What
figures a noised total gives, and how far they may be off, is `noised_figures.py`'s business.

How many records a split has is public (a sampling rate is stated from it) and stays exact. Everything else that
one record adds falls into four parts of norm at most 1 each, in these units:

    its cell of the confusion matrix, or, where there are too many classes for one, whether it is correct    1
    its smoothed objective                                                            the largest it can be
    its bin                                                                                               1
    its loss                                                                           the histogram's range

so that the whole has the sensitivity 2. Losses are released as one sum of all, in the place of the open bin's:
with noise of its own in each bin, their sum would be off by the root of the bins times as much. Two of the four
are no whole numbers. Each record's are rounded to a fine grid and added up in whole numbers, so that no sum of
floats is involved, and the sum is rounded once more to the grid of the noise (`privacy.grid`), which can move two
entries because of one record. Losses are clamped to the range of the histogram for this purpose only. With a
matrix, correct classifications are its diagonal and are not released a second time. No torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_sums import evaluation_layout, matrix_shape
from fedfair.aggregation.header import Everything, Field, Header, Number
from fedfair.aggregation.loss_histogram import HistogramSpec, block_fields
from fedfair.fairness.simplex import project_on_box
from fedfair.privacy.grid import Grid, noise_grid

EVALUATION_SENSITIVITY = 2.0
"""The norm of what one record adds, in units: the root of four ones."""

EVALUATION_ROUNDED = 2
"""How many entries that are no whole numbers one record adds to: its smoothed objective, and its loss."""

_HALVINGS = 60
"""Of the interval that holds a multiplier: what is left of it is below the last digit."""


def evaluation_grid(noise_multiplier: float) -> Grid:
    """Return the grid and the noise of one site's release, in units."""
    return noise_grid(noise_multiplier, EVALUATION_SENSITIVITY, EVALUATION_ROUNDED, largest=1.0)


def split_layout(spec: HistogramSpec, classes: int) -> Header:
    """Return the layout of what is released about one split: its block, and its "confusion" (classes, classes)."""
    return Header(*block_fields(spec), _confusion(matrix_shape(classes)))


def _confusion(shape: tuple[int, ...]) -> Field:
    return Field("confusion", Number.COUNT, shape, lone=Everything("noise covers it: privacy.sample_level"))


def evaluation_units(spec: HistogramSpec, classes: int, greatest_smoothed: float) -> NDArray[np.float64]:
    """Return the unit of every number of one split's block and matrix: the noise of each is in proportion to it.

    Args:
        spec: the histogram of the plan.
        classes: how many there are.
        greatest_smoothed: the smoothed objective of a record whose loss is the end of the range.

    Returns:
        float64 array, as `split_layout` says; 0 where nothing is released or public.
    """
    has_matrix = matrix_shape(classes) != (0, 0)
    return split_layout(spec, classes).built(
        correct=float(not has_matrix),
        smoothed=greatest_smoothed,
        counts=1.0,
        losses=_all_in_the_open_bin(spec.loss_range, spec),
        confusion=1.0,
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
    bins = np.searchsorted(spec.edges, losses, side="right") - 1
    return Header(*block_fields(spec), _confusion(matrix.shape)).built(
        correct=0.0 if matrix.size or correct is None else correct,
        smoothed=added_up(smoothed / greatest_smoothed),
        counts=np.bincount(bins, minlength=spec.bins + 1),
        losses=_all_in_the_open_bin(added_up(losses / spec.loss_range), spec),
        confusion=matrix,
    )


def _all_in_the_open_bin(total: float, spec: HistogramSpec) -> NDArray[np.float64]:
    return np.append(np.zeros(spec.bins), total)


def added_up(values: NDArray[np.float64]) -> float:
    """Return the sum of numbers from -1 to 1, each rounded to a fine grid and added up exactly.

    Args:
        values: float64 array (n,); what is beyond the range, or no number, counts as its end.

    Returns:
        A multiple of 2^-32 or, for over a million numbers, of what stays exact.
    """
    fine = 2.0 ** min(32, 52 - len(values).bit_length())
    whole = np.rint(np.clip(np.nan_to_num(values, nan=1.0), -1.0, 1.0) * fine)
    return float(whole.sum()) / fine


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
    found["records"] = records
    return found


def likely_histogram(block: np.void, spec: HistogramSpec) -> NDArray[np.float64]:
    """Return the numbers of losses in each bin that the noised ones of a split make the most likely.

    It is the nearest histogram, in units of the noise, to the noised counts and to the noised sum of all losses.
    It counts from 0 on, as many records as there are, with every loss in the middle of its bin. Of far more bins
    than the noise can tell apart it has too many losses in the upper ones, and so its mean and its tail are too
    large; the sum of all losses keeps that small.

    Args:
        block: the block of a split as it was released, with at least one record.
        spec: the histogram of the plan.

    Returns:
        float64 array (bins + 1,), from 0 on, which adds up to the records.
    """
    records, counts = float(block["records"]), np.array(block["counts"])
    places = middles(spec) / spec.loss_range
    released = float(block["losses"][-1]) / spec.loss_range

    def nearest(multiplier: float) -> NDArray[np.float64]:
        return project_on_box(counts - multiplier * places, 0.0, records, records)

    # The multiplier is by how much the nearest histogram's sum exceeds the released one, which falls with it.
    excess = float((places * nearest(0.0)).sum()) - released
    low, high = min(excess, 0.0), max(excess, 0.0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if float((places * nearest(middle)).sum()) - released > middle:
            low = middle
        else:
            high = middle
    return nearest(0.5 * (low + high))


def middles(spec: HistogramSpec) -> NDArray[np.float64]:
    """Return the middle of each bin (bins + 1,); a clamped loss in the open bin lies exactly on its edge."""
    return np.append(spec.edges[:-1] + 0.5 * spec.loss_range / spec.bins, spec.loss_range)


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
            matrix[:] = possible_matrix(matrix, records)
            block["correct"] = np.trace(matrix)
    return possible


def possible_matrix(matrix: NDArray[np.float64], records: int) -> NDArray[np.float64]:
    """Return the confusion matrix of so many records that is nearest to a noised one."""
    nearest = project_on_box(matrix.ravel(), 0.0, float(records), float(records))
    return _whole(nearest, records).reshape(matrix.shape)


def _make_possible(block: np.void, records: int, spec: HistogramSpec) -> None:
    counts = np.zeros(spec.bins + 1)
    if records:
        counts = _whole(likely_histogram(block, spec), records)
    block["counts"], block["losses"] = counts, middles(spec) * counts
    if spec.has_classes:
        block["correct"] = min(max(round(block["correct"]), 0), records)
    block["smoothed"] = max(float(block["smoothed"]), 0.0) if records else 0.0


def _whole(nearest: NDArray[np.float64], records: int) -> NDArray[np.float64]:
    """Return whole numbers that add up to `records`, near numbers from 0 on that do."""
    whole = np.floor(nearest)
    missing = records - int(whole.sum())
    whole[np.argsort(whole - nearest, kind="stable")[:missing]] += 1.0
    return whole
