"""Reviews a plan: warns of settings that it allows but probably does not mean, and notes what they are worth.

Neither stops anything; what must not run is refused by the plan's schema, or where its model is known.
No torch, unless noise protects whole collaborators and the workspace does not tell how large the model is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedfair.extras import EXTRAS, install_command, is_installed
from fedfair.fairness.smoothness import smoothness_of, stable_threshold_rate
from fedfair.plan.deployment import simulation_only
from fedfair.plan.derived import (
    has_nothing_to_standardise,
    is_masked,
    is_unevaluated,
    learns_threshold,
    quorum,
    target_is_unscaled,
)
from fedfair.plan.description import percent
from fedfair.plan.learning_rates import adapts_steps
from fedfair.plan.losses import CROSS_ENTROPY
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.planned_releases import planned_releases
from fedfair.report.privacy_cost import privacy_cost
from fedfair.results.privacy import plan_sensitivity
from fedfair.run.initial_model import is_current, read_initial_model

SMALL_GROUP = 0.3
"""Below this share a plan is asked whether the group is above its critical size. On tables with noisy labels, such
as incomes and mortality, that of a linear model was 0.17 to 0.38 (docs/explain/group-size.md)."""

ACCOUNTANT_LIBRARY = "dp_accounting"

TYPICAL_RECORDS = (1000, 100_000)
"""Epsilon is stated for so many training records at a site, because no plan knows their number."""


@dataclass(frozen=True, slots=True)
class PlanReview:
    """Remarks about a plan, the most serious first.

    Attributes:
        warnings: settings that are probably not meant; none for a plan without surprises.
        notes: what follows from settings that are meant, and what is left to do.
    """

    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def plan_review(plan: Plan, plan_file: Path | None = None) -> PlanReview:
    """Return the remarks about a plan.

    Args:
        plan: the plan.
        plan_file: its file, beside which the model before round 1 may be; None where it is in no file.

    Raises:
        PlanError: the noise for whole collaborators does not fit the ring.
    """
    return PlanReview(
        warnings=(
            *simulation_only(plan),
            *_protection(plan),
            *_clipping(plan),
            *_membership(plan),
            *_data(plan),
            *_threshold(plan),
            *_objective(plan),
        ),
        notes=(*_privacy(plan), *_collaborator_privacy(plan, plan_file), *_enrolment(plan)),
    )


def _protection(plan: Plan) -> Iterator[str]:
    if not is_masked(plan):
        yield "secure_aggregation.mode is off: the aggregator sees every site's own update in the clear"


def _privacy(plan: Plan) -> Iterator[str]:
    asked = plan.privacy.sample_level
    if asked is None:
        return
    unit = plan_sensitivity(plan, asked)
    worth = _worth(plan, asked.delta)
    yield (
        f"privacy.sample_level adds noise of deviation {asked.noise_multiplier * unit:.4g} (noise_multiplier x "
        f"{unit:.4g}, what one record can change) to every entry of a batch's sum; it grows like "
        f"1 / worst_group_size and matters less with a larger batch_size; {worth}"
    )


def _clipping(plan: Plan) -> Iterator[str]:
    asked = plan.privacy.sample_level
    if asked is not None and asked.clipping == "joint":
        yield (
            "privacy.sample_level.clipping is joint, which clips away the weight of the worst group: use "
            "before_weighting, except for comparison"
        )


def _worth(plan: Plan, delta: float) -> str:
    if not is_installed(ACCOUNTANT_LIBRARY):
        return f"epsilon is not stated here: {install_command(EXTRAS[ACCOUNTANT_LIBRARY])}"
    worth = "; ".join(
        f"{epsilon(planned_releases(plan, records), delta):.3g} with {records}" for records in TYPICAL_RECORDS
    )
    return f"epsilon at a site is {worth} training records, if no sum is repeated"


def _collaborator_privacy(plan: Plan, plan_file: Path | None) -> Iterator[str]:
    if is_unevaluated(plan):
        yield privacy_cost(plan, _parameters(plan, plan_file))


def _parameters(plan: Plan, plan_file: Path | None) -> int:
    """Return how many numbers the plan's model has; 1 where that cannot be known here."""
    if plan_file is not None and is_current(plan_file, plan):
        return read_initial_model(plan_file, plan).layout.dimension
    if isinstance(plan.task.model, str) or not is_installed("torch"):
        return 1
    import torch

    from fedfair.tables.declared import declared_schema
    from fedfair.training.assembly import flat_model

    schema = declared_schema(plan)
    return 1 if schema is None else flat_model(plan, schema, torch.device("cpu"), Path()).layout.dimension


def _membership(plan: Plan) -> Iterator[str]:
    if quorum(plan) == 1:
        yield "a sum may hold a single collaborator, and is then that collaborator's own update"


def _enrolment(plan: Plan) -> Iterator[str]:
    federation = plan.federation
    missing = [name for name in federation.collaborators if name not in federation.roster]
    if missing:
        remedy = "run `fedfair admit` or `fedfair plan enroll` before a deployment"
        yield f"no signing key is pinned for {', '.join(missing)}: {remedy}"


def _data(plan: Plan) -> Iterator[str]:
    if has_nothing_to_standardise(plan):
        yield "task.standardize is secure, but the data have no numeric columns: nothing will be standardised"
    if target_is_unscaled(plan):
        yield (
            "the target is trained in its own unit: where its values are far from 1, training hardly moves; set "
            "task.standardize: secure, or declare task.loss.target_range"
        )


def _threshold(plan: Plan) -> Iterator[str]:
    if not learns_threshold(plan):
        return
    training, objective = plan.training, plan.objective
    one_step = training.local_steps == 1 and training.local_epochs is None
    if adapts_steps(plan) and (training.schedule != "constant" or one_step):
        return  # The limit is that of plain descent: docs/explain/defaults.md, "The threshold".
    rate = training.threshold_learning_rate
    name = "threshold_learning_rate" if rate is not None else "learning_rate, which the threshold uses too,"
    used = training.learning_rate if rate is None else rate
    smoothness = smoothness_of(objective.smoothing.name, objective.smoothing.gamma)
    limit = stable_threshold_rate(objective.worst_group_size, objective.tradeoff, smoothness)
    if used > limit:
        yield f"training.{name} is {used:g}, above the stable limit {limit:.3g}: the threshold may oscillate"


def _objective(plan: Plan) -> Iterator[str]:
    objective, training = plan.objective, plan.training
    if training.algorithm == "fedsrcvar" and (objective.tradeoff == 1 or objective.worst_group_size == 1):
        yield "tradeoff or worst_group_size is 1: this is plain averaging (fedavg) under another name"
    is_log_loss = plan.task.loss == CROSS_ENTROPY
    if is_log_loss and learns_threshold(plan) and objective.worst_group_size < SMALL_GROUP:
        yield (
            f"worst_group_size is {percent(objective.worst_group_size)}: by log-loss and with noisy labels, the "
            "best model for so small a group is often the uniform guess, which serves everybody badly (the "
            "critical group size of Martinez et al. 2021); `fedfair plan advise` finds the smallest size that "
            "makes sense"
        )
    if not isinstance(training.batch_size, str) and training.batch_size * objective.worst_group_size < 1:
        yield (
            f"a batch of {training.batch_size} holds less than one record of the worst "
            f"{percent(objective.worst_group_size)}: gradients will be very noisy"
        )
