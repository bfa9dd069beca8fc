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
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

import numpy as np

from fedfair.aggregation.cvar_bounds import GroupBound, Interval, SplitSummary
from fedfair.aggregation.distributed_dp import DistributedDp
from fedfair.aggregation.evaluation_sums import confusion_matrix
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.loss_metrics import Metrics, excess_metrics, metrics_of
from fedfair.aggregation.masking_terms import guarantee
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
    measure_of,
    measures_excess,
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
from fedfair.results.frozen import given
from fedfair.results.parts import (
    EvaluationFields,
    PlanFields,
    PrivacyFields,
    ReferenceFigures,
    ReportedProtection,
    ReportedTenth,
    ReturnedModel,
    Timing,
)
from fedfair.results.prediction_sets import planned_sets
from fedfair.results.privacy import NO_PRIVACY, deployed_privacy
from fedfair.results.release import release_figures
from fedfair.results.risks import (
    Moment,
    ObjectiveFigures,
    PastRisk,
    ReportedGroupRisk,
    SplitRisk,
)
from fedfair.results.scores import SplitScores, exact_aucs, split_scores
from fedfair.results.site_risks import Sites, own_means, reported_sites, site_risk
from fedfair.results.slices import slice_figures
from fedfair.results.survey import survey_words
from fedfair.results.training_trend import Evaluated
from fedfair.results.verdict import Aim, ReturnedEvaluation, RunVerdict, StartEvaluation, compare
from fedfair.results.verdict_sentences import UNEVALUATED, Known, worded
from fedfair.run.calibration_text import UNSTATED
from fedfair.run.training_run import RunResult
from fedfair.run.which_model import WhichModel
from fedfair.version import __version__

RisksBySplit: TypeAlias = Mapping[str, SplitRisk | None]
"""The risks of every split in a result; None for a split without records."""

Matrix: TypeAlias = tuple[tuple[int, ...], ...]

ClassCounts: TypeAlias = Mapping[str, Sequence[int]]
"""By split: how many records each class has; no entry where there are too many classes."""

_NO_OBJECTIVE = ObjectiveFigures(rcvar=None, rcvar_bound=None, smoothed=None, split="train")
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
        raise LocalProtocolError("an evaluation has a split without losses")
    exact = summarise_losses(losses.values, losses.correct, summary.by_group_size)
    if summary.mean_interval is not None:
        summary = replace(
            summary, mean=exact.mean, accuracy=exact.accuracy, mean_interval=None, accuracy_interval=None
        )
    return replace(
        summary,
        mean=exact.mean,
        mean_bound=Interval(exact.mean, exact.mean),
        by_group_size=_exact_groups(exact),
    )


