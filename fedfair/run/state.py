"""The state of a run: an immutable value that begins in the approved plan and moves only by opened sums.

`rules.RunRules` has the rules; this module has the facts and their digest. The aggregator, every site and a
simulation hold the same state, so the digest is what they compare. A digest covers everything that a later request
or the outcome of the run depends on. It does not cover words: why an exact evaluation was given up is for people.
Numbers are hashed by their bits, so two machines agree exactly where they hold the same numbers. No torch.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedfair.aggregation.control_variates import CountedVariates
from fedfair.aggregation.evaluation_record import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.group_weights import GroupWeights
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, vector_sha256
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.server_optimizer import Moments
from fedfair.aggregation.training_sum import IterateMean
from fedfair.ids import RoundNumber
from fedfair.run.progress import Stage
from fedfair.signed_message import labelled_message

LABEL = "fedfair/run-state/2"
NO_HISTORY = bytes(32)
"""The digest of a history without an evaluation."""


@dataclass(frozen=True, slots=True)
class OpenedSurvey:
    """The survey of a run as it was opened.

    Attributes:
        header: float64 array, as `aggregation.survey` lays it out.
        members: whose training records it is of, sorted.
    """

    header: NDArray[np.float64]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything that a run has come to.

    Attributes:
        stage: what is summed next.
        model: the global model and its threshold; no array of a state is ever changed.
        rounds_done: training rounds that are behind it.
        scaling: the feature scaling; None where the plan wants none, and before its sum.
        clip: the largest change of one parameter that the next masked sum takes unclipped; None where nothing is
            clipped.
        moments: the memory of the server optimizer; None where it has none.
        variates: what is counted of control variates, or of thresholds that sites keep to themselves; None where
            the plan has neither.
        groups: the adversary's weights of groups; None where the plan's sums tell of none.
        mean: the mean of the iterates; None where the plan keeps none.
        best: the model with the lowest objective so far; None before the first evaluation.
        last: the model of the last round, from which an extended run goes on, where the output model has taken its
            place; None where it has not.
        history: every evaluation so far, from round 0; of very many, evenly spaced ones (`history.py`).
        history_digest: 32 bytes, of the history.
        left_out: rounds whose evaluation was due and could not be had.
        final: the evaluation of the output model, once there is one that is not the last of the history.
        evaluated: the sums of the latest evaluation, and what they are about; None before it.
        evaluated_earlier: those of the one before, which a mean of one model may turn out to be; None where no
            mean is kept.
        evaluated_best: those of the best model; None before the first evaluation.
        query: how far an exact evaluation has come; None while there is none.
        query_fault: why it was given up; empty where it was not.
        survey: the opened survey; None without one, and before it.
    """

    stage: Stage
    model: GlobalModel
    rounds_done: RoundNumber = RoundNumber(0)  # noqa: RUF009 - an int
    scaling: FeatureScaling | None = None
    clip: float | None = None
    moments: Moments | None = None
    variates: CountedVariates | None = None
    groups: GroupWeights | None = None
    mean: IterateMean | None = None
    best: GlobalModel | None = None
    last: GlobalModel | None = None
    history: tuple[Evaluation, ...] = ()
    history_digest: bytes = NO_HISTORY
    left_out: tuple[RoundNumber, ...] = ()
    final: Evaluation | None = None
    evaluated: EvaluatedModel | None = None
    evaluated_earlier: EvaluatedModel | None = None
    evaluated_best: EvaluatedModel | None = None
    query: ExactQuery | None = None
    query_fault: str = ""
    survey: OpenedSurvey | None = None

    @property
    def latest(self) -> Evaluation:
        """Return the evaluation of the global model, at the end of training; there must have been one."""
        return self.final or self.history[-1]

    def digest(self, plan_digest: bytes) -> bytes:
        """Return 32 bytes that two states share exactly where they are the same state of the same plan.

        Args:
            plan_digest: of the plan that is run, 32 bytes.
        """
        return hashlib.sha256(labelled_message(LABEL, self._parts(plan_digest))).digest()

    def _parts(self, plan_digest: bytes) -> list[bytes]:
        mean, best, sums = self.mean, self.best, (self.evaluated, self.evaluated_earlier, self.evaluated_best)
        return [
            plan_digest,
            self.stage.value.encode(),
            struct.pack("<Q", self.rounds_done),
            _model_bytes(self.model),
            scaling_digest(self.scaling),
            b"" if self.clip is None else struct.pack("<d", self.clip),
            b"" if self.moments is None else _moments_bytes(self.moments),
            b"" if self.variates is None else _variates_bytes(self.variates),
            b"" if self.groups is None else _groups_bytes(self.groups),
            b"" if mean is None else _mean_bytes(mean),
            b"" if best is None else _model_bytes(best),
            self.history_digest,
            struct.pack(f"<{len(self.left_out)}Q", *self.left_out),
            b"" if self.final is None else evaluation_bytes(self.final),
            *(b"" if kept is None else _evaluated_bytes(kept) for kept in sums),
            b"" if self.query is None else _canonical(_QUERY.dump_python(self.query)),
            bytes([bool(self.query_fault)]),
            *self._ending(),
        ]

    def _ending(self) -> list[bytes]:
        """Return what few states have; the digest of a state without any of it does not depend on it."""
        last, survey = self.last, self.survey
        parts = [b"" if last is None else _model_bytes(last), b"" if survey is None else _survey_bytes(survey)]
        while parts and not parts[-1]:
            parts.pop()
        return parts


