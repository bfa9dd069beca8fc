"""Moves the global model by a weighted mean of changes, and keeps the mean of the iterates.

Elementwise arithmetic only, so that the aggregator and every site come to the same bits. It works in blocks, so
that nothing but the result has the size of the model.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import NO_RECORDS, Bits, Everything, Field, Header, Number, one_of
from fedfair.aggregation.requests import vector_sha256
from fedfair.errors import RemoteProtocolError
from fedfair.plan.algorithms import AlgorithmName
from fedfair.plan.known_groups import group_count
from fedfair.plan.schema import Plan

BLOCK = 1 << 16

_UPDATE = Everything(
    "as the change of the model beside it, a function of all records of a batch: policy.min_collaborators, "
    "policy.mode, privacy.sample_level"
)

_FIELDS = (
    Field("weight", Number.WEIGHT, lone=Bits(0)),
    Field("new_weight", Number.COUNT, lone=Bits(0)),
    Field("threshold", Number.REAL, lone=_UPDATE),
    Field("curvature", Number.REAL, lone=_UPDATE),
)
"""The fields of one number that the header of a training sum may have, in the order of all headers."""


@functools.cache
def layout_with(names: frozenset[str], groups: int = 0) -> Header:
    """Return the header of the training sums that have these fields.

    Args:
        names: of the fields with one number.
        groups: of how many groups the sums tell the records and their losses; 0 for no fields of groups.
    """
    told = Everything("a group may be one record: policy.reveals must name group-losses, policy.algorithms")
    of_groups = (
        Field("group_counts", Number.COUNT, (groups,), lone=one_of(max(groups, 1))),
        Field("group_losses", Number.REAL, (groups,), lone=told),
    )
    return Header(*(field for field in _FIELDS if field.name in names), *(of_groups if groups else ()))


TRAINING_LAYOUT = layout_with(frozenset({"weight", "threshold"}))
"""The header of most training sums: a site's weight, and its change of the threshold times that."""

COUNTING_LAYOUT = layout_with(frozenset({"weight", "new_weight", "threshold"}))
"""The same under control variates: in between, a site's weight again where no sum has counted it before, or 0."""


@dataclass(frozen=True, slots=True)
class RoundSum:
    """The training sum of one algorithm.

    Attributes:
        further: the fields of its header beside those of `TRAINING_LAYOUT` and of groups.
        divisor: the field whose total divides the summed change of the model.
        divisors: the same in words, for more than one site.
        remedy: what helps where these do not add up to a positive number.
    """

    further: frozenset[str] = frozenset()
    divisor: str = "weight"
    divisors: str = "weights"
    remedy: str = "look at the collaborators' sample counts"


_WEIGHTED_MEAN = RoundSum()
_ROUND_SUMS: Mapping[AlgorithmName, RoundSum] = {
    "qffl": RoundSum(
        frozenset({"curvature"}), "curvature", "curvatures", "lower training.options.loss_power or learning_rate"
    ),
}
"""The sums that are divided by something else than the weights, or that carry further numbers."""


def round_sum(plan: Plan) -> RoundSum:
    """Return what a plan's training sums carry and are divided by."""
    return _ROUND_SUMS.get(plan.training.algorithm, _WEIGHTED_MEAN)


def training_layout(plan: Plan, classes: int) -> Header:
    """Return the header of a plan's training sums.

    Args:
        plan: the plan.
        classes: how many there are.
    """
    counting = {"new_weight"} if plan.training.control_variates else set()
    names = frozenset({"weight", "threshold"}) | round_sum(plan).further | counting
    return layout_with(names, group_count(plan, classes))


def check_mean(
    vector: NDArray[np.floating], total: NDArray[np.floating], weight: float, summed: RoundSum = _WEIGHTED_MEAN
) -> None:
    """Refuse a total whose mean cannot be added to `vector`, and change nothing.

    Args:
        vector: float array (d,), the global model.
        total: float array (d,), the weighted sum of the changes.
        weight: the sum of the weights.
        summed: what takes their place, for words.

    Raises:
        RemoteProtocolError: the weight is not a positive number, or the new model would not be finite.
    """
    if not (np.isfinite(weight) and weight > 0):
        raise RemoteProtocolError(
            f"the {summed.divisors} of this round add up to {weight}, which is not a positive number"
            + (f": {NO_RECORDS}" if weight == 0 else ""),
            summed.remedy,
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
