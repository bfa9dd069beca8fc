"""The result of a run, built as the stable contract `fedfair/result/1`, for simulations and deployments alike.

A simulation knows every loss, so its figures are exact and each bound is one number twice; a deployment knows
sums, so its worst-group risks are the middles of intervals, which it states. Sums under noise prove nothing: what
they give are estimates, with intervals that hold with 95 % under the noise. What is not a number becomes null,
and so does whatever would tell of a group of fewer people than the plan's `evaluation.min_group`. No torch: the
aggregator writes this file. The contract itself is `fedfair.results.document`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

import numpy as np

from fedfair.aggregation.cvar_bounds import GroupBound, Interval, SplitSummary
from fedfair.aggregation.distributed_dp import DistributedDp
from fedfair.aggregation.evaluation_sums import confusion_matrix
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.loss_metrics import Metrics, metrics_of
from fedfair.aggregation.masking_terms import guarantee
from fedfair.aggregation.ranking import ClassRanking
from fedfair.errors import LocalProtocolError, PlanError
from fedfair.fairness.cvar import rcvar, tail_count
from fedfair.fairness.metrics import RiskSummary, summarise_losses
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import (
    evaluates_exactly,
    guess_loss,
    is_masked,
    minimises_objective,
    planned_loss_range,
    predicts_classes,
    protects_records,
    reported_group_sizes,
    why_uncalibrated,
)
from fedfair.plan.description import summary
from fedfair.plan.digest import format_digest
from fedfair.plan.losses import CROSS_ENTROPY, least_explained, loss_in_words
from fedfair.plan.schema import Plan
from fedfair.results.advice import AskFamily
from fedfair.results.calibration import calibration_figures
from fedfair.results.costs import Basis, SumCost, rounds_summary, traffic_summary
from fedfair.results.document import FORMAT, ResultDocument
from fedfair.results.parts import (
    EvaluationFields,
    PlanFields,
    PrivacyFields,
    ReportedProtection,
    ReturnedModel,
    Timing,
)
from fedfair.results.privacy import NO_PRIVACY, deployed_privacy
from fedfair.results.risks import (
    Moment,
    ObjectiveFigures,
    PastRisk,
    ReportedGroupRisk,
    SplitRisk,
)
from fedfair.results.scores import exact_aucs, split_scores
from fedfair.results.site_risks import Sites, own_means, site_risk, told_sites
from fedfair.results.survey import survey_words
from fedfair.results.training_trend import Evaluated
from fedfair.results.verdict import Aim, ReturnedEvaluation, RunVerdict, StartEvaluation, compare
from fedfair.results.verdict_sentences import UNEVALUATED, Known, worded
from fedfair.run.calibration_text import NOBODY_SAYS
from fedfair.run.training_run import RunResult
from fedfair.run.which_model import WhichModel
from fedfair.version import __version__

GroupRisks: TypeAlias = dict[str, ReportedGroupRisk]
Groups: TypeAlias = Mapping[float, tuple[float, float, float, tuple[float, float] | None]]
"""By group size: the loss of the worst group, of everybody else, their difference, and the worst's interval, if
there is one."""


RisksBySplit: TypeAlias = Mapping[str, SplitRisk | None]
"""The risks of every split in a result; None for a split without records."""

Matrix: TypeAlias = tuple[tuple[int, ...], ...]

ClassCounts: TypeAlias = Mapping[str, Sequence[int]]
"""By split: how many records each class has; no entry where there are too many classes."""

_SUPPRESSED = ReportedGroupRisk(worst=None, best=None, disparity=None, bound=None)


def exact_evaluation(evaluation: Evaluation, losses: Iterable[SiteLosses]) -> Evaluation:
    """Return an evaluation with the worst-group risks that the losses themselves have, instead of intervals.

    Where its sums carried noise, means and accuracies are those of the losses too.

    Args:
        evaluation: what the sums proved.
        losses: of the same model, for every collaborator.
    """
    sites = list(losses)
    splits = {name: _exact_summary(summary, _pooled(sites, name)) for name, summary in evaluation.splits.items()}
    return replace(evaluation, splits=splits)


def _exact_summary(summary: SplitSummary, losses: Losses | None) -> SplitSummary:
    if losses is None:
        raise LocalProtocolError("an evaluation has a split that nobody has losses of")
    exact = summarise_losses(losses.values, losses.correct, summary.by_group_size)
    if summary.mean_interval is not None:
        summary = replace(
            summary, mean=exact.mean, accuracy=exact.accuracy, mean_interval=None, accuracy_interval=None
        )
    return replace(
        summary,
        mean=exact.mean,
        mean_bound=Interval(exact.mean, exact.mean),
        by_group_size={
            size: GroupBound(risk.worst, risk.best, risk.disparity, Interval(risk.worst, risk.worst))
            for size, risk in exact.by_group_size.items()
        },
    )


def simulated_result(
    plan: Plan,
    plan_digest: str,
    run: RunResult,
    losses: Mapping[ParticipantId, SiteLosses],
    *,
    classes: int,
    seconds: float,
    costs: Sequence[SumCost],
    privacy: PrivacyFields = NO_PRIVACY,
    family: AskFamily | None = None,
    engine: Literal["loop", "vectorised", "ray"] | None = None,
) -> ResultDocument:
    """Return the result of a simulation.

    Args:
        plan: the plan that was run.
        plan_digest: its digest, "sha256:" and 64 hex digits.
        run: what the training run came to; it must have been evaluated. Its history is taken as it is: see
            `exact_evaluation`.
        losses: of the output model, for every collaborator.
        classes: number of classes.
        seconds: how long the run took.
        costs: what every sum cost, in order.
        privacy: from `privacy_words.simulated_privacy`.
        family: as `verdict_sentences.Known`; None where nobody can tell.
        engine: which engine computed it; None where a saved model was evaluated.
    """
    stated = plan.objective
    pooled = {split: _pooled(losses.values(), split) for split in SPLITS}
    train = pooled["train"]
    if train is None:
        raise LocalProtocolError("a result needs training losses")
    value = float(rcvar(train.values, stated.worst_group_size, stated.tradeoff))
    objective = ObjectiveFigures(rcvar=value, smoothed=_smoothed(run), split="train")
    splits = {
        name: None if split is None else _known_split(plan, run, name, split, classes)
        for name, split in pooled.items()
    }
    collaborators: Sites = {name: site_risk(own_means(site), 0) for name, site in losses.items()}
    if plan.evaluation.site_means:
        collaborators = told_sites(run)
    frame = _Frame(plan, plan_digest, run, classes, seconds, costs, privacy, Setting.SIMULATION, family)
    # Exact, like the matrices, even where sums carry noise.
    counts = {
        name: np.bincount(split.labels, minlength=classes).tolist()
        for name, split in pooled.items()
        if split is not None and predicts_classes(plan) and name in run.confusion
    }
    told = (
        {"collaborators": collaborators} if engine is None else {"collaborators": collaborators, "engine": engine}
    )
    return _result(frame, objective, splits, counts).model_copy(update=told)


def _known_split(plan: Plan, run: RunResult, name: str, split: Losses, classes: int) -> SplitRisk:
    """Return the risks of a split of which every record is known."""
    fewest = plan.evaluation.min_group
    risk = _told(
        _exact_split(
            summarise_losses(split.values, split.correct, reported_group_sizes(plan)),
            fewest,
            _exact_matrix(split, classes) if name in run.confusion else None,
        ),
        _exact_metrics(plan, split, classes),
        int(np.count_nonzero(split.values >= planned_loss_range(plan, classes))),
        fewest,
    )
    scored = _scored(risk, run.rankings.get(name, ()), fewest, exact_aucs(split))
    return scored.model_copy(update=_hedged(run, name))


def deployed_result(
    plan: Plan,
    plan_digest: str,
    run: RunResult,
    *,
    classes: int,
    seconds: float | None,
    costs: Sequence[SumCost] | None,
    noised: DistributedDp | None = None,
) -> ResultDocument:
    """Return the result of a deployed run, from sums alone; arguments as in `simulated_result`.

    A site knows neither `seconds` nor `costs` and gives None, so that the result has no timing and no traffic.
    With `noised`, whole collaborators are protected, no evaluation was made, and there is no figure about people.
    """
    objective, splits = _no_figures() if noised is not None else _bounded_figures(plan, run)
    promised = deployed_privacy(plan, noised, run, costs)
    frame = _Frame(plan, plan_digest, run, classes, seconds, costs, promised, Setting.DEPLOYMENT)
    counts = {name: [sum(row) for row in matrix] for name, matrix in run.confusion.items()}
    result = _result(frame, objective, splits, counts)
    return result.model_copy(update={"collaborators": told_sites(run)}) if plan.evaluation.site_means else result


def _bounded_figures(plan: Plan, run: RunResult) -> tuple[ObjectiveFigures, RisksBySplit]:
    evaluation = _evaluation(run)
    bound = evaluation.objectives["train"]
    noised = protects_records(plan)
    proved, ends = not noised and not evaluation.replaced, (float(bound.lower), float(bound.upper))
    fewest = plan.evaluation.min_group
    splits = {
        name: _scored(
            _told(
                _bounded_split(evaluation.splits[name], fewest, _matrix(run, name), proved=proved),
                evaluation.splits[name].metrics,
                evaluation.splits[name].above,
                fewest,
            ),
            run.rankings.get(name, ()),
            fewest,
            {},
            proved=proved,
        ).model_copy(update=_hedged(run, name) if proved else {})
        if name in evaluation.splits
        else None
        for name in SPLITS
    }
    rcvar_figure = _objective_estimate(plan, evaluation) if noised else float(bound.midpoint)
    objective = ObjectiveFigures(
        rcvar=rcvar_figure, rcvar_bound=ends if proved else None, smoothed=_smoothed(run), split="train"
    )
    return objective.model_copy(update={"rcvar_likely": ends}) if noised else objective, splits


def _objective_estimate(plan: Plan, evaluation: Evaluation) -> float:
    """Return the objective of the estimates themselves: an interval under noise has them in its middle no more."""
    train, stated = evaluation.splits["train"], plan.objective
    worst = train.by_group_size[stated.worst_group_size].worst
    return float((1.0 - stated.tradeoff) * worst + stated.tradeoff * train.mean)


def _no_figures() -> tuple[ObjectiveFigures, RisksBySplit]:
    nothing = ObjectiveFigures(rcvar=None, rcvar_bound=None, smoothed=None, split="train")
    return nothing, dict.fromkeys(SPLITS)


def _smoothed(run: RunResult) -> float | None:
    return None if run.evaluation is None else run.evaluation.splits["train"].smoothed


class Setting(enum.Enum):
    """The kind of run that a result is of; the value is the word in it."""

    SIMULATION = "simulation"
    DEPLOYMENT = "deployment"


@dataclass(frozen=True, slots=True)
class _Frame:
    """The facts of a run in a result, apart from its risks; attributes as in `simulated_result`."""

    plan: Plan
    plan_digest: str
    run: RunResult
    classes: int
    seconds: float | None
    costs: Sequence[SumCost] | None
    privacy: PrivacyFields
    setting: Setting
    family: AskFamily | None = None


def _result(
    frame: _Frame, objective: ObjectiveFigures, splits: RisksBySplit, counts: ClassCounts
) -> ResultDocument:
    plan, run = frame.plan, frame.run
    basis = Basis.COMPUTED if frame.setting is Setting.SIMULATION else Basis.MEASURED
    guess = guess_loss(plan, frame.classes)
    floor: dict[str, Any] = {} if guess is None else {"uniform_floor": guess}
    written = ResultDocument(
        format=FORMAT,
        setting=frame.setting.value,
        plan_digest=frame.plan_digest,
        plan=_plan_in_words(plan),
        algorithm=plan.training.algorithm,
        centralised=ALGORITHMS[plan.training.algorithm].centralised,
        rounds=run.rounds,
        threshold=run.threshold,
        objective=objective,
        **floor,
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
        verdict=_verdict(frame, splits, counts),
        history=tuple(past_moment(past, plan, frame.setting) for past in run.history),
        left_out=run.left_out,
        evaluation=_evaluation_words(plan, run),
        privacy=frame.privacy,
        secure_aggregation=_protection(plan, frame.setting),
        timing=_timing(frame),
        traffic=None if frame.costs is None else traffic_summary(frame.costs, basis),
        versions={"fedfair": __version__, "torch": version("torch")},
    )
    if run.which is not None:
        written = written.model_copy(update={"model": _returned_model(run.which, run.vector_sha256)})
    if predicts_classes(plan):
        why = why_uncalibrated(plan, frame.classes) or NOBODY_SAYS
        figures = calibration_figures(run.calibration, run.calibrated, why)
        written = written.model_copy(update={"calibration": figures})
    if run.survey is None:
        return written
    return written.model_copy(update={"survey": survey_words(run.survey, plan.evaluation.min_group)})


def _returned_model(which: WhichModel, digest: bytes) -> ReturnedModel:
    said = {"kind": which.kind, "round": which.round, "rounds": which.rounds, "words": which.words}
    return ReturnedModel.model_validate(said | {"digest": format_digest(digest)})


def _timing(frame: _Frame) -> Timing | None:
    """Return how long the run took; None where that is not known."""
    seconds = frame.seconds
    if seconds is None:
        return None
    speed = _number(frame.run.rounds / seconds if seconds else math.nan)
    return Timing(seconds=seconds, rounds_per_second=speed, rounds=rounds_summary(frame.costs or ()))


def _plan_in_words(plan: Plan) -> PlanFields:
    words = PlanFields(
        federation=plan.federation.name,
        collaborators=len(plan.federation.collaborators),
        worst_group_size=plan.objective.worst_group_size,
        tradeoff=plan.objective.tradeoff,
        summary=tuple((heading, sentence) for heading, sentence in summary(plan)),
    )
    # A result of cross-entropy is written as it was before there were other losses.
    return (
        words
        if plan.task.loss == CROSS_ENTROPY
        else words.model_copy(update={"loss": loss_in_words(plan.task.loss)})
    )


def _protection(plan: Plan, setting: Setting) -> ReportedProtection:
    """Return what hid the sums of this run, and what those of a deployed one are promised to hide."""
    try:
        promised = guarantee(plan)
    except PlanError as refusal:
        # A plan that may be simulated and not deployed: too few collaborators, say, to hide anybody among them.
        promised = f"NONE: a deployment of this plan is refused, {refusal.message}"
    return ReportedProtection(
        mode=plan.secure_aggregation.mode,
        colluders=plan.secure_aggregation.colluders,
        masked=is_masked(plan) and setting is Setting.DEPLOYMENT,
        guarantee=promised,
    )


def _evaluation(run: RunResult) -> Evaluation:
    if run.evaluation is None:
        raise LocalProtocolError("a run that was never evaluated has no result")
    return run.evaluation


def _evaluation_words(plan: Plan, run: RunResult) -> EvaluationFields:
    """Return how the last risks were found, and how many of their losses were replaced, where any were."""
    told = EvaluationFields(method=_method(plan, run), given_up=run.query_fault or None)
    replaced = 0 if run.evaluation is None else run.evaluation.replaced
    return told.model_copy(update={"replaced_losses": replaced}) if replaced else told


def _method(plan: Plan, run: RunResult) -> str:
    """Return how the last risks were found, in the plan's words; none where nothing was evaluated."""
    if run.evaluation is None:
        return "none"
    return "exact" if evaluates_exactly(plan) and not run.query_fault else "histogram"


