"""A state of a run on its way to a file or to another process, and back, bit for bit.

A snapshot is a value that JSON can hold and a few vectors that it should not. Decides the form, and checks it when
it comes back; where it is written, and how often, is its owner's business. Floats survive JSON exactly, because
Python writes the shortest text that reads back as the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from fedfair.aggregation.control_variates import CountedVariates, Variate
from fedfair.aggregation.evaluation_record import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.group_weights import GroupWeights
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.aggregation.server_optimizer import Moments
from fedfair.aggregation.training_sum import IterateMean
from fedfair.errors import LocalProtocolError
from fedfair.ids import RoundNumber
from fedfair.run.progress import Stage
from fedfair.run.state import OpenedSurvey, RunState, history_digest

LATEST_SUMS = "evaluated.latest"
EARLIER_SUMS = "evaluated.earlier"
BEST_SUMS = "evaluated.best"
FIRST_MOMENTS, SECOND_MOMENTS = "moments.first", "moments.second"
VARIATES = "variates"
LAST = "last"
SURVEY = "survey"

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class EvaluationSubject:
    """Which model a kept evaluation sum is about; the sum itself is a vector of the snapshot."""

    vector_sha256: _Digest
    threshold: float
    round: _Count
    contributors: _Count
    replaced: _Count = 0


@dataclass(frozen=True, slots=True)
class MomentWords:
    """The memory of a server optimizer but its vectors; attributes as in `Moments`."""

    threshold_first: float
    threshold_second: float
    first_power: float
    second_power: float


@dataclass(frozen=True, slots=True)
class VariateWords:
    """The counted control variates without V's vector; attributes as in `CountedVariates`."""

    threshold: float
    weight: float
    rounds: tuple[_Count, ...]


