"""One codec for the state of a run: each fact has one slot, and a slot has every form of its fact.

A slot gives the bytes that the digest covers, a value for JSON, and the vectors that JSON should not hold; and it
makes the fact of the latter two again. Digest, snapshot, packed bytes, journal and a site's file iterate over
`SLOTS`; nothing else knows what a state consists of. A term of the plan that keeps something in the state adds an
attribute to `RunState` and its slot here. No torch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from fedfair.aggregation.control_variates import CountedVariates, Variate
from fedfair.aggregation.evaluation_record import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.group_weights import GroupWeights
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, vector_sha256
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.server_optimizer import Moments
from fedfair.aggregation.training_sum import IterateMean
from fedfair.ids import RoundNumber
from fedfair.run.history_digest import canonical, evaluation_bytes
from fedfair.run.opened_survey import OpenedSurvey
from fedfair.run.progress import Stage
from fedfair.signed_message import labelled_message

_Fact = TypeVar("_Fact")
_Fields = TypeVar("_Fields")
Vectors = Mapping[str, NDArray[np.floating]]
"""Vectors of one slot by their names in it; the only vector of a slot is called ""."""

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FirstState(Protocol):
    """The part of the state before the first sum that slots read: how long vectors are, and which are kept."""

    @property
    def model(self) -> GlobalModel:
        """The model."""

    @property
    def moments(self) -> Moments | None:
        """The memory of the server optimizer."""

    @property
    def variates(self) -> CountedVariates | None:
        """The counted control variates."""


def _no_vectors(_: object) -> Vectors:
    return {}


def _none_known(_: object) -> Mapping[str, bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class Slot(Generic[_Fact, _Fields]):
    """One fact of a state in all its forms.

    Attributes:
        digested: the bytes that stand for the fact in the digest of the state.
        fields: what of it goes into JSON, valid for `form`.
        form: checks such fields, and names their types.
        made: makes the fact of its fields and vectors again, given the state before the first sum of its plan;
            raises KeyError or ValueError where they do not fit that state.
        vectors: its vectors, not copied.
        known_sha256: the SHA-256 (32 bytes) of those vectors whose digest is computed once and kept.
        absent: the bytes that stand for no such fact.
        planned: whether the plan alone decides if there is such a fact, from the first state to the last.
    """

    digested: Callable[[_Fact], bytes]
    fields: Callable[[_Fact], _Fields]
    form: TypeAdapter[_Fields]
    made: Callable[[_Fields, Vectors, FirstState], _Fact]
    vectors: Callable[[_Fact], Vectors] = _no_vectors
    known_sha256: Callable[[_Fact], Mapping[str, bytes]] = _none_known
    absent: bytes = b""
    planned: bool = False


# ------------------------------------------------------------------ plain values


def _same(value: Any, *_: object) -> Any:  # noqa: ANN401 - of any type
    return value


def _packed_rounds(rounds: tuple[RoundNumber, ...]) -> bytes:
    return struct.pack(f"<{len(rounds)}Q", *rounds)


# ------------------------------------------------------------------ models and means


def _model_bytes(model: GlobalModel) -> bytes:
    return model.vector_sha256 + struct.pack("<d", model.threshold)


def _model(threshold: float, vectors: Vectors, initial: FirstState) -> GlobalModel:
    like = initial.model.vector
    return GlobalModel(np.asarray(_fitting(vectors[""], like), like.dtype), threshold)


def _fitting(vector: NDArray[np.floating], like: NDArray[np.floating]) -> NDArray[np.floating]:
    if vector.shape != like.shape:
        raise ValueError(f"a vector of {vector.size} numbers in place of {like.size}")
    return vector


def _model_slot(*, planned: bool) -> Slot[GlobalModel, float]:
    return Slot(
        digested=_model_bytes,
        fields=lambda model: model.threshold,
        form=TypeAdapter(float),
        made=_model,
        vectors=lambda model: {"": model.vector},
        known_sha256=lambda model: {"": model.vector_sha256},
        planned=planned,
    )


@dataclass(frozen=True, slots=True)
class MeanFields:
    """A mean of iterates without its vector; attributes as in `IterateMean`."""

    threshold: float
    count: _Count


def _mean(fields: MeanFields, vectors: Vectors, initial: FirstState) -> IterateMean:
    vector = np.array(_fitting(vectors[""], initial.model.vector), np.float64)
    return IterateMean(vector, fields.threshold, fields.count)


_MEAN = Slot(
    digested=lambda mean: mean.vector_sha256 + struct.pack("<dQ", mean.threshold, mean.count),
    fields=lambda mean: MeanFields(mean.threshold, mean.count),
    form=TypeAdapter(MeanFields),
    made=_mean,
    vectors=lambda mean: {"": mean.vector},
    known_sha256=lambda mean: {"": mean.vector_sha256},
    planned=True,
)


# ------------------------------------------------------------------ the scaling of features


def _scaling(_: bool, vectors: Vectors, __: FirstState) -> FeatureScaling:
    return FeatureScaling(np.array(vectors["mean"], np.float64), np.array(vectors["scale"], np.float64))


_SCALING = Slot(
    digested=scaling_digest,
    fields=lambda _: True,
    form=TypeAdapter(bool),
    made=_scaling,
    vectors=lambda scaling: {"mean": scaling.mean, "scale": scaling.scale},
    absent=scaling_digest(None),
)


# ------------------------------------------------------------------ the server optimizer


@dataclass(frozen=True, slots=True)
class MomentFields:
    """The memory of a server optimizer but its vectors; attributes as in `Moments`."""

    threshold_first: float
    threshold_second: float
    first_power: float
    second_power: float


def _moments_bytes(moments: Moments) -> bytes:
    thresholds = moments.threshold_first, moments.threshold_second
    return b"".join(moments.vectors_sha256) + struct.pack(
        "<4d", *thresholds, moments.first_power, moments.second_power
    )


def _moment_fields(moments: Moments) -> MomentFields:
    powers = moments.first_power, moments.second_power
    return MomentFields(moments.threshold_first, moments.threshold_second, *powers)


def _moments(fields: MomentFields, vectors: Vectors, initial: FirstState) -> Moments:
    like, width = initial.moments, initial.model.vector.dtype
    if like is None:
        raise ValueError("moments in a run without any")
    first = np.asarray(_fitting(vectors["first"], like.first), width)
    second = np.asarray(_fitting(vectors["second"], like.second), width)
    powers = fields.first_power, fields.second_power
    return Moments(first, second, fields.threshold_first, fields.threshold_second, *powers)


_MOMENTS = Slot(
    digested=_moments_bytes,
    fields=_moment_fields,
    form=TypeAdapter(MomentFields),
    made=_moments,
    vectors=lambda moments: {"first": moments.first, "second": moments.second},
    known_sha256=lambda moments: dict(zip(("first", "second"), moments.vectors_sha256, strict=True)),
    planned=True,
)


# ------------------------------------------------------------------ control variates


@dataclass(frozen=True, slots=True)
class VariateFields:
    """The counted control variates without V's vector; attributes as in `CountedVariates`."""

    threshold: float
    weight: float
    rounds: tuple[_Count, ...]