def _matrix(run: RunResult, split: str) -> Matrix | None:
    """Return the confusion matrix of a split as rows; None where there are too many classes."""
    return tuple(tuple(row) for row in run.confusion[split]) if split in run.confusion else None


def is_suppressed(records: int, group_size: float, fewest: int) -> bool:
    """Return whether a group of this size is too small to be reported (`evaluation.min_group`)."""
    return math.ceil(tail_count(records, group_size)) < fewest


def _scored(
    risk: SplitRisk,
    rankings: Sequence[ClassRanking],
    fewest: int,
    exact: Mapping[int, Interval],
    *,
    proved: bool = True,
) -> SplitRisk:
    """Return the risks of a split with the figures about its scores, where there are any."""
    told = {"scores": split_scores(rankings, fewest, exact, proved=proved)} if rankings else {}
    return risk.model_copy(update=told)


def _hedged(run: RunResult, split: str) -> dict[str, float]:
    """Return the loss of the model mixed with the guess by its name, where there is one."""
    return {"hedged": run.hedged[split]} if split in run.hedged else {}


def _exact_split(summary: RiskSummary, fewest: int, confusion: Matrix | None) -> SplitRisk:
    groups: Groups = {
        size: (risk.worst, risk.best, risk.disparity, (risk.worst, risk.worst))
        for size, risk in summary.by_group_size.items()
    }
    groups_told = _groups(groups, summary.count, fewest)
    return _split_risk(summary.count, summary.mean, summary.accuracy, groups_told, confusion)


