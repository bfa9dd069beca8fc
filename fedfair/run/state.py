"""The state that a journal needs to restore a training run after a crash, bit for bit.

A snapshot is a value that JSON can hold and a few vectors that it should not. Decides the form and checks it when
it comes back; where it is written, and how often, is the aggregator's business. Floats survive JSON exactly,
because Python writes the shortest text that reads back as the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fedfair.aggregation.evaluation_record import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.errors import LocalProtocolError

LATEST_SUMS = "evaluated.latest"
EARLIER_SUMS = "evaluated.earlier"


@dataclass(frozen=True, slots=True)
class EvaluationSubject:
    """The model that a kept evaluation sum is about; the sum itself is a vector of the snapshot."""

    vector_sha256: str
    threshold: float
    round: int
    contributors: int
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything of a training run but its vectors.

    Attributes:
        stage: what it is waiting for.
        attempt: the attempt of the sum that is due.
        rounds_done: training rounds applied.
        threshold: the threshold of the global model.
        best_objective: the lowest objective so far; infinity before the first evaluation.
        best_threshold: the threshold of the best model; 0 where none is kept.
        mean_threshold: the mean of the thresholds; 0 where none is kept.
        mean_count: how many iterates are in the means.
        history: every evaluation so far.
        left_out: rounds whose evaluation could not be had.
        final: the evaluation of the output model, once there is one that is not the last of the history.
        query: how far an exact evaluation has come; None while there is none.
        query_fault: why it was given up; empty where it was not.
        subjects: what the kept evaluation sums are about, by the name of their vector.
        lost_rounds: attempts at training rounds that were given up.
    """

    stage: str
    attempt: int
    rounds_done: int
    threshold: float
    best_objective: float
    best_threshold: float
    mean_threshold: float
    mean_count: int
    history: tuple[Evaluation, ...]
    left_out: tuple[int, ...]
    final: Evaluation | None
    query: ExactQuery | None
    query_fault: str
    subjects: Mapping[str, EvaluationSubject]
    lost_rounds: int = 0


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A training run on its way to or from a journal.

    Attributes:
        state: nested dicts, lists, strings and numbers (NaN and infinity among them), for `json.dumps`.
        vectors: arrays by name, not copied: write them out before the training run applies anything else. `model`
            always; `mean`, `best`, `scaling.mean`, `scaling.scale`, `evaluated.latest`, `evaluated.earlier` where
            the training run has them.
    """

    state: dict[str, object]
    vectors: Mapping[str, NDArray[np.floating]]


_ADAPTER = TypeAdapter(RunState)


def state_to_json(state: RunState) -> dict[str, object]:
    """Return the state in the form of `RunSnapshot.state`."""
    packed: dict[str, object] = _ADAPTER.dump_python(state)
    return packed


def state_from_json(packed: Mapping[str, object]) -> RunState:
    """Return the state that `state_to_json` was given, also after a journey through JSON.

    Raises:
        LocalProtocolError: it has another form; the journal is damaged or of another version.
    """
    try:
        return _ADAPTER.validate_python(packed)
    except ValidationError as error:
        raise LocalProtocolError(
            f"the snapshot of the training run cannot be read: {error.error_count()} entries are wrong",
            "the journal is damaged or of another version of fedfair; start the run again",
        ) from error


def subject_of(evaluated: EvaluatedModel) -> EvaluationSubject:
    """Return which model an evaluation sum is about."""
    return EvaluationSubject(
        evaluated.vector_sha256.hex(),
        evaluated.threshold,
        int(evaluated.round),
        evaluated.contributors,
        evaluated.replaced,
    )


def evaluated_model(snapshot: RunSnapshot, state: RunState, name: str) -> EvaluatedModel | None:
    """Return one of the kept evaluation sums; None where there is none of that name."""
    subject, header = state.subjects.get(name), snapshot.vectors.get(name)
    if subject is None or header is None:
        return None
    digest = bytes.fromhex(subject.vector_sha256)
    about = (digest, subject.threshold, subject.round, subject.contributors, subject.replaced)
    return EvaluatedModel(np.array(header), *about)
