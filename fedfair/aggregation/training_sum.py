"""Moves the global model by a weighted mean of changes, and keeps the mean of the iterates.

Elementwise arithmetic only, so that the aggregator and every site compute the same bits. It works in blocks, so
that nothing but the result has the size of the model.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import NO_RECORDS, Bits, Everything, Field, Header, Number
from fedfair.aggregation.requests import vector_sha256
from fedfair.errors import RemoteProtocolError

BLOCK = 1 << 16

UPDATE = Everything(
    "as the change of the model beside it, a function of all records of a batch: policy.min_collaborators, "
    "policy.mode, privacy.sample_level"
)
"""How much a number tells that is made from all records of a batch."""

_WEIGHT = Field("weight", Number.WEIGHT, lone=Bits(0))
_THRESHOLD = Field("threshold", Number.REAL, lone=UPDATE)


def training_header(further: Iterable[Field] = ()) -> Header:
    """Return the header of training sums: weight, single counts, change of the threshold, the rest.

    Args:
        further: the fields that the terms of a plan add.
    """
    fields = tuple(further)
    counts = [each for each in fields if each.number is Number.COUNT and not each.shape]
    return Header(_WEIGHT, *counts, _THRESHOLD, *(each for each in fields if each not in counts))


TRAINING_LAYOUT = training_header()
"""The header of most training sums: a site's weight, and its change of the threshold times that."""


@dataclass(frozen=True, slots=True)
class Divisor:
    """The number that divides the summed change of the model.

    Attributes:
        name: of a field of the header.
        words: for more than one site's.
        remedy: what helps where the total is no positive number.
    """

    name: str = "weight"
    words: str = "weights"
    remedy: str = "look at the collaborators' sample counts"


WEIGHTS = Divisor()


def check_mean(
    vector: NDArray[np.floating], total: NDArray[np.floating], weight: float, by: Divisor = WEIGHTS
) -> None:
    """Refuse a total whose mean cannot be added to `vector`, and change nothing.

    Args:
        vector: float array (d,), the global model.
        total: float array (d,), the weighted sum of the changes.
        weight: the sum of the weights.
        by: what takes their place, for words.

    Raises:
        RemoteProtocolError: the weight is not a positive number, or the new model would not be finite.
    """
    if not (np.isfinite(weight) and weight > 0):
        raise RemoteProtocolError(
            f"the {by.words} of this round add up to {weight}, which is not a positive number"
            + (f": {NO_RECORDS}" if weight == 0 else ""),
            by.remedy,
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
    vector: NDArray[np.floating], total: NDArray[np.floating], weight: float, *, in_place: bool = False
) -> NDArray[np.floating]:
    """Return vector + total / weight, in the width of `vector`; `check_mean` must have passed.

    Args:
        vector: float array (d,), the global model; it stays as it is.
        total: float array (d,), the weighted sum of the changes.
        weight: the sum of the weights.
        in_place: whether the memory of `total` may become that of the result, where it has the width of `vector`.
    """
    moved = total if in_place and total.dtype == vector.dtype and total.flags.writeable else np.empty_like(vector)
    for block in blocks(vector.size):
        moved[block] = vector[block] + total[block] / weight
    return moved


@dataclass(frozen=True)
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

    @functools.cached_property
    def vector_sha256(self) -> bytes:
        """Return the SHA-256 (32 bytes) of the vector, as `requests.vector_sha256`."""
        return vector_sha256(self.vector)

    def including(self, vector: NDArray[np.floating], threshold: float) -> IterateMean:
        """Return the mean with one more iterate: m + (x - m) / count."""
        count, mean = self.count + 1, np.empty_like(self.vector)
        for block in blocks(vector.size):
            mean[block] = self.vector[block] + (vector[block] - self.vector[block]) / count
        return IterateMean(mean, self.threshold + (threshold - self.threshold) / count, count)


def blocks(size: int, at_once: int = BLOCK) -> Iterator[slice]:
    """Yield the places of so many numbers, some at a time."""
    for start in range(0, size, at_once):
        yield slice(start, min(start + at_once, size))
