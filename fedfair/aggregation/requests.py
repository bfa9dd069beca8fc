"""The requests and replies between server and collaborators, in the form both sides of the mathematics use.

The server broadcasts a `GlobalModel` (and, once, a `FeatureScaling`) and asks for a sum with a `SumRequest`;
`SumShapes` derives the length of every possible answer from the plan alone, so that a length never tells
anything about a site. Bytes and signatures are the wire's business. No torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import HistogramSpec
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import (
    planned_loss_range,
    predicts_classes,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.statistics.table import Purpose

_HASHED_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class GlobalModel:
    """The pair (theta, c) that a round starts from. Nobody changes it: a round makes another one.

    Attributes:
        vector: array (d,) in the layout's width.
        threshold: the shared threshold (c in the paper), in units of the loss.
    """

    vector: NDArray[np.floating]
    threshold: float

    @cached_property
    def vector_sha256(self) -> bytes:
        """Return the SHA-256 (32 bytes) of the vector: its values in order, little-endian, in its width."""
        return vector_sha256(self.vector)

    def move_to(self, vector: NDArray[np.floating]) -> None:
        """Hold the same vector in other memory: who holds this model notices nothing.

        Args:
            vector: equal to `vector`, to the bit.
        """
        known = self.vector_sha256  # While it is where reading it costs nothing.
        object.__setattr__(self, "vector", vector)
        self.__dict__["vector_sha256"] = known


def vector_sha256(vector: NDArray[np.floating]) -> bytes:
    """Return the SHA-256 (32 bytes) of a flat model: its values in order, little-endian, in the vector's width."""
    if vector.ndim == 1 and not vector.flags.c_contiguous:
        # One number that is repeated, as before the first round: no copy as long as the model.
        digest = hashlib.sha256()
        for start in range(0, vector.size, _HASHED_AT_ONCE):
            piece = vector[start : start + _HASHED_AT_ONCE]
            digest.update(np.ascontiguousarray(piece, vector.dtype.newbyteorder("<")).data)
        return digest.digest()
    little_endian = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return hashlib.sha256(little_endian.data).digest()


@dataclass(frozen=True, slots=True)
class FeatureScaling:
    """Means and scales over all training records; a value x becomes (x - mean) / scale.

    Attributes:
        mean: float64 array (numeric columns,); where a number is predicted, the target's is the last one more.
        scale: float64 array of as many, positive; at least 1 for a column that does not seem to vary.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SumRequest:
    """One sum that all sites are asked to add to.

    Attributes:
        purpose: why it is summed.
        round: the training round, from 1; with any other purpose, the number of rounds done so far.
        attempt: 1, or more after a sum that lost its quorum; part of what seeds the local draws.
        spec: the shape of every contribution.
        query: what an exact evaluation asks; None with any other purpose.
        terms: the states of the plan's terms that sites read in such a sum, by slot (`terms.table`).
        loss_unit: how many natural units one loss of the local steps has (`target_scaling.py`).
        part: which of the sums of the references, from 1; 0 with any other purpose.
    """

    purpose: Purpose
    round: RoundNumber
    attempt: int
    spec: SumSpec
    query: QueryStep | None = None
    terms: Mapping[str, Any] = field(default_factory=dict, hash=False)
    loss_unit: float = 1.0
    part: int = 0

    @property
    def step(self) -> int:
        """Return which sum of an exact evaluation, or of the references, it is, from 1; else 0."""
        return self.part if self.query is None else self.query.number

    @property
    def drawn_in(self) -> RoundNumber:
        """Return the number by which batches are drawn: of the round, or of the sum of the references."""
        return RoundNumber(self.part or self.round)

    @property
    def asked(self) -> QueryStep:
        """Return what an exact evaluation asks.

        Raises:
            LocalProtocolError: it is no exact evaluation.
        """
        if self.query is None:
            raise LocalProtocolError(f"a request for {self.purpose.value} asks no query")
        return self.query

    @property
    def place(self) -> tuple[Purpose, RoundNumber, int]:
        """Return what all attempts have in common: purpose, round and step."""
        return self.purpose, self.round, self.step


def histogram_spec(plan: Plan, schema: FeatureSchema) -> HistogramSpec:
    """Return the loss histogram that the plan declares."""
    return HistogramSpec(plan.evaluation.bins, planned_loss_range(plan, schema.classes), predicts_classes(plan))


def check_totals(totals: Totals, request: SumRequest) -> None:
    """Check that a total has the shape of its sum.

    Raises:
        LocalProtocolError: it has another one.
        RemoteProtocolError: its header holds a NaN or an infinity.
    """
    spec = request.spec
    if totals.header.shape != (spec.header_length,) or totals.body.shape != (spec.body_length,):
        raise LocalProtocolError(
            f"{request.purpose.value} totals have shapes {totals.header.shape} and {totals.body.shape}, "
            f"the sum has ({spec.header_length},) and ({spec.body_length},)"
        )
    if not np.isfinite(totals.header).all():
        raise RemoteProtocolError(f"the header of the {request.purpose.value} totals holds a NaN or an infinity")
