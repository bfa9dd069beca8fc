"""Derives each fact of a plan once, for the run, the sites, the reports and the checks.

Functions of a plan that passed its schema; no file, no data. Which sums a run makes, and when, is `schedule.py`'s.
"""

from __future__ import annotations

import enum
from typing import Literal

from fedfair.errors import PlanError
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.audit_terms import validation_chooses
from fedfair.plan.excess_terms import excess_faults, reference_in, room_faults, takes_excess
from fedfair.plan.losses import (
    NO_LOSS_RANGE,
    HuberLoss,
    MultiLabelLoss,
    PinballLoss,
    SquaredLoss,
    guessing_costs,
    has_classes,
    loss_range_remedy,
    natural_range,
    predicts_number,
)
from fedfair.plan.schema import Plan
from fedfair.plan.sections import Measure, ReferenceSection, SetsSection, SlicesSection
from fedfair.plan.sources import CsvSource

# ------------------------------------------------------------------ who is in a sum


def quorum(plan: Plan) -> int:
    """Return how many collaborators at least are in every sum: all of them, where the plan does not say."""
    return plan.federation.min_collaborators or len(plan.federation.collaborators)


def needs_every_site(plan: Plan) -> bool:
    """Return whether no sum may leave a collaborator out."""
    return quorum(plan) == len(plan.federation.collaborators)


def published_sites(plan: Plan) -> tuple[str, ...]:
    """Return whose own means the plan publishes, in the order of their rows; nobody's unless it asks for them."""
    return plan.federation.collaborators if plan.evaluation.site_means else ()


# ------------------------------------------------------------------ how sums are protected


def is_masked(plan: Plan) -> bool:
    """Return whether the plan's sums are masked."""
    return plan.secure_aggregation.mode != "off"


def resists_lies(plan: Plan) -> bool:
    """Return whether the plan's sums are masked against an aggregator that lies."""
    return plan.secure_aggregation.mode == "malicious"


def clip_ceiling(plan: Plan) -> tuple[str, float]:
    """Return the key that bounds the clip of a masked update, and the greatest clip that it allows, above 0."""
    stated, noised = plan.secure_aggregation, plan.privacy.collaborator_level
    if noised is not None:
        return "privacy.collaborator_level.clip", noised.clip
    if isinstance(stated.clip, str):
        return "secure_aggregation.max_clip", stated.max_clip
    return "secure_aggregation.clip", stated.clip


def has_fixed_clip(plan: Plan) -> bool:
    """Return whether all sums have one clip, and none is chosen by the last round."""
    return clip_ceiling(plan)[0] != "secure_aggregation.max_clip"


def greatest_weight(plan: Plan) -> int:
    """Return W, the greatest weight of one site's update: the finer, the smaller."""
    batch = plan.training.batch_size
    if plan.training.weights == "uniform":
        return 1
    if plan.training.weights == "batch" and not isinstance(batch, str):
        return batch
    return plan.secure_aggregation.most_records


class PrivacyLevel(enum.Enum):
    """The unit that a plan protects by noise; the value is the key under `privacy`, or none.

    Statistics protect records too, by noise of their own.
    """

    NONE = "none"
    RECORDS = "sample_level"
    COLLABORATORS = "collaborator_level"
    STATISTICS = "statistics"


def privacy_level(plan: Plan) -> PrivacyLevel:
    """Return whom the plan protects by noise: none, single records, or whole collaborators."""
    if plan.statistics is not None:
        return PrivacyLevel.NONE if plan.statistics.epsilon is None else PrivacyLevel.STATISTICS
    if plan.privacy.collaborator_level is not None:
        return PrivacyLevel.COLLABORATORS
    return PrivacyLevel.NONE if plan.privacy.sample_level is None else PrivacyLevel.RECORDS


def is_noised(plan: Plan) -> bool:
    """Return whether the plan asks for any differential privacy."""
    return privacy_level(plan) is not PrivacyLevel.NONE


