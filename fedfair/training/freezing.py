"""Writes the model before round 1 beside its plan, where torch is installed: for hosts that have none."""

from __future__ import annotations

from pathlib import Path

from fedfair.plan.loading import load_plan, workspace_of
from fedfair.run.initial_model import write_initial_model
from fedfair.training.binding import PlanBinding, plan_binding


def freeze_plan(plan_file: Path) -> PlanBinding:
    """Write the model before round 1 beside its plan, and return what the plan is bound to.

    Raises:
        FedfairError: the plan or its model cannot be used, or the file cannot be written.
    """
    plan = load_plan(plan_file)
    made = plan_binding(plan, workspace_of(plan_file))
    write_initial_model(plan_file, plan, made.layout, made.vector, made.schema)
    return made