def _variates_bytes(counted: CountedVariates) -> bytes:
    numbers = struct.pack("<dd", counted.total.threshold, counted.weight)
    rounds = struct.pack(f"<{len(counted.rounds)}Q", *counted.rounds)
    return vector_sha256(counted.total.vector) + numbers + rounds


def _variates(fields: VariateFields, vectors: Vectors, initial: FirstState) -> CountedVariates:
    if initial.variates is None:
        raise ValueError("control variates in a run without any")
    vector = np.array(_fitting(vectors[""], initial.variates.total.vector), np.float64)
    return CountedVariates(Variate(vector, fields.threshold), fields.weight, fields.rounds)


_VARIATES = Slot(
    digested=_variates_bytes,
    fields=lambda counted: VariateFields(counted.total.threshold, counted.weight, counted.rounds),
    form=TypeAdapter(VariateFields),
    made=_variates,
    vectors=lambda counted: {"": counted.total.vector},
    planned=True,
)


# ------------------------------------------------------------------ the weights of groups


@dataclass(frozen=True, slots=True)
class GroupFields:
    """The adversary's weights of groups; attributes as in `GroupWeights`."""

    weights: tuple[float, ...]
    counts: tuple[float, ...]


_GROUPS = Slot(
    digested=lambda groups: vector_sha256(groups.weights) + vector_sha256(groups.counts),
    fields=lambda groups: GroupFields(tuple(groups.weights.tolist()), tuple(groups.counts.tolist())),
    form=TypeAdapter(GroupFields),
    made=lambda fields, *_: GroupWeights(
        np.array(fields.weights, np.float64), np.array(fields.counts, np.float64)
    ),
    planned=True,
)


# ------------------------------------------------------------------ sums of evaluations