def _split_risk(
    records: int, mean: float, accuracy: float | None, groups: GroupRisks, confusion: Matrix | None
) -> SplitRisk:
    """Return the risks of a split; what only classes have is not in it where there are none."""
    if accuracy is None:
        return SplitRisk(n=records, mean=mean, by_group_size=groups)
    return SplitRisk(n=records, mean=mean, accuracy=accuracy, by_group_size=groups, confusion=confusion)


def _told(risk: SplitRisk, metrics: Metrics, above: int, fewest: int) -> SplitRisk:
    """Return the risks of a split with the metrics of its task, and how many losses are above the range."""
    told: dict[str, object] = {"metrics": dict(metrics)} if metrics else {}
    if above and above >= fewest:
        told["above_range"] = above / risk.n
    return risk.model_copy(update=told) if told else risk


def _exact_metrics(plan: Plan, losses: Losses, classes: int) -> Metrics:
    """Return the metrics of a split of which every record is known."""
    sums, end = losses.figures.sum(axis=0), planned_loss_range(plan, classes)
    return metrics_of(plan.task.loss, sums, len(losses.values), end, plan.evaluation.min_group)


def _bounded_split(summary: SplitSummary, fewest: int, confusion: Matrix | None, *, proved: bool) -> SplitRisk:
    groups = _told_groups(summary, fewest, proved=proved)
    risks = summary.by_group_size.items() if proved else ()
    exact = {str(size): risk.at_least for size, risk in risks if risk.at_least is not None}
    if exact:
        groups = {
            size: risk.model_copy(update={"at_least": exact[size] if risk.worst is not None else None})
            for size, risk in groups.items()
        }
    risk = _split_risk(summary.n, summary.mean, summary.accuracy, groups, confusion)
    return risk.model_copy(update=_likely_figures(summary, "mean_likely", "accuracy_likely"))


