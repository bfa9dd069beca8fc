"""Moves the global model by a weighted mean of changes, and keeps the mean of the iterates.

Elementwise arithmetic only, so that the aggregator and every site come to the same bits. It works in blocks, so
that nothing but the result has the size of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Field, Header, Number
from fedfair.errors import RemoteProtocolError
from fedfair.plan.schema import Plan

BLOCK = 1 << 16

TRAINING_LAYOUT = Header(Field("weight", Number.WEIGHT), Field("threshold", Number.REAL))
"""The header of a training sum: a site's weight, and its change of the threshold times that."""

COUNTING_LAYOUT = Header(
    Field("weight", Number.WEIGHT), Field("new_weight", Number.COUNT), Field("threshold", Number.REAL)
)
"""The same under control variates: in between, a site's weight again where no sum has counted it before, or 0."""


def training_layout(plan: Plan) -> Header:
    """Return the header of a plan's training sums."""
    return COUNTING_LAYOUT if plan.training.control_variates else TRAINING_LAYOUT


def check_mean(vector: NDArray[np.floating], total: NDArray[np.floating], weight: float) -> None:
    """Refuse a total whose mean cannot be added to `vector`, and change nothing.

    Args:
        vector: float array (d,), the global model.
        total: float array (d,), the weighted sum of the changes.
        weight: the sum of the weights.

    Raises:
        RemoteProtocolError: the weight is not a positive number, or the new model would not be finite.
    """
    if not (np.isfinite(weight) and weight > 0):
        raise RemoteProtocolError(
            f"the weights of this round add up to {weight}, which is not a positive number",
            "look at the collaborators' sample counts; a site without training records must abstain",
        )
    if vector.size == 0:
        return
    # min() and max() let a NaN through to the comparison, which then fails, and allocate nothing.
    change = max(-float(total.min()), float(total.max())) / weight
    size = max(-float(vector.min()), float(vector.max()))
    if not change + size <= np.finfo(vector.dtype).max:
        raise RemoteProtocolError(
            f"the summed change of the model is not finite or too large: its largest mean entry is {change}",
            "lower learning_rate; a site whose training diverges should abstain",
        )


def moved_by_mean(
    vector: NDArray[np.floating], total: NDArray[np.floating], weight: float
) -> NDArray[np.floating]:
    """Return vector + total / weight, in the width of `vector`; `check_mean` must have passed.

    Args:
        vector: float array (d,), the global model; it stays as it is.
        total: float array (d,), the weighted sum of the changes.
        weight: the sum of the weights.
    """
    moved = np.empty_like(vector)
    for block in blocks(vector.size):
        moved[block] = vector[block] + total[block] / weight
    return moved


@dataclass(frozen=True, slots=True)
class IterateMean:
    """The running mean of the models and thresholds that were broadcast, in float64.

    Attributes:
        vector: float64 array (d,), the mean so far; zeros at the start.
        threshold: the mean of the thresholds so far.
        count: how many iterates are in it.
    """

    vector: NDArray[np.float64]
    threshold: float = 0.0
    count: int = 0

    def including(self, vector: NDArray[np.floating], threshold: float) -> IterateMean:
        """Return the mean with one more iterate: m + (x - m) / count."""
        count, mean = self.count + 1, np.empty_like(self.vector)
        for block in blocks(vector.size):
            mean[block] = self.vector[block] + (vector[block] - self.vector[block]) / count
        return IterateMean(mean, self.threshold + (threshold - self.threshold) / count, count)


def blocks(size: int) -> Iterator[slice]:
    """Yield the places of so many numbers, some at a time."""
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))