def protects_records(plan: Plan) -> bool:
    """Return whether what a site releases of a model carries noise for single records."""
    return privacy_level(plan) is PrivacyLevel.RECORDS


def is_unevaluated(plan: Plan) -> bool:
    """Return whether no model is evaluated: none is trained, or no such sum carries noise for collaborators."""
    return privacy_level(plan) is PrivacyLevel.COLLABORATORS or not trains(plan)


def trains(plan: Plan) -> bool:
    """Return whether a run of the plan trains a model; otherwise it ends with statistics of columns."""
    return plan.statistics is None


# ------------------------------------------------------------------ what is learnt and published


def keeps_site_thresholds(plan: Plan) -> bool:
    """Return whether every site keeps a threshold of its own, and none is shared."""
    return ALGORITHMS[plan.training.algorithm].site_thresholds


def sites_remember(plan: Plan) -> bool:
    """Return whether sites keep something of a round, which counts where the state says that their sum did."""
    return plan.training.control_variates or keeps_site_thresholds(plan) or keeps_parameters(plan)


def keeps_parameters(plan: Plan) -> bool:
    """Return whether every site trains a part of the model that it keeps to itself."""
    stated = plan.training.parameters
    return stated is not None and stated.keep is not None


def learns_threshold(plan: Plan) -> bool:
    """Return whether local steps follow the tail of the losses, so that the threshold moves.

    The worst group of all records is the mean, and so is a tradeoff of 1: both take FedAvg's own rule, so that the
    results are equal bit for bit and not only in theory.
    """
    return trains(plan) and ALGORITHMS[plan.training.algorithm].threshold and not plan.objective.is_mean


def answers_batches(plan: Plan) -> bool:
    """Return whether an adversary answers the losses of the batch of every step, which makes a round a sum."""
    return plan.training.options.best_response == "batch"


def minimises_objective(plan: Plan) -> bool:
    """Return whether the plan's algorithm minimises the plan's objective, which else counts for reports only."""
    return "{worst}" in ALGORITHMS[plan.training.algorithm].minimises


def measures_excess(plan: Plan) -> bool:
    """Return whether local steps follow the excess over a reference, and not the loss.

    Where the plan does not say: where a reference can say more than the model, and nothing excludes it.
    """
    asked = plan.objective, plan.training, plan.task, plan.evaluation, plan.privacy
    return trains(plan) and takes_excess(*asked)


def measure_of(plan: Plan) -> Measure:
    """Return what is measured of a person."""
    return "excess" if measures_excess(plan) else "loss"


def with_measure(plan: Plan) -> Plan:
    """Return the plan with its measure stated: a copy may exclude the excess where the plan does not, or not."""
    objective = plan.objective.model_copy(update={"measure": measure_of(plan)})
    return plan.model_copy(update={"objective": objective})


def may_measure_excess(plan: Plan) -> bool:
    """Return whether the same plan could follow the excess over references instead of the loss."""
    if measures_excess(plan):
        return False
    other = plan.objective.model_copy(update={"measure": "excess"})
    excluded = any(excess_faults(other, plan.training, plan.task, plan.evaluation, plan.privacy))
    return not excluded and not any(room_faults(other, plan.task, plan.secure_aggregation))


def reference_of(plan: Plan) -> ReferenceSection:
    """Return how the references of a plan are trained."""
    return reference_in(plan.objective)


def given_references(plan: Plan) -> str | None:
    """Return the digest of the earlier run's references that a plan takes; None where it takes none."""
    return reference_of(plan).run if measures_excess(plan) else None


def trains_references(plan: Plan) -> bool:
    """Return whether a run of the plan trains references: one that continues has those of the run before."""
    return measures_excess(plan) and given_references(plan) is None and not rounds_before(plan)


def returns_mean(plan: Plan) -> bool:
    """Return whether the output model is a mean of the models of several rounds, and not one of them."""
    return plan.training.output in {"average", "tail"}


def returns_tail(plan: Plan) -> bool:
    """Return whether the output model is a mean of the last rounds alone."""
    return plan.training.output == "tail"