def _likely_figures(summary: SplitSummary, *names: str) -> dict[str, object]:
    """Return the intervals of mean and accuracy that the noise leaves open; nothing without noise."""
    found = {"mean_likely": summary.mean_interval, "accuracy_likely": summary.accuracy_interval}
    told = {name: found[name] for name in names}
    return {name: (ends.lower, ends.upper) for name, ends in told.items() if ends is not None}


def _exact_matrix(losses: Losses, classes: int) -> Matrix:
    matrix = confusion_matrix(losses.labels, losses.predictions, classes)
    return tuple(tuple(int(cell) for cell in row) for row in matrix)


def _bounded_groups(summary: SplitSummary, *, proved: bool) -> Groups:
    """Return the groups with their intervals.

    Sums under noise, and sums with replaced losses, prove none, so that figures are estimates.
    """
    return {
        size: (risk.worst, risk.best, risk.disparity, (risk.bound.lower, risk.bound.upper) if proved else None)
        for size, risk in summary.by_group_size.items()
    }


def _told_groups(summary: SplitSummary, fewest: int, *, proved: bool) -> dict[str, ReportedGroupRisk]:
    """Return the groups that may be told of, under noise with the intervals that it leaves open."""
    told = _groups(_bounded_groups(summary, proved=proved), summary.n, fewest)
    if summary.mean_interval is None:
        return told
    ends = {str(size): risk.bound for size, risk in summary.by_group_size.items()}
    return {
        size: group
        if group.worst is None
        else group.model_copy(update={"likely": (ends[size].lower, ends[size].upper)})
        for size, group in told.items()
    }