@dataclass(frozen=True, slots=True)
class GroupWords:
    """The adversary's weights of groups; attributes as in `GroupWeights`."""

    weights: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Words:
    """Everything of a state but its vectors; attributes as in `RunState`."""

    stage: str
    rounds_done: _Count
    threshold: float
    clip: float | None
    best_threshold: float
    moments: MomentWords | None
    mean_threshold: float
    mean_count: _Count
    history: tuple[Evaluation, ...]
    left_out: tuple[_Count, ...]
    final: Evaluation | None
    query: ExactQuery | None
    query_fault: str
    subjects: Mapping[str, EvaluationSubject]
    variates: VariateWords | None = None
    groups: GroupWords | None = None
    last_threshold: float = 0.0
    surveyed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A state without its Python types.

    Attributes:
        state: nested dicts, lists, strings and numbers (NaN and infinity among them), for `json.dumps`.
        vectors: arrays by name, not copied. `model` always; `mean`, `best`, `last`, `variates`, `moments.first`,
            `moments.second`, `scaling.mean`, `scaling.scale`, `evaluated.latest`, `evaluated.earlier`,
            `evaluated.best`, `survey` where the state has them.
    """

    state: dict[str, object]
    vectors: Mapping[str, NDArray[np.floating]]


_ADAPTER = TypeAdapter(_Words)


def known_sha256(state: RunState) -> dict[str, bytes]:
    """Return the SHA-256 (32 bytes) of the long vectors of a snapshot, by name; a state computes each once."""
    known = {"model": state.model.vector_sha256}
    if state.best is not None:
        known["best"] = state.best.vector_sha256
    if state.last is not None:
        known[LAST] = state.last.vector_sha256
    if state.mean is not None:
        known["mean"] = state.mean.vector_sha256
    if state.moments is not None:
        known |= zip((FIRST_MOMENTS, SECOND_MOMENTS), state.moments.vectors_sha256, strict=True)
    return known


def snapshot_of(state: RunState) -> RunSnapshot:
    """Return the snapshot of a state."""
    mean, best, moments = state.mean, state.best, state.moments
    vectors: dict[str, NDArray[np.floating]] = {"model": state.model.vector}
    if mean is not None:
        vectors["mean"] = mean.vector
    if best is not None:
        vectors["best"] = best.vector
    if state.last is not None:
        vectors[LAST] = state.last.vector
    counted = state.variates
    if counted is not None:
        vectors[VARIATES] = counted.total.vector
    if moments is not None:
        vectors |= {FIRST_MOMENTS: moments.first, SECOND_MOMENTS: moments.second}
    sums = {
        LATEST_SUMS: state.evaluated,
        EARLIER_SUMS: state.evaluated_earlier,
        BEST_SUMS: state.evaluated_best,
    }
    kept = {name: evaluated for name, evaluated in sums.items() if evaluated is not None}
    vectors |= {name: evaluated.header for name, evaluated in kept.items()}
    if state.scaling is not None:
        vectors |= {"scaling.mean": state.scaling.mean, "scaling.scale": state.scaling.scale}
    if state.survey is not None:
        vectors[SURVEY] = state.survey.header
    words = _Words(
        stage=state.stage.value,
        rounds_done=state.rounds_done,
        threshold=state.model.threshold,
        clip=state.clip,
        best_threshold=best.threshold if best else 0.0,
        moments=None if moments is None else _moment_words(moments),
        mean_threshold=mean.threshold if mean else 0.0,
        mean_count=mean.count if mean else 0,
        history=state.history,
        left_out=state.left_out,
        final=state.final,
        query=state.query,
        query_fault=state.query_fault,
        subjects={name: _subject_of(evaluated) for name, evaluated in kept.items()},
        variates=None if counted is None else _variate_words(counted),
        groups=None if state.groups is None else _group_words(state.groups),
        last_threshold=state.last.threshold if state.last else 0.0,
        surveyed=None if state.survey is None else state.survey.members,
    )
    packed: dict[str, object] = _ADAPTER.dump_python(words)
    return RunSnapshot(packed, vectors)


def state_of(snapshot: RunSnapshot, initial: RunState) -> RunState:
    """Return the state that a snapshot is of.

    Args:
        snapshot: of a state, also after a journey through JSON; its models and moments are not copied.
        initial: the state before the first sum of the same plan; it says how long vectors are, and which are kept.

    Raises:
        LocalProtocolError: the snapshot is damaged, of another version, or of another plan.
    """
    words, vectors = _words_of(snapshot.state), snapshot.vectors
    stage = next((stage for stage in Stage if stage.value == words.stage), None)
    like = initial.model.vector
    wanted = {"model"} | ({"mean"} if initial.mean else set()) | ({VARIATES} if initial.variates else set())
    fits = all(vectors[name].shape == like.shape for name in ("model", "mean", "best", LAST) if name in vectors)
    if initial.variates is not None and VARIATES in vectors:
        fits = fits and vectors[VARIATES].shape == initial.variates.total.vector.shape
    fits = fits and _fit(words.moments, vectors, initial.moments)
    same = (words.clip is None) == (initial.clip is None)
    same &= (words.variates is None) == (initial.variates is None)
    same &= (words.groups is None) == (initial.groups is None)
    if stage is None or not wanted <= vectors.keys() or not (fits and same):
        raise LocalProtocolError(
            f"a snapshot at stage {words.stage!r} with {sorted(vectors)} does not fit this training run",
            "it belongs to another plan; start the run again",
        )
    best = last = scaling = mean = None
    if LAST in vectors:
        last = GlobalModel(np.asarray(vectors[LAST], like.dtype), words.last_threshold)
    if "best" in vectors:
        best = GlobalModel(np.asarray(vectors["best"], like.dtype), words.best_threshold)
    if initial.mean is not None:
        mean = IterateMean(np.array(vectors["mean"], np.float64), words.mean_threshold, words.mean_count)
    if {"scaling.mean", "scaling.scale"} <= vectors.keys():
        found = (np.array(vectors[f"scaling.{name}"], np.float64) for name in ("mean", "scale"))
        scaling = FeatureScaling(*found)
    return RunState(
        stage=stage,
        model=GlobalModel(np.asarray(vectors["model"], like.dtype), words.threshold),
        rounds_done=RoundNumber(words.rounds_done),
        scaling=scaling,
        clip=words.clip,
        moments=_moments_of(words.moments, vectors, like.dtype),
        variates=_counted_variates(words, vectors),
        groups=None if words.groups is None else _group_weights(words.groups),
        mean=mean,
        best=best,
        last=last,
        history=words.history,
        history_digest=history_digest(words.history),
        left_out=tuple(RoundNumber(number) for number in words.left_out),
        final=words.final,
        evaluated=_evaluated_model(words, vectors, LATEST_SUMS),
        evaluated_earlier=_evaluated_model(words, vectors, EARLIER_SUMS),
        evaluated_best=_evaluated_model(words, vectors, BEST_SUMS),
        query=words.query,
        query_fault=words.query_fault,
        survey=_opened_survey(words, vectors),
    )


def _words_of(packed: Mapping[str, object]) -> _Words:
    try:
        return _ADAPTER.validate_python(packed)
    except ValidationError as error:
        raise LocalProtocolError(
            f"the snapshot of the training run cannot be read: {error.error_count()} entries are wrong",
            "it is damaged or of another version of fedfair; start the run again",
        ) from error


def _variate_words(counted: CountedVariates) -> VariateWords:
    return VariateWords(counted.total.threshold, counted.weight, counted.rounds)


def _counted_variates(words: _Words, vectors: Mapping[str, NDArray[np.floating]]) -> CountedVariates | None:
    told = words.variates
    if told is None:
        return None
    total = Variate(np.array(vectors[VARIATES], np.float64), told.threshold)
    return CountedVariates(total, told.weight, told.rounds)


def _group_words(groups: GroupWeights) -> GroupWords:
    return GroupWords(tuple(groups.weights.tolist()), tuple(groups.counts.tolist()))


def _group_weights(words: GroupWords) -> GroupWeights:
    return GroupWeights(np.array(words.weights, np.float64), np.array(words.counts, np.float64))


def _subject_of(evaluated: EvaluatedModel) -> EvaluationSubject:
    about = (int(evaluated.round), evaluated.contributors, evaluated.replaced)
    return EvaluationSubject(evaluated.vector_sha256.hex(), evaluated.threshold, *about)


def _moments_of(
    words: MomentWords | None, vectors: Mapping[str, NDArray[np.floating]], width: np.dtype[np.floating]
) -> Moments | None:
    if words is None:
        return None
    first, second = (np.asarray(vectors[name], width) for name in (FIRST_MOMENTS, SECOND_MOMENTS))
    powers = words.first_power, words.second_power
    return Moments(first, second, words.threshold_first, words.threshold_second, *powers)


def _fit(words: MomentWords | None, vectors: Mapping[str, NDArray[np.floating]], moments: Moments | None) -> bool:
    """Return whether a memory has the form of that of the first state."""
    if words is None or moments is None:
        return words is None and moments is None
    found = (vectors[name].shape for name in (FIRST_MOMENTS, SECOND_MOMENTS) if name in vectors)
    return tuple(found) == (moments.first.shape, moments.second.shape)


def _moment_words(moments: Moments) -> MomentWords:
    powers = moments.first_power, moments.second_power
    return MomentWords(moments.threshold_first, moments.threshold_second, *powers)


def _opened_survey(words: _Words, vectors: Mapping[str, NDArray[np.floating]]) -> OpenedSurvey | None:
    header = vectors.get(SURVEY)
    if words.surveyed is None or header is None:
        return None
    return OpenedSurvey(np.array(header, np.float64), words.surveyed)


def _evaluated_model(
    words: _Words, vectors: Mapping[str, NDArray[np.floating]], name: str
) -> EvaluatedModel | None:
    """Return one of the kept evaluation sums; None where there is none of that name."""
    subject, header = words.subjects.get(name), vectors.get(name)
    if subject is None or header is None:
        return None
    digest = bytes.fromhex(subject.vector_sha256)
    about = (digest, subject.threshold, subject.round, subject.contributors, subject.replaced)
    return EvaluatedModel(np.array(header), *about)
