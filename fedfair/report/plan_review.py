"""Reviews a plan: warns of settings that it allows but probably does not mean, and notes what they are worth.

Neither stops anything; what must not run is refused by the plan's schema, or where its model is known.
No torch, unless noise protects whole collaborators and the workspace does not tell how large the model is.
"""

from __future__ import annotations

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
    measures_excess,
    quorum,
    target_is_unscaled,
    trains,
)
from fedfair.plan.description import percent
from fedfair.plan.learning_rates import adapts_steps
from fedfair.plan.losses import CROSS_ENTROPY
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.planned_releases import planned_releases
from fedfair.report.privacy_cost import privacy_cost, statistics_cost
from fedfair.results.privacy import plan_sensitivity
from fedfair.run.initial_model import is_current, read_initial_model
from fedfair.tables.text_table import listed
from fedfair.templates import sentences

SMALL_GROUP = 0.3
"""Below this share a plan is asked whether the group is above its critical size. On tables with noisy labels, such
as incomes and mortality, that of a linear model was 0.17 to 0.38 (docs/explain/group-size.md)."""

ACCOUNTANT_LIBRARY = "dp_accounting"

SHOWN = 4
"""So many names stand in a remark."""

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
    federation, noised = plan.federation, plan.privacy.sample_level
    small = plan.objective.worst_group_size < SMALL_GROUP and not measures_excess(plan)
    warnings = sentences(
        "fedfair.report",
        "plan_review.txt.jinja",
        part="warnings",
        plan=plan,
        masked=is_masked(plan),
        quorum=quorum(plan),
        nothing_to_standardise=has_nothing_to_standardise(plan),
        unscaled_target=target_is_unscaled(plan),
        unstable=_unstable_rate(plan),
        small_group=small and plan.task.loss == CROSS_ENTROPY and learns_threshold(plan),
        size=percent(plan.objective.worst_group_size),
        averaged=_averaged(plan, plan_file),
    )
    notes = sentences(
        "fedfair.report",
        "plan_review.txt.jinja",
        part="notes",
        plan=plan,
        unit=0.0 if noised is None else plan_sensitivity(plan, noised),
        worth="" if noised is None else _worth(plan, noised.delta),
        cost=_cost(plan, plan_file),
        unpinned=[name for name in federation.collaborators if name not in federation.roster],
    )
    return PlanReview((*simulation_only(plan), *warnings), notes)


def _cost(plan: Plan, plan_file: Path | None) -> str:
    """Return what noise for whole collaborators, or that of statistics, is worth; empty for other plans."""
    if not trains(plan):
        return statistics_cost(plan)
    return privacy_cost(plan, _parameters(plan, plan_file)) if is_unevaluated(plan) else ""


def _worth(plan: Plan, delta: float) -> str:
    if not is_installed(ACCOUNTANT_LIBRARY):
        return f"epsilon is not stated here: {install_command(EXTRAS[ACCOUNTANT_LIBRARY])}"
    worth = "; ".join(
        f"{epsilon(planned_releases(plan, records), delta):.3g} with {records}" for records in TYPICAL_RECORDS
    )
    return f"epsilon at a site is {worth} training records, if no sum is repeated"


def _parameters(plan: Plan, plan_file: Path | None) -> int:
    """Return how many numbers the plan's model has; 1 where that cannot be known here."""
    if plan_file is not None and is_current(plan_file, plan):
        return read_initial_model(plan_file, plan).layout.dimension
    if isinstance(plan.task.model, str) or not is_installed("torch"):
        return 1
    import torch

    from fedfair.tables.source_modules import declared_schema
    from fedfair.training.assembly import flat_model

    schema = declared_schema(plan)
    return 1 if schema is None else flat_model(plan, schema, torch.device("cpu"), Path()).layout.dimension


def _averaged(plan: Plan, plan_file: Path | None) -> str:
    """Return the names of the running statistics that travel; empty for none, or without a frozen plan."""
    if plan_file is None or not is_current(plan_file, plan):
        return ""
    layout = read_initial_model(plan_file, plan).layout
    return listed([entry.name for entry in layout.entries if not entry.trainable], SHOWN)


def _unstable_rate(plan: Plan) -> tuple[float, float] | None:
    """Return the threshold's rate and the stable limit that it is above; None where it is not."""
    if not learns_threshold(plan):
        return None
    training, objective = plan.training, plan.objective
    one_step = training.local_steps == 1 and training.local_epochs is None
    if adapts_steps(plan) and (training.schedule != "constant" or one_step):
        return None  # The limit is that of plain descent: docs/explain/defaults.md, "The threshold".
    rate = training.threshold_learning_rate
    used = training.learning_rate if rate is None else rate
    smoothness = smoothness_of(objective.smoothing.name, objective.smoothing.gamma)
    limit = stable_threshold_rate(objective.worst_group_size, objective.tradeoff, smoothness)
    return (used, limit) if used > limit else None