def _groups(groups: Groups, records: int, fewest: int) -> dict[str, ReportedGroupRisk]:
    return {
        str(size): _SUPPRESSED
        if is_suppressed(records, size, fewest)
        else ReportedGroupRisk(worst=_number(worst), best=_number(best), disparity=_number(disparity), bound=bound)
        for size, (worst, best, disparity, bound) in groups.items()
    }


def _verdict(frame: _Frame, splits: RisksBySplit, counts: ClassCounts) -> RunVerdict:
    """Return the verdict on the output model, by figures that are in the result."""
    plan, run, train = frame.plan, frame.run, splits["train"]
    if train is None:
        return UNEVALUATED
    held = {name: split.n for name, split in splits.items() if split is not None}
    returned = ReturnedEvaluation(
        train,
        splits["test"],
        counts,
        counts_noised=_carries_noise(frame),
        replaced=0 if run.evaluation is None else run.evaluation.replaced,
    )
    chosen = run.which is None or run.which.kind == "best"
    if chosen and run.evaluation is not None and run.evaluation.round == 0:
        returned = replace(returned, given_up_after=int(run.history[-1].round))
    first = next((past for past in run.history if past.round == 0), None)
    start = None
    if first is not None:
        same = {name: past.n == held.get(name) for name, past in first.splits.items()}
        start = StartEvaluation(past_moment(first, frame.plan, frame.setting), same)
    explains = least_explained(plan.task.loss)
    aim = Aim(plan.objective.worst_group_size, plan.objective.tradeoff, explains)
    comparison = compare(aim, guess_loss(plan, frame.classes), start, returned)
    split, _ = returned.shown
    known = Known(
        tuple(_minimised(past, plan) for past in run.history),
        _minimised(_evaluation(run), plan).value,
        tuple(counts.get(split, ())),
        frame.family,
    )
    return worded(comparison, plan, known)