def _exact_groups(found: RiskSummary) -> Mapping[float, GroupBound]:
    return {
        size: GroupBound(risk.worst, risk.best, risk.disparity, Interval(risk.worst, risk.worst))
        for size, risk in found.by_group_size.items()
    }


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
        run: the outcome of the training run; it must have been evaluated. Its history is taken as it is: see
            `exact_evaluation`.
        losses: of the output model, for every collaborator.
        classes: number of classes.
        seconds: how long the run took.
        costs: what every sum cost, in order.
        privacy: from `privacy_words.simulated_privacy`.
        family: as `verdict_sentences.Known`; None where unknown.
        engine: which engine computed it; None where a saved model was evaluated.
    """
    stated = plan.objective
    pooled = {split: _pooled(losses.values(), split) for split in SPLITS}
    train = pooled["train"]
    if train is None:
        raise LocalProtocolError("a result needs training losses")
    value = float(rcvar(train.measured, stated.worst_group_size, stated.tradeoff))
    objective = ObjectiveFigures(rcvar=value, smoothed=_smoothed(run), split="train")
    splits = {
        name: None if split is None else _known_split(plan, run, name, split, classes)
        for name, split in pooled.items()
    }
    collaborators: Sites = {name: site_risk(own_means(site), 0) for name, site in losses.items()}
    if plan.evaluation.site_means:
        collaborators = reported_sites(run)
    frame = _Frame(plan, plan_digest, run, classes, seconds, costs, privacy, Setting.SIMULATION, family)
    # Exact, like the matrices, even where sums carry noise.
    counts = {
        name: np.bincount(split.labels, minlength=classes).tolist()
        for name, split in pooled.items()
        if split is not None and predicts_classes(plan) and name in run.confusion
    }
    return _result(frame, objective, splits, counts, collaborators=collaborators, engine=engine)


def _known_split(plan: Plan, run: RunResult, name: str, split: Losses, classes: int) -> SplitRisk:
    """Return the risks of a split of which every record is known."""
    fewest, end = plan.evaluation.min_group, planned_loss_range(plan, classes)
    found = summarise_losses(split.values, split.correct, reported_group_sizes(plan))
    return _split_risk(
        found.count,
        found.mean,
        found.accuracy,
        _groups(_exact_groups(found), found.count, fewest, proved=True),
        _exact_matrix(split, classes) if name in run.confusion else None,
        metrics={
            **metrics_of(plan.task.loss, split.figures.sum(axis=0), found.count, end, fewest),
            **_exact_excess(plan, split),
        }
        or None,
        above_range=_above(int(np.count_nonzero(split.values >= end)), found.count, fewest),
        scores=_scores(run, name, fewest, exact_aucs(split), proved=True),
        hedged=run.hedged.get(name),
    )


def _exact_excess(plan: Plan, split: Losses) -> Metrics:
    """Return what is told of the excess over references; nothing where none have judged enough records."""
    if not split.excess.size or len(split.excess) < plan.evaluation.min_group:
        return {}
    size = plan.objective.worst_group_size
    found = summarise_losses(split.excess, None, (size,))
    return excess_metrics(found.mean, found.by_group_size[size].worst)


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
    objective, splits = _bounded_figures(plan, run) if noised is None else (_NO_OBJECTIVE, dict.fromkeys(SPLITS))
    promised = deployed_privacy(plan, noised, run, costs)
    frame = _Frame(plan, plan_digest, run, classes, seconds, costs, promised, Setting.DEPLOYMENT)
    counts = {name: [sum(row) for row in matrix] for name, matrix in run.confusion.items()}
    told = reported_sites(run) if plan.evaluation.site_means else None
    return _result(frame, objective, splits, counts, collaborators=told)


def _bounded_figures(plan: Plan, run: RunResult) -> tuple[ObjectiveFigures, RisksBySplit]:
    evaluation = _evaluation(run)
    bound = evaluation.objectives["train"]
    noised = protects_records(plan)
    proved, ends = not noised and not evaluation.replaced, (float(bound.lower), float(bound.upper))
    fewest = plan.evaluation.min_group
    splits = {
        name: _bounded_split(evaluation.splits[name], run, name, fewest, proved=proved)
        if name in evaluation.splits
        else None
        for name in SPLITS
    }
    objective = ObjectiveFigures(
        rcvar=_objective_estimate(plan, evaluation) if noised else float(bound.midpoint),
        rcvar_bound=ends if proved else None,
        smoothed=_smoothed(run),
        split="train",
        **given(rcvar_likely=ends if noised else None),
    )
    return objective, splits


def _bounded_split(found: SplitSummary, run: RunResult, name: str, fewest: int, *, proved: bool) -> SplitRisk:
    """Return the risks of a split from sums alone."""
    return _split_risk(
        found.n,
        found.mean,
        found.accuracy,
        _groups(found.by_group_size, found.n, fewest, proved=proved, noised=_is_estimate(found), surely=proved),
        tuple(tuple(row) for row in run.confusion[name]) if name in run.confusion else None,
        metrics=dict(found.metrics) or None,
        above_range=_above(found.above, found.n, fewest),
        scores=_scores(run, name, fewest, {}, proved=proved),
        hedged=run.hedged.get(name) if proved else None,
        mean_likely=_ends(found.mean_interval),
        accuracy_likely=_ends(found.accuracy_interval),
    )


def _objective_estimate(plan: Plan, evaluation: Evaluation) -> float:
    """Return the objective of the estimates themselves: an interval under noise has them in its middle no more."""
    train, stated = evaluation.splits["train"], plan.objective
    worst = train.by_group_size[stated.worst_group_size].worst
    return float((1.0 - stated.tradeoff) * worst + stated.tradeoff * train.mean)


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
    frame: _Frame, objective: ObjectiveFigures, splits: RisksBySplit, counts: ClassCounts, **told: object
) -> ResultDocument:
    """Return the result of a run with everything that is `told` of it beside its risks and is not None."""
    plan, run = frame.plan, frame.run
    basis = Basis.COMPUTED if frame.setting is Setting.SIMULATION else Basis.MEASURED
    calibration = None
    if predicts_classes(plan):
        why = why_uncalibrated(plan, frame.classes) or UNSTATED
        calibration = calibration_figures(run.calibration, run.calibrated, why)
    return ResultDocument(
        format=FORMAT,
        setting=frame.setting.value,
        plan_digest=frame.plan_digest,
        plan=plan_in_words(plan),
        algorithm=plan.training.algorithm,
        centralised=ALGORITHMS[plan.training.algorithm].centralised,
        rounds=run.rounds,
        threshold=run.threshold,
        objective=objective,
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
        verdict=_verdict(frame, splits, counts),
        history=tuple(past_moment(past, plan, frame.setting) for past in run.history),
        left_out=run.left_out,
        evaluation=_evaluation_words(plan, run),
        privacy=frame.privacy,
        secure_aggregation=protection_of(plan, frame.setting),
        timing=_timing(frame),
        traffic=None if frame.costs is None else traffic_summary(frame.costs, basis),
        versions={"fedfair": __version__, "torch": _version_of_torch()},
        **given(
            uniform_floor=guess_loss(plan, frame.classes),
            model=None if run.which is None else _returned_model(run.which, run.vector_sha256),
            calibration=calibration,
            sets=planned_sets(plan, frame.classes, run),
            slices=slice_figures(run.slices, run.slices_fault, measure_of(plan)),
            release=release_figures(run, plan),
            references=_reference_figures(run),
            survey=None if run.survey is None else survey_words(run.survey, plan.evaluation.min_group),
            **told,
        ),
    )


@cache
def _version_of_torch() -> str:
    """Return it as its metadata says, which are read once: torch itself would take a second to import."""
    return version("torch")


def _returned_model(which: WhichModel, digest: bytes) -> ReturnedModel:
    said = {"kind": which.kind, "round": which.round, "rounds": which.rounds, "words": which.words}
    return ReturnedModel.model_validate(said | {"digest": format_digest(digest)})


def _reference_figures(run: RunResult) -> ReferenceFigures | None:
    found = run.references
    if found is None or not math.isfinite(found.best_loss):
        return None
    checked = {
        name: tuple(ReportedTenth(**asdict(one), error=one.error) for one in tenths)
        for name, tenths in run.reference_check.items()
    }
    kept = run.kept_references
    told = given(digest=kept and kept.digest, checked=checked or None)
    return ReferenceFigures(sums=found.sums, best_after=found.best_at, loss=found.best_loss, **told)


def _timing(frame: _Frame) -> Timing | None:
    """Return how long the run took; None where that is not known."""
    seconds = frame.seconds
    if seconds is None:
        return None
    speed = _number(frame.run.rounds / seconds if seconds else math.nan)
    return Timing(seconds=seconds, rounds_per_second=speed, rounds=rounds_summary(frame.costs or ()))


def plan_in_words(plan: Plan) -> PlanFields:
    """Return what was agreed."""
    # A result of cross-entropy is written as it was before there were other losses.
    loss = None if plan.task.loss == CROSS_ENTROPY else loss_in_words(plan.task.loss)
    return PlanFields(
        federation=plan.federation.name,
        collaborators=len(plan.federation.collaborators),
        worst_group_size=plan.objective.worst_group_size,
        tradeoff=plan.objective.tradeoff,
        summary=summary(plan),
        **given(loss=loss),
    )


def protection_of(plan: Plan, setting: Setting) -> ReportedProtection:
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
    method = "exact" if evaluates_exactly(plan) and not run.query_fault else "histogram"
    replaced = 0 if run.evaluation is None else run.evaluation.replaced
    return EvaluationFields(
        method="none" if run.evaluation is None else method,
        given_up=run.query_fault or None,
        **given(replaced_losses=replaced or None),
    )


def is_suppressed(records: int, group_size: float, fewest: int) -> bool:
    """Return whether a group of this size is too small to be reported (`evaluation.min_group`)."""
    return math.ceil(tail_count(records, group_size)) < fewest


def _scores(
    run: RunResult, name: str, fewest: int, exact: Mapping[int, Interval], *, proved: bool
) -> SplitScores | None:
    """Return the figures about the scores of a split; None where there are none."""
    rankings, curve = run.rankings.get(name), run.decision_curves.get(name)
    return split_scores(rankings, fewest, exact, proved=proved, curve=curve) if rankings else None


def _above(count: int, records: int, fewest: int) -> float | None:
    """Return the share of losses above the range; None where it would disclose too few people, or none."""
    return count / records if count and count >= fewest else None


def _split_risk(
    records: int,
    mean: float,
    accuracy: float | None,
    groups: dict[str, ReportedGroupRisk],
    confusion: Matrix | None,
    **rare: object,
) -> SplitRisk:
    """Return the risks of a split; what only classes have is not in it where there are none, nor a `rare` None."""
    of_classes: dict[str, Any] = {} if accuracy is None else {"accuracy": accuracy, "confusion": confusion}
    return SplitRisk(n=records, mean=mean, by_group_size=groups, **of_classes, **given(**rare))


def _ends(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.lower, interval.upper)


def _exact_matrix(losses: Losses, classes: int) -> Matrix:
    matrix = confusion_matrix(losses.labels, losses.predictions, classes)
    return tuple(tuple(int(cell) for cell in row) for row in matrix)


def _is_estimate(found: SplitSummary) -> bool:
    """Return whether the figures of a split come from sums under noise, which leave intervals open."""
    return found.mean_interval is not None


def _groups(
    groups: Mapping[float, GroupBound],
    records: int,
    fewest: int,
    *,
    proved: bool,
    noised: bool = False,
    surely: bool = False,
) -> dict[str, ReportedGroupRisk]:
    """Return the groups that may be reported.

    Args:
        groups: by size.
        records: how many people they are of.
        fewest: the fewest of whom something is reported.
        proved: whether the intervals hold; sums under noise, and sums with replaced losses, prove none.
        noised: whether they are what the noise leaves open.
        surely: whether it is reported too what a group surely has, where that is known.
    """
    told = {}
    for size, risk in groups.items():
        rare = given(at_least=risk.at_least) if surely else {}
        if is_suppressed(records, size, fewest):
            told[str(size)] = _SUPPRESSED.model_copy(update=dict.fromkeys(rare))
            continue
        worst = _number(risk.worst)
        if noised and worst is not None:
            rare["likely"] = _ends(risk.bound)
        told[str(size)] = ReportedGroupRisk(
            worst=worst,
            best=_number(risk.best),
            disparity=_number(risk.disparity),
            bound=_ends(risk.bound) if proved else None,
            **rare,
        )
    return told


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
        counts_noised=_is_noised(plan, frame.setting),
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
    if measures_excess(plan):
        # Its worst group by loss holds the unlucky, whom no plan with this measure means.
        comparison = replace(comparison, unserved=None)
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


def _is_noised(plan: Plan, setting: Setting) -> bool:
    """Return whether the figures carry noise; a simulation's are exact, whatever noise its sums carried."""
    return protects_records(plan) and setting is Setting.DEPLOYMENT


def past_moment(evaluation: Evaluation, plan: Plan, setting: Setting) -> Moment:
    """Return an evaluation on the way as the history of the result has it."""
    proved = not _is_noised(plan, setting) and not evaluation.replaced
    size, fewest = plan.objective.worst_group_size, plan.evaluation.min_group
    splits = {
        name: PastRisk(
            mean=found.mean,
            worst=None if is_suppressed(found.n, size, fewest) else found.by_group_size[size].worst,
            by_group_size=_groups(found.by_group_size, found.n, fewest, proved=proved, noised=_is_estimate(found)),
            **given(
                accuracy=found.accuracy,
                metrics=dict(found.metrics) or None,
                mean_likely=_ends(found.mean_interval),
            ),
        )
        for name, found in evaluation.splits.items()
    }
    return Moment(round=evaluation.round, threshold=evaluation.threshold, **splits)


def _pooled(sites: Iterable[SiteLosses], split: str) -> Losses | None:
    held = [site[split] for site in sites if split in site]
    return Losses.joined(held) if held else None


def _number(value: float) -> float | None:
    """Return the value, or None for what JSON cannot hold."""
    return float(value) if math.isfinite(value) else None