@dataclass(frozen=True, slots=True)
class EvaluationSubject:
    """Which model a kept evaluation sum is about; the sum itself is a vector of the snapshot."""

    vector_sha256: _Digest
    threshold: float
    round: _Count
    contributors: _Count
    replaced: _Count = 0


def _evaluated_bytes(evaluated: EvaluatedModel) -> bytes:
    about = (evaluated.threshold, int(evaluated.round), evaluated.contributors, evaluated.replaced)
    return vector_sha256(evaluated.header) + evaluated.vector_sha256 + struct.pack("<dQQQ", *about)


def _subject(evaluated: EvaluatedModel) -> EvaluationSubject:
    about = (int(evaluated.round), evaluated.contributors, evaluated.replaced)
    return EvaluationSubject(evaluated.vector_sha256.hex(), evaluated.threshold, *about)


def _evaluated(subject: EvaluationSubject, vectors: Vectors, _: FirstState) -> EvaluatedModel:
    about = (subject.threshold, subject.round, subject.contributors, subject.replaced)
    return EvaluatedModel(np.array(vectors[""]), bytes.fromhex(subject.vector_sha256), *about)


_EVALUATED = Slot(
    digested=_evaluated_bytes,
    fields=_subject,
    form=TypeAdapter(EvaluationSubject),
    made=_evaluated,
    vectors=lambda evaluated: {"": evaluated.header},
)


# ------------------------------------------------------------------ the survey


def _survey_bytes(survey: OpenedSurvey) -> bytes:
    members = [name.encode() for name in survey.members]
    return vector_sha256(survey.header) + labelled_message("fedfair/survey-members/1", members)


_SURVEY: Slot[OpenedSurvey, tuple[str, ...]] = Slot(
    digested=_survey_bytes,
    fields=lambda survey: survey.members,
    form=TypeAdapter(tuple[str, ...]),
    made=lambda members, vectors, _: OpenedSurvey(np.array(vectors[""], np.float64), members),
    vectors=lambda survey: {"": survey.header},
)


# ------------------------------------------------------------------ all of them

_QUERY = TypeAdapter(ExactQuery)

SLOTS: Mapping[str, Slot[Any, Any]] = {
    "stage": Slot(
        digested=lambda stage: stage.value.encode(),
        fields=lambda stage: stage.value,
        form=TypeAdapter(str),
        made=lambda value, *_: Stage(value),
        planned=True,
    ),
    "rounds_done": Slot(
        digested=lambda rounds: struct.pack("<Q", rounds),
        fields=int,
        form=TypeAdapter(_Count),
        made=lambda rounds, *_: RoundNumber(rounds),
        planned=True,
    ),
    "model": _model_slot(planned=True),
    "scaling": _SCALING,
    "clip": Slot(
        digested=lambda clip: struct.pack("<d", clip),
        fields=_same,
        form=TypeAdapter(float),
        made=_same,
        planned=True,
    ),
    "moments": _MOMENTS,
    "variates": _VARIATES,
    "groups": _GROUPS,
    "mean": _MEAN,
    "best": _model_slot(planned=False),
    "history": Slot(
        # A digest of its own stands for it, which each evaluation extends: `RunState.history_digest`.
        digested=lambda _: b"",
        fields=_same,
        form=TypeAdapter(tuple[Evaluation, ...]),
        made=_same,
        planned=True,
    ),
    "left_out": Slot(
        digested=_packed_rounds,
        fields=_same,
        form=TypeAdapter(tuple[_Count, ...]),
        made=lambda rounds, *_: tuple(map(RoundNumber, rounds)),
        planned=True,
    ),
    "final": Slot(digested=evaluation_bytes, fields=_same, form=TypeAdapter(Evaluation), made=_same),
    "evaluated": _EVALUATED,
    "evaluated_earlier": _EVALUATED,
    "evaluated_best": _EVALUATED,
    "query": Slot(
        digested=lambda query: canonical(_QUERY.dump_python(query)), fields=_same, form=_QUERY, made=_same
    ),
    "query_fault": Slot(
        # Why it was given up is for people; that it was is a fact.
        digested=lambda fault: bytes([bool(fault)]),
        fields=_same,
        form=TypeAdapter(str),
        made=_same,
        planned=True,
    ),
    "last": _model_slot(planned=False),
    "survey": _SURVEY,
}
"""Every attribute of `RunState`, in the order of its digest."""

RARE = ("last", "survey")
"""The slots at the end of the digest that few states have: a state without them has the digest of one that never
could have them."""
