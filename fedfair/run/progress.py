"""The progress of a training run: what it waits for, what one applied total did, and its result.

Values only; the rules are `training_run.py`'s. No torch: the aggregator imports this module.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedfair.aggregation.audit_findings import AuditFindings
from fedfair.aggregation.calibration import NOT_SAID, Calibration, FittedFigures, Uncalibrated
from fedfair.aggregation.column_statistics import StatisticsSummary
from fedfair.aggregation.decision_curve import DecisionCurve
from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Confusion, Evaluation
from fedfair.aggregation.ranking import ClassRanking
from fedfair.aggregation.reference import References
from fedfair.aggregation.reference_check import CheckedTenth
from fedfair.aggregation.site_means import SplitMeans
from fedfair.aggregation.slice_findings import SliceFindings
from fedfair.aggregation.survey import SurveySummary
from fedfair.conformal.prediction_sets import NOTHING_SAID, NoSets, PredictionSets
from fedfair.conformal.set_maker import SplitSets
from fedfair.ids import RoundNumber
from fedfair.run.reference_file import KeptReferences
from fedfair.run.which_model import WhichModel
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose
from fedfair.transcript.leaf import AddedLeaves


class FinalStage(enum.Enum):
    """The stages of a run that no statistic has a name for; the value is the word in a snapshot."""

    OUTPUT_EVALUATION = "output-evaluation"
    """The evaluation of an output model that is another one than the last."""

    FINISHED = "finished"


Stage = Purpose | FinalStage
"""The stage of a training run: the statistic that it sums next, or one of the last two."""


@functools.cache
def purpose_at(when: When) -> Purpose:
    """Return the first statistic that is summed at a moment of a run."""
    return next(purpose for purpose in Purpose if purpose.statistic.when is when)


def is_at(stage: Stage, *moments: When) -> bool:
    """Return whether a stage is that of a statistic which is summed at one of these moments of a run."""
    return isinstance(stage, Purpose) and stage.statistic.when in moments


def summed_at(stage: Stage) -> Purpose | None:
    """Return the statistic that is summed at a stage; None at the end of a run."""
    if isinstance(stage, Purpose):
        return stage
    return purpose_at(When.EVERY) if stage is FinalStage.OUTPUT_EVALUATION else None


def stage_named(word: str) -> Stage:
    """Return the stage of a word, as a snapshot has it.

    Raises:
        ValueError: no stage has it.
    """
    return next((purpose for purpose in Purpose if purpose.value == word), None) or FinalStage(word)


@dataclass(frozen=True, slots=True)
class Progress:
    """The effect of applying one total.

    Attributes:
        purpose: which kind of sum it was.
        round: training rounds done now.
        threshold: after an evaluation, that of the evaluated model, as the history has it; else the threshold now.
        contributors: how many took part in the sum.
        evaluation: what an evaluation sum proved; None after the other kinds.
        evaluated: the sums behind it, and which model they are of, whichever is the global model by now.
        is_best: the evaluated model has the lowest objective so far.
        model_changed: the global model or threshold is another one now and must be broadcast again.
        replaced: how many values sites had to replace because they could not be summed.
        replacing: how many sites had such values.
        added: what the transcript of the run has more by this sum; None where that is not known.
    """

    purpose: Purpose
    round: RoundNumber
    threshold: float
    contributors: int
    evaluation: Evaluation | None
    is_best: bool
    model_changed: bool
    replaced: int = 0
    replacing: int = 0
    evaluated: EvaluatedModel | None = None
    added: AddedLeaves | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a training run.

    Attributes:
        rounds: training rounds done.
        threshold: the threshold of the output model.
        evaluation: the evaluation of the output model; None before the first one.
        confusion: the matrix of each split of that evaluation; nothing where there are too many classes.
        history: every evaluation on the way, from round 0; of very many, evenly spaced ones.
        finished: False where the run was stopped on the way.
        left_out: the rounds whose evaluation was due and could not be had.
        query_fault: why an exact evaluation was given up; empty where none was.
        site_means: each site's own means of that evaluation, by split, for the splits that may be reported;
            nothing unless the plan publishes them.
        rankings: how well the scores of each class rank and fit in that evaluation, by split; nothing unless the
            plan asks for it.
        lost_rounds: attempts at training rounds that were given up; noise counts what they would have opened.
        survey: what the training records of all sites look like; None without a survey, and before it.
        statistics: of columns; None where the plan asks for none, and before their sum.
        which: which model all of this is of; None where unstated.
        vector_sha256: 32 bytes, of that model; empty where unstated.
        hedged: the mean loss of the evaluated model mixed with the guess, by split (`fairness.chance`); nothing
            where losses are no nats of whole outcomes.
        calibration: of the evaluated model, or why it has none; of a saved model, what its file says.
        calibrated: what that does to the records of each split, by class; nothing where there is none.
        references: that judged the records; None where none have.
        decision_curves: the net benefit of acting by the scores of that evaluation, by split; nothing unless the
            plan asks for scores of two classes.
        slices: the slices that lie highest; None where none were looked for, and before their last sum.
        slices_fault: why the search for them was given up; empty where it was not.
        reference_check: how often came true what they said, by split; nothing where no class was judged.
        sets: of the evaluated model, or why it has none; of a saved model, what its file says.
        split_sets: what they are of the records of each split; nothing where there are none.
        kept_references: the references as a later run may take them; None where none are trained.
        audit: how well losses of the output model give away who was trained on; None without an audit.
    """

    rounds: RoundNumber
    threshold: float
    evaluation: Evaluation | None
    confusion: Mapping[str, Confusion]
    history: tuple[Evaluation, ...]
    finished: bool
    left_out: tuple[RoundNumber, ...] = ()
    query_fault: str = ""
    site_means: Mapping[str, Mapping[str, SplitMeans]] = field(default_factory=dict)
    lost_rounds: int = 0
    rankings: Mapping[str, tuple[ClassRanking, ...]] = field(default_factory=dict)
    survey: SurveySummary | None = None
    which: WhichModel | None = None
    vector_sha256: bytes = b""
    hedged: Mapping[str, float] = field(default_factory=dict)
    calibration: Calibration | Uncalibrated = NOT_SAID
    calibrated: Mapping[str, Mapping[int, FittedFigures]] = field(default_factory=dict)
    references: References | None = None
    decision_curves: Mapping[str, DecisionCurve] = field(default_factory=dict)
    slices: SliceFindings | None = None
    slices_fault: str = ""
    reference_check: Mapping[str, tuple[CheckedTenth, ...]] = field(default_factory=dict)
    kept_references: KeptReferences | None = None
    statistics: StatisticsSummary | None = None
    audit: AuditFindings | None = None
    sets: PredictionSets | NoSets = NOTHING_SAID
    split_sets: Mapping[str, SplitSets] = field(default_factory=dict)