def keeps_best(plan: Plan) -> bool:
    """Return whether the output model is that of the best evaluation.

    Without evaluations, and where they carry noise, it is the last: the least of noised figures is mostly noise.
    So it is where sites keep a part of the model: they have that of the last round.
    """
    told = privacy_level(plan) is PrivacyLevel.NONE and trains(plan) and not keeps_parameters(plan)
    return plan.training.output == "best" and told


def returned_output(plan: Plan) -> str:
    """Return which model a run of the plan returns: `training.output`, but the last where best is not told."""
    return "last" if plan.training.output == "best" and not keeps_best(plan) else plan.training.output


def first_averaged_round(plan: Plan) -> int:
    """Return how many rounds are done before the first model of the mean is broadcast.

    The paper averages what was broadcast, theta^1 (the initial model) to theta^T: `average` takes all of it,
    `tail` the second half. A continued run has no model of the rounds before it: its tail begins there at the
    earliest.
    """
    return 0 if plan.training.output == "average" else max(plan.training.rounds // 2, rounds_before(plan))


def evaluates_exactly(plan: Plan) -> bool:
    """Return whether the output model is evaluated exactly."""
    return plan.evaluation.method == "exact" and not is_unevaluated(plan)


def finds_slices(plan: Plan) -> bool:
    """Return whether the run ends with sums over the cells of columns."""
    return plan.evaluation.slices is not None


def slices_of(plan: Plan) -> SlicesSection:
    """Return which cells are looked at, in a plan that finds slices or may."""
    return plan.evaluation.slices or SlicesSection()


def audits_release(plan: Plan) -> bool:
    """Return whether the run ends with a sum that tells how well losses give training records away."""
    return plan.evaluation.release_audit is not None


def audited_slices(plan: Plan) -> int:
    """Return how many of the worst slices a release audit looks at by themselves, at most."""
    stated = plan.evaluation.release_audit
    return 0 if stated is None or not finds_slices(plan) else stated.worst_slices


def audited_splits(plan: Plan) -> tuple[str, ...]:
    """Return which held-out records an audit compares with: of the plan's own draw, and choosing no model."""
    task = plan.task
    by_validation = task.validation_fraction > 0 and not validation_chooses(plan.training)
    return ("validation",) * by_validation + ("test",) * (task.test_fraction > 0)


def audited_share(plan: Plan) -> float:
    """Return the chance with which a record of a release audit was trained on, in (0, 1)."""
    task, splits = plan.task, audited_splits(plan)
    fractions = {"validation": task.validation_fraction, "test": task.test_fraction}
    trained = 1.0 - sum(fractions.values())
    return trained / (trained + sum(fractions[split] for split in splits))


def deals_by_record(plan: Plan) -> bool:
    """Return whether the side of a record that is held out, or not, is a draw of its own."""
    return protects_records(plan) or audits_release(plan)


def counts_outcomes(plan: Plan) -> bool:
    """Return whether slices also count outcomes, beside the model's decisions and what references said."""
    return finds_slices(plan) and slices_of(plan).outcomes


def reported_group_sizes(plan: Plan) -> tuple[float, ...]:
    """Return the group sizes of the plan's reports: those it lists, and the one that it trains for."""
    return tuple(sorted({*plan.evaluation.group_sizes, plan.objective.worst_group_size}))


def label_count(plan: Plan) -> int:
    """Return how many labels a record has, as far as the plan tells; 0 where its answer is another."""
    data, loss = plan.task.data, plan.task.loss
    if not isinstance(loss, MultiLabelLoss):
        return 0
    if isinstance(data, CsvSource):
        return len(data.csv.labels)
    return loss.labels or 0


def predicts_classes(plan: Plan) -> bool:
    """Return whether a record's answer is one class, so that there are accuracy, confusion and scores."""
    return has_classes(plan.task.loss)


def guess_loss(plan: Plan, classes: int) -> float | None:
    """Return the loss of the uniform guess, log(classes) in nats; None where guessing has no meaning."""
    return guessing_costs(plan.task.loss, classes, label_count(plan))


def planned_loss_range(plan: Plan, classes: int) -> float:
    """Return where the plan's open bin begins, in units of the loss.

    Where the plan does not say, it is 8 times the loss of guessing, or the loss of the greatest error that the
    declared range of the target allows.

    Raises:
        PlanError: nothing tells how large a loss can be.
    """
    stated = plan.evaluation.loss_range
    found = natural_range(plan.task.loss, classes, label_count(plan)) if stated is None else stated
    if found is None:
        raise PlanError(f"evaluation.loss_range: {NO_LOSS_RANGE}", loss_range_remedy(plan.task.loss))
    return found


def threshold_limit(plan: Plan, classes: int) -> float:
    """Return R: the most by which a round may move the threshold, and the highest that round 0 may set it to.

    R is the plan's loss bound B, or where it has none the end of the loss histogram. The best threshold is a
    quantile of the losses, and so within [0, R] where these are. No honest move between two points of that range
    is longer than R. A quantile above it is reached in several rounds.

    A round of K local steps moves a threshold by at most K eta_c (1 - epsilon) max(1, 1/rho - 1), because its
    gradient is 1 - u (`fairness.rcvar`). Where that is at most R, no honest change is ever clipped.

    Args:
        plan: the plan.
        classes: how many there are.
    """
    bound = plan.objective.loss_bound
    return planned_loss_range(plan, classes) if bound is None else bound


MAX_SCORED_CLASSES = 10
"""With more classes an evaluation has no histograms of scores: they would be longer than everything else."""


def score_columns(plan: Plan, classes: int) -> int:
    """Return how many histograms of scores an evaluation sums for each split; 0 unless the plan asks for them.

    Args:
        plan: the plan.
        classes: how many there are; two need one histogram, of the score of class 1.
    """
    if not plan.evaluation.scores or classes > MAX_SCORED_CLASSES:
        return 0
    return 1 if classes == 2 else classes


def why_uncalibrated(plan: Plan, classes: int) -> str:
    """Return why the plan's models get no calibration, as the end of a sentence; empty where they get one.

    Args:
        plan: the plan.
        classes: how many there are; 0 where unknown.
    """
    if not predicts_classes(plan):
        return "its answers are no classes"
    if protects_records(plan) or is_unevaluated(plan):
        return "no histogram of scores carries the noise that protects records or sites"
    if not plan.evaluation.scores:
        return "the plan sums no scores (evaluation.scores: false)"
    if classes > MAX_SCORED_CLASSES:
        return f"with more than {MAX_SCORED_CLASSES} classes no scores are summed"
    return "the plan asks for none (evaluation.calibration: none)" if plan.evaluation.calibration == "none" else ""


def why_no_sets(plan: Plan, classes: int) -> str:
    """Return why a plan's models get no prediction sets, as the end of a sentence; empty where they may get some.

    Args:
        plan: the plan.
        classes: how many there are; 0 where unknown.
    """
    loss, classified = plan.task.loss, predicts_classes(plan)
    faults = {
        "the plan asks for none (evaluation.sets: null)": plan.evaluation.sets is None,
        f"no set of answers follows from the {loss.title}": not (classified or predicts_number(loss)),
        "under noise that protects records or sites no threshold keeps a promise": (
            protects_records(plan) or is_unevaluated(plan)
        ),
        "the plan sums no scores (evaluation.scores: false)": classified and not plan.evaluation.scores,
        f"with more than {MAX_SCORED_CLASSES} classes no scores are summed": (
            classified and classes > MAX_SCORED_CLASSES
        ),
    }
    return next((fault for fault, holds in faults.items() if holds), "")


def set_group_size(plan: Plan, stated: SetsSection) -> float:
    """Return the least share of people that a group has which prediction sets promise something."""
    return plan.objective.worst_group_size if stated.group_size is None else stated.group_size


# ------------------------------------------------------------------ how features and targets are scaled


def standardises(plan: Plan, numeric_columns: int | None = None) -> bool:
    """Return whether columns take the overall means and deviations: the plan asks so, and there are any.

    A target that is a number is such a column beside those of the features.

    Args:
        plan: the plan.
        numeric_columns: how many the features have, where their schema is known; None to go by the plan alone.
            The two differ only where the plan cannot tell, see `TaskSection.has_numeric_columns`.
    """
    if plan.task.standardize != "secure" or is_unevaluated(plan):
        return False
    if predicts_number(plan.task.loss):
        return True
    return plan.task.has_numeric_columns if numeric_columns is None else numeric_columns > 0


def carries_scaling(plan: Plan) -> bool:
    """Return whether the scaling of the features comes with weights or references, and no sum is made of it."""
    stated = plan.training.initial
    with_references = given_references(plan) is not None and standardises(plan)
    return with_references or (stated is not None and stated.scaling is not None)


def sums_columns(plan: Plan, numeric_columns: int | None = None) -> bool:
    """Return whether a run begins with the standardisation sum; the arguments are those of `standardises`."""
    return standardises(plan, numeric_columns) and not carries_scaling(plan)


def rounds_before(plan: Plan) -> int:
    """Return how many of the plan's rounds an earlier run has done, which this one continues from."""
    stated = plan.training.initial
    return 0 if stated is None or stated.continues is None else stated.continues.rounds


def lost_before(plan: Plan) -> int:
    """Return how many attempts at rounds an earlier run has given up, which this one continues from."""
    stated = plan.training.initial
    return 0 if stated is None or stated.continues is None else stated.continues.lost_rounds


def evaluates_beginning(plan: Plan) -> bool:
    """Return whether the model before round 1 may be evaluated.

    Two evaluations of one model over different sites can be subtracted, and show the figures of the sites that
    they do not share. So given weights are evaluated only where these very sites have evaluated them before.
    """
    stated = plan.training.initial
    # A continued run is behind its first evaluation.
    return stated is None or stated.continues is not None or stated.same_sites


def threshold_beginning(plan: Plan) -> float | Literal["bound", "quantile"]:
    """Return where the threshold before round 1 comes from: a number, the evaluation before round 1, or neither.

    Neither is the bound, 1, or what comes with given weights. Where the plan does not say: the evaluation, which
    is made anyway, unless no threshold is learnt or noise would drown its quantile.
    """
    stated, given = plan.training.threshold_init, plan.training.initial
    if stated is None:
        carried = given is not None and given.threshold is not None
        stated = "bound" if carried or is_noised(plan) or not learns_threshold(plan) else "quantile"
    return "bound" if stated == "quantile" and not evaluates_beginning(plan) else stated


def earlier_plans(plan: Plan) -> tuple[str, ...]:
    """Return the digests of the plans whose run this plan continues, the oldest first."""
    stated = plan.training.initial
    return () if stated is None or stated.continues is None else stated.continues.plans


def surveys(plan: Plan) -> bool:
    """Return whether a run begins with a sum that describes every column."""
    return plan.task.survey


def scales_by_ranges(plan: Plan) -> bool:
    """Return whether features are scaled by their declared ranges, without any sum."""
    return is_by_ranges(plan.task.standardize)


def is_by_ranges(standardize: str) -> bool:
    """Return whether `task.standardize`, as a plan or a saved model states it, means declared ranges."""
    return standardize == "ranges"


def is_by_sums(standardize: str) -> bool:
    """Return whether `task.standardize` means the overall means and deviations, which a saved model carries."""
    return standardize == "secure"


def has_nothing_to_standardise(plan: Plan) -> bool:
    """Return whether the plan asks for standardised columns and its data have none."""
    has_columns = plan.task.has_numeric_columns or predicts_number(plan.task.loss)
    return plan.task.standardize == "secure" and not has_columns


def target_is_unscaled(plan: Plan) -> bool:
    """Return whether the plan predicts a number that is trained in its own unit: no sum and no range scales it."""
    loss = plan.task.loss
    if not isinstance(loss, SquaredLoss | HuberLoss | PinballLoss) or standardises(plan):
        return False
    return loss.target_range is None
