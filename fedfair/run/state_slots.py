"""One codec for the state of a run: each fact has one slot, and a slot has every form of its fact.

A slot (`terms.slot`) gives the bytes that the digest covers, a value for JSON, and the vectors that JSON should
not hold; and it makes the fact of the latter two again. Digest, snapshot, packed bytes, journal and a site's file
iterate over `SLOTS`; nothing else knows what a state consists of. Terms of a plan bring their slots. No torch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter

from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.reference import TEMPERATURES, References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, vector_sha256
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.training_sum import IterateMean
from fedfair.ids import RoundNumber
from fedfair.run.history_digest import canonical, evaluation_bytes
from fedfair.run.kept_sum import KeptSum
from fedfair.run.progress import stage_named
from fedfair.signed_message import labelled_message
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose
from fedfair.terms.slot import Count, FirstState, Slot, Vectors, fitting, same
from fedfair.terms.table import TERM_SLOTS
from fedfair.transcript.merkle import MerkleFrontier

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


# ------------------------------------------------------------------ plain values


def _packed_rounds(rounds: tuple[RoundNumber, ...]) -> bytes:
    return struct.pack(f"<{len(rounds)}Q", *rounds)


# ------------------------------------------------------------------ models and means


def _model_bytes(model: GlobalModel) -> bytes:
    return model.vector_sha256 + struct.pack("<d", model.threshold)


def _model(threshold: float, vectors: Vectors, initial: FirstState) -> GlobalModel:
    like = initial.model.vector
    return GlobalModel(np.asarray(fitting(vectors[""], like), like.dtype), threshold)


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
    count: Count


def _mean(fields: MeanFields, vectors: Vectors, initial: FirstState) -> IterateMean:
    vector = np.array(fitting(vectors[""], initial.model.vector), np.float64)
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


# ------------------------------------------------------------------ sums of evaluations


@dataclass(frozen=True, slots=True)
class EvaluationSubject:
    """Which model a kept evaluation sum is about; the sum itself is a vector of the snapshot."""

    vector_sha256: _Digest
    threshold: float
    round: Count
    contributors: Count
    replaced: Count = 0


def _evaluated_bytes(evaluated: EvaluatedModel) -> bytes:
    about = (evaluated.threshold, int(evaluated.round), evaluated.contributors, evaluated.replaced)
    return evaluated.header_sha256 + evaluated.vector_sha256 + struct.pack("<dQQQ", *about)


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
    known_sha256=lambda evaluated: {"": evaluated.header_sha256},
)


# ------------------------------------------------------------------ sums that are kept whole


def _kept_bytes(kept: KeptSum) -> bytes:
    members = [name.encode() for name in kept.members]
    return vector_sha256(kept.header) + labelled_message("fedfair/survey-members/1", members)


_KEPT: Slot[KeptSum, tuple[str, ...]] = Slot(
    digested=_kept_bytes,
    fields=lambda kept: kept.members,
    form=TypeAdapter(tuple[str, ...]),
    made=lambda members, vectors, _: KeptSum(np.array(vectors[""], np.float64), members),
    vectors=lambda kept: {"": kept.header},
)


# ------------------------------------------------------------------ references


@dataclass(frozen=True, slots=True)
class ReferenceFields:
    """References without their vectors; attributes as in `References`, None for an infinite loss."""

    sums: Count
    best_at: Count
    best_loss: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    temperature: Annotated[int, Field(ge=0, lt=len(TEMPERATURES))]


def _reference_fields(held: References) -> ReferenceFields:
    loss = held.best_loss if math.isfinite(held.best_loss) else None
    return ReferenceFields(held.sums, held.best_at, loss, held.temperature)


def _references(fields: ReferenceFields, vectors: Vectors, initial: FirstState) -> References:
    if initial.references is None:
        raise ValueError("references in a run without any")
    like = initial.references.present
    present, best = (np.array(fitting(vectors[name], like), np.float64) for name in ("present", "best"))
    loss = math.inf if fields.best_loss is None else fields.best_loss
    return References(present, best, fields.sums, fields.best_at, loss, fields.temperature)


_REFERENCES = Slot(
    digested=lambda held: held.digest,
    fields=_reference_fields,
    form=TypeAdapter(ReferenceFields),
    made=_references,
    vectors=lambda held: {"present": held.present, "best": held.best},
    known_sha256=lambda held: held.sha256,
    planned=True,
)


# ------------------------------------------------------------------ slices


@dataclass(frozen=True, slots=True)
class SliceFields:
    """A search for slices without its last total; attributes as in `SliceSearch`."""

    number: Count
    split: Count
    cuts: tuple[tuple[Count, ...], ...]
    asked: tuple[bool, ...]
    members: tuple[str, ...]
    fault: str


def _slice_fields(search: SliceSearch) -> SliceFields:
    return SliceFields(search.number, search.split, search.cuts, search.asked, search.members, search.fault)


def _slices_bytes(search: SliceSearch) -> bytes:
    # As of a query: why it was given up is for people.
    told = asdict(_slice_fields(search)) | {"fault": bool(search.fault)}
    return vector_sha256(search.header) + canonical(told)


def _search(fields: SliceFields, vectors: Vectors, _: FirstState) -> SliceSearch:
    about = (fields.number, fields.split, fields.cuts, fields.asked, fields.members)
    return SliceSearch(*about, np.array(vectors[""], np.float64), fields.fault)


_SLICES = Slot(
    digested=_slices_bytes,
    fields=_slice_fields,
    form=TypeAdapter(SliceFields),
    made=_search,
    vectors=lambda search: {"": search.header},
)


# ------------------------------------------------------------------ the transcript


@dataclass(frozen=True, slots=True)
class TreeFields:
    """A frontier with its peaks in hexadecimal; attributes as in `MerkleFrontier`."""

    size: Count
    peaks: tuple[_Digest, ...]


_TREE = Slot(
    digested=lambda tree: struct.pack("<Q", tree.size) + b"".join(tree.peaks),
    fields=lambda tree: TreeFields(tree.size, tuple(peak.hex() for peak in tree.peaks)),
    form=TypeAdapter(TreeFields),
    made=lambda fields, *_: MerkleFrontier(fields.size, tuple(map(bytes.fromhex, fields.peaks))),
)


# ------------------------------------------------------------------ all of them

_QUERY = TypeAdapter(ExactQuery)

_FIRST_TERMS = ("clip", "moments", "variates", "groups")
"""The slots of terms that stand amid the others in a digest; those of any further term stand at its end."""

_KEPT_FIRST, KEPT_AT_END = (
    tuple(purpose.value for purpose in Purpose if purpose.statistic.when is when)
    for when in (When.FIRST, When.AUDITED)
)

KEPT = (*_KEPT_FIRST, *KEPT_AT_END)
"""The slots of the sums that are kept whole: those on which no later sum depends."""

SLOTS: Mapping[str, Slot[Any, Any]] = {
    "stage": Slot(
        digested=lambda stage: stage.value.encode(),
        fields=lambda stage: stage.value,
        form=TypeAdapter(str),
        made=lambda value, *_: stage_named(value),
        planned=True,
    ),
    "rounds_done": Slot(
        digested=lambda rounds: struct.pack("<Q", rounds),
        fields=int,
        form=TypeAdapter(Count),
        made=lambda rounds, *_: RoundNumber(rounds),
        planned=True,
    ),
    "model": _model_slot(planned=True),
    "scaling": _SCALING,
    **{name: TERM_SLOTS[name] for name in _FIRST_TERMS},
    "mean": _MEAN,
    "best": _model_slot(planned=False),
    "history": Slot(
        # A digest of its own stands for it, which each evaluation extends: `RunState.history_digest`.
        digested=lambda _: b"",
        fields=same,
        form=TypeAdapter(tuple[Evaluation, ...]),
        made=same,
        planned=True,
    ),
    "left_out": Slot(
        digested=_packed_rounds,
        fields=same,
        form=TypeAdapter(tuple[Count, ...]),
        made=lambda rounds, *_: tuple(map(RoundNumber, rounds)),
        planned=True,
    ),
    "final": Slot(digested=evaluation_bytes, fields=same, form=TypeAdapter(Evaluation), made=same),
    "evaluated": _EVALUATED,
    "evaluated_earlier": _EVALUATED,
    "evaluated_best": _EVALUATED,
    "query": Slot(
        digested=lambda query: canonical(_QUERY.dump_python(query)), fields=same, form=_QUERY, made=same
    ),
    "query_fault": Slot(
        # Why it was given up is for people; that it was is a fact.
        digested=lambda fault: bytes([bool(fault)]),
        fields=same,
        form=TypeAdapter(str),
        made=same,
        planned=True,
    ),
    "last": _model_slot(planned=False),
    **dict.fromkeys(_KEPT_FIRST, _KEPT),
    **{name: slot for name, slot in TERM_SLOTS.items() if name not in _FIRST_TERMS},
    "references": _REFERENCES,
    "slices": _SLICES,
    "tree": _TREE,
    **dict.fromkeys(KEPT_AT_END, _KEPT),
}
"""Every fact of a `RunState`, in the order of its digest."""

RARE = (
    "last",
    *_KEPT_FIRST,
    *(name for name in TERM_SLOTS if name not in _FIRST_TERMS),
    "references",
    "slices",
    "tree",
    *KEPT_AT_END,
)
"""The slots at the end of the digest that few states have: a state without them has the digest of one that never
could have them."""