def _minimised(evaluation: Evaluation, plan: Plan) -> Evaluated:
    """Return the figure that the plan's algorithm minimises, over training records."""
    if not minimises_objective(plan):
        return Evaluated(evaluation.round, evaluation.splits["train"].mean)
    held = evaluation.objectives["train"]
    return Evaluated(evaluation.round, held.midpoint, held.upper - held.lower)


def _carries_noise(frame: _Frame) -> bool:
    return _is_noised(frame.plan, frame.setting)


def _is_noised(plan: Plan, setting: Setting) -> bool:
    """Return whether the figures carry noise; a simulation's are exact, whatever noise its sums carried."""
    return protects_records(plan) and setting is Setting.DEPLOYMENT


def past_moment(evaluation: Evaluation, plan: Plan, setting: Setting) -> Moment:
    """Return an evaluation on the way as the history of the result has it."""
    proved = not _is_noised(plan, setting) and not evaluation.replaced
    size, fewest = plan.objective.worst_group_size, plan.evaluation.min_group
    splits = {}
    for name, found in evaluation.splits.items():
        accuracy: dict[str, Any] = {} if found.accuracy is None else {"accuracy": found.accuracy}
        metrics: dict[str, Any] = {"metrics": dict(found.metrics)} if found.metrics else {}
        splits[name] = PastRisk(
            mean=found.mean,
            worst=None if is_suppressed(found.n, size, fewest) else found.by_group_size[size].worst,
            **accuracy,
            by_group_size=_told_groups(found, fewest, proved=proved),
            **metrics,
        ).model_copy(update=_likely_figures(found, "mean_likely"))
    moment = Moment(round=evaluation.round, threshold=evaluation.threshold, train=splits.pop("train"))
    return moment.model_copy(update=splits)


def _pooled(sites: Iterable[SiteLosses], split: str) -> Losses | None:
    held = [site[split] for site in sites if split in site]
    if not held:
        return None
    return Losses.joined(held)


def _number(value: float) -> float | None:
    """Return the value, or None for what JSON cannot hold."""
    return float(value) if math.isfinite(value) else None
