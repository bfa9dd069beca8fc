"""The settings of a plan that advice tries and recommends, and the plan that has one of them.

Decides which keys of a plan a setting changes, so that what is tried, what is written and what is checked later
are one thing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fedfair.plan.derived import may_measure_excess, measure_of, measures_excess, minimises_objective
from fedfair.plan.digest import format_digest
from fedfair.plan.learning_rates import adapts_steps, server_optimizer_of, server_rate
from fedfair.plan.schema import Plan
from fedfair.plan.sections import Measure, ObjectiveSection
from fedfair.plan.sources import CsvSource
from fedfair.studies.advice.document import Recommendation

FOLLOWS = "fedsrcvar"
AVERAGES = "fedavg"

_PLACES = ("train", "test", "train_of", "collaborator")
"""Where a simulation finds the records of a table, and whose each is: no part of the task itself."""


@dataclass(frozen=True, slots=True)
class AdvisedSetting:
    """The keys of a plan that advice is about.

    Attributes:
        measure: of the objective.
        worst_group_size: rho; 1 for plain average training.
        tradeoff: epsilon; 1 for plain average training.
        learning_rate: the rate that decides the size of a step; None for the plan's own.
    """

    measure: Measure
    worst_group_size: float
    tradeoff: float
    learning_rate: float | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether it is plain average training."""
        return self.worst_group_size == 1.0 or self.tradeoff == 1.0


PLAIN = AdvisedSetting("loss", 1.0, 1.0)
_USUAL = ObjectiveSection()
EXCESS = AdvisedSetting("excess", _USUAL.worst_group_size, _USUAL.tradeoff)
"""What a new workspace states: the measure that won on most tables (docs/results/measures)."""

LOSS = AdvisedSetting("loss", 0.3, 0.3)
"""What is tried where a plan cannot measure the excess and no search has found a size."""


def plan_with(plan: Plan, setting: AdvisedSetting) -> Plan:
    """Return a plan with a setting; with plain averaging, its worst group is everybody, by whom it is judged.

    Raises:
        PlanError: the plan cannot have it.
    """
    training: dict[str, object] = {}
    if setting.is_plain:
        everybody = {"worst_group_size": 1.0, "tradeoff": 1.0}
        objective: dict[str, object] = {"measure": "loss", "reference": None, **everybody}
        if plan.training.algorithm != AVERAGES:
            training = {"algorithm": AVERAGES, "options": {}}
    else:
        objective = {
            "measure": setting.measure,
            "worst_group_size": setting.worst_group_size,
            "tradeoff": setting.tradeoff,
        }
        if setting.measure == "loss":
            objective["reference"] = None
        follows = minimises_objective(plan) and (setting.measure == "loss" or plan.training.algorithm == FOLLOWS)
        if not follows:
            training = {"algorithm": FOLLOWS, "options": {}}
    if setting.learning_rate is not None:
        training |= rate_keys(plan, setting.learning_rate)
    return plan.with_(objective=objective, training=training)


def rate_keys(plan: Plan, rate: float) -> dict[str, object]:
    """Return the keys of `training` that set the rate which decides the size of a step."""
    if not adapts_steps(plan):
        return {"learning_rate": rate}
    stated = server_optimizer_of(plan).model_dump(exclude_unset=True)
    return {"server_optimizer": {**stated, "learning_rate": rate}}


def rate_of(plan: Plan) -> float:
    """Return the rate that decides the size of a step."""
    return server_rate(plan) if adapts_steps(plan) else plan.training.learning_rate


def setting_of(plan: Plan) -> AdvisedSetting:
    """Return the setting that a plan has; plain where its algorithm follows no objective."""
    if not minimises_objective(plan):
        return PLAIN
    stated = plan.objective
    found = AdvisedSetting(measure_of(plan), stated.worst_group_size, stated.tradeoff)
    return PLAIN if found.is_plain else found


def recommended_setting(found: Recommendation) -> AdvisedSetting:
    """Return the setting of a recommendation."""
    if found.kind == "plain":
        return AdvisedSetting("loss", 1.0, 1.0, found.learning_rate)
    return AdvisedSetting(found.measure, found.worst_group_size, found.tradeoff, found.learning_rate)


def may_try_excess(plan: Plan) -> bool:
    """Return whether a plan could follow the excess, or does already."""
    return measures_excess(plan) or may_measure_excess(plan) or may_measure_excess(plan_with(plan, _ANY_LOSS))


_ANY_LOSS = AdvisedSetting("loss", EXCESS.worst_group_size, EXCESS.tradeoff)


def task_digest(plan: Plan) -> str:
    """Return the digest of what is learnt from which columns, wherever the records are and however divided."""
    task = plan.task.model_dump(mode="json", exclude={"partition", "test_fold"})
    if isinstance(plan.task.data, CsvSource):
        table = task["data"]["csv"]
        task["data"] = {"csv": {key: value for key, value in table.items() if key not in _PLACES}}
    text = json.dumps(task, sort_keys=True, separators=(",", ":"))
    return format_digest(hashlib.sha256(text.encode()).digest())