_QUERY = TypeAdapter(ExactQuery)
_EVALUATION = TypeAdapter(Evaluation)


def extended_history(digest: bytes, evaluation: Evaluation) -> bytes:
    """Return the digest of a history with one more evaluation, from the digest without it."""
    fields = [digest, evaluation_bytes(evaluation)]
    return hashlib.sha256(labelled_message("fedfair/run-history/1", fields)).digest()


def history_digest(history: tuple[Evaluation, ...]) -> bytes:
    """Return the digest of a whole history."""
    digest = NO_HISTORY
    for evaluation in history:
        digest = extended_history(digest, evaluation)
    return digest


def evaluation_bytes(evaluation: Evaluation) -> bytes:
    """Return the bytes that stand for an evaluation."""
    return _canonical(_EVALUATION.dump_python(evaluation))


def _canonical(value: object) -> bytes:
    # Python writes the shortest text that reads back as the same number, so equal texts are equal numbers.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_listed).encode()


def _listed(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no canonical form")


def _model_bytes(model: GlobalModel) -> bytes:
    return model.vector_sha256 + struct.pack("<d", model.threshold)


def _moments_bytes(moments: Moments) -> bytes:
    thresholds = moments.threshold_first, moments.threshold_second
    return b"".join(moments.vectors_sha256) + struct.pack(
        "<4d", *thresholds, moments.first_power, moments.second_power
    )


def _variates_bytes(counted: CountedVariates) -> bytes:
    numbers = struct.pack("<dd", counted.total.threshold, counted.weight)
    rounds = struct.pack(f"<{len(counted.rounds)}Q", *counted.rounds)
    return vector_sha256(counted.total.vector) + numbers + rounds


def _groups_bytes(groups: GroupWeights) -> bytes:
    return vector_sha256(groups.weights) + vector_sha256(groups.counts)


def _mean_bytes(mean: IterateMean) -> bytes:
    return mean.vector_sha256 + struct.pack("<dQ", mean.threshold, mean.count)


def _survey_bytes(survey: OpenedSurvey) -> bytes:
    return vector_sha256(survey.header) + labelled_message(
        "fedfair/survey-members/1", [name.encode() for name in survey.members]
    )


def _evaluated_bytes(evaluated: EvaluatedModel) -> bytes:
    about = (evaluated.threshold, int(evaluated.round), evaluated.contributors, evaluated.replaced)
    return vector_sha256(evaluated.header) + evaluated.vector_sha256 + struct.pack("<dQQQ", *about)
