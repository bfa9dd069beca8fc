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

so that the whole has the sensitivity 2. Losses are clamped to the range of the histogram for this purpose only.
With a matrix, correct classifications are its diagonal and are not released a second time. No torch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.evaluation.loss_sums import HEAD, HistogramSpec, matrix_length, split_header
from fedfair.fairness.simplex import project_on_box

EVALUATION_SENSITIVITY = 2.0
"""The norm of what one record adds, in units: the root of four ones."""


def evaluation_units(spec: HistogramSpec, classes: int, greatest_smoothed: float) -> NDArray[np.float64]:
    """Return the unit of every number of one split's block and matrix: the noise of each is in proportion to it.

    Args:
        spec: the histogram of the plan.
        classes: how many there are.
        greatest_smoothed: the smoothed objective of a record whose loss is the end of the range.

    Returns:
        float64 array (block and matrix), as `split_header` lays them out; 0 where nothing is released or public.
    """
    width = spec.loss_range / spec.bins
    cells = matrix_length(classes)
    # A clamped loss in the open bin lies exactly on its edge.
    offsets = np.append(np.full(spec.bins, width), 0.0)
    head = np.array([0.0, 0.0 if cells else 1.0, greatest_smoothed])
    return np.concatenate([head, np.ones(spec.bins + 1), offsets, np.ones(cells)])


def noised_split(
    block: NDArray[np.float64],
    matrix: NDArray[np.float64],
    units: NDArray[np.float64],
    noise: NDArray[np.float64],
    spec: HistogramSpec,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return one site's block and matrix of one split under noise.

    Args:
        block: float64 array (block_length,) of clamped losses.
        matrix: float64 array (classes squared,), or empty.
        units: from `evaluation_units`.
        noise: array like `units`, normal with the standard deviation sigma times `EVALUATION_SENSITIVITY`.
        spec: the histogram of the plan.
    """
    bins = spec.bins + 1
    scaled = units * noise
    noised = block + scaled[: len(block)]
    # The offsets carry the noise of their own unit; the edges travel with the noised counts.
    noised[HEAD + bins :] += spec.edges * scaled[HEAD : HEAD + bins]
    if len(matrix):
        noised[1] = 0.0
    return noised, matrix + scaled[len(block) :]


def possible_header(header: NDArray[np.float64], spec: HistogramSpec, classes: int) -> NDArray[np.float64]:
    """Return the header of records that may exist, near the total of noised ones.

    Args:
        header: float64 array (evaluation_header_length,), the sum of what all sites released; the numbers of
            records in it are exact.
        spec: the histogram of the plan.
        classes: how many there are.

    Returns:
        A header with whole counts from 0 on that add up to the records, and sums that fit them.
    """
    possible = header.copy()
    blocks, matrices = split_header(possible, spec, classes)
    for place, block in enumerate(blocks):
        records = int(block[0])
        _make_possible(block, records, spec)
        if matrices is not None:
            matrices[place] = _whole_counts(matrices[place].ravel(), records).reshape(classes, classes)
            block[1] = np.trace(matrices[place])
    return possible


def _make_possible(block: NDArray[np.float64], records: int, spec: HistogramSpec) -> None:
    counts, sums = block[HEAD : HEAD + spec.bins + 1], block[HEAD + spec.bins + 1 :]
    width = spec.loss_range / spec.bins
    offsets = sums - spec.edges * counts
    counts[:] = _whole_counts(counts, records)
    most = np.append(np.full(spec.bins, width), 0.0) * counts
    sums[:] = spec.edges * counts + np.clip(offsets, 0.0, most)
    block[1] = min(max(round(block[1]), 0), records)
    block[2] = max(float(block[2]), 0.0) if records else 0.0


def _whole_counts(noised: NDArray[np.float64], records: int) -> NDArray[np.float64]:
    """Return whole numbers from 0 on that add up to `records`, near the nearest point of that simplex."""
    nearest = project_on_box(noised, 0.0, float(records), float(records))
    whole = np.floor(nearest)
    missing = records - int(whole.sum())
    whole[np.argsort(whole - nearest, kind="stable")[:missing]] += 1.0
    return whole
