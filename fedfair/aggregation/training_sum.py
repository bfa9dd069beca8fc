"""Updates long vectors at the server: adds a weighted mean in place, and keeps the mean of the iterates.

Every step works in blocks, so that a server never holds a temporary of the model's size: with ten million
parameters and uploads arriving, that is the difference between two and four models in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Field, Header, Number
from fedfair.errors import RemoteProtocolError

BLOCK = 1 << 16

TRAINING_LAYOUT = Header(Field("weight", Number.WEIGHT), Field("threshold", Number.REAL))
"""The header of a training sum: a site's weight, and its change of the threshold times that."""


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


def add_mean(vector: NDArray[np.floating], total: NDArray[np.floating], weight: float) -> None:
    """Add total / weight to `vector` in place; `check_mean` must have passed."""
    for block in _blocks(vector.size):
        vector[block] += total[block] / weight


class IterateMean:
    """The running mean of the models and thresholds that were broadcast, in float64.

    Attributes:
        vector: float64 array (d,), the mean so far; zeros at the start.
        threshold: the mean of the thresholds so far.
        count: how many iterates are in it.
    """

    __slots__ = ("count", "threshold", "vector")

    def __init__(self, dimension: int) -> None:
        self.vector: NDArray[np.float64] = np.zeros(dimension)
        self.threshold = 0.0
        self.count = 0

    def include(self, vector: NDArray[np.floating], threshold: float) -> None:
        """Take one more iterate into the mean: m += (x - m) / count."""
        self.count += 1
        for block in _blocks(vector.size):
            self.vector[block] += (vector[block] - self.vector[block]) / self.count
        self.threshold += (threshold - self.threshold) / self.count


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))
