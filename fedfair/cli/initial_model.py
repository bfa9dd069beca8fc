"""Puts the model before round 1 beside a plan that is about to travel."""

from __future__ import annotations

from pathlib import Path

from fedfair.extras import is_installed
from fedfair.plan.loading import load_plan
from fedfair.process.terminal import warn


def put_initial_model(plan_file: Path) -> None:
    """Put the model before round 1 beside the plan, where torch is installed and the plan says enough."""
    from fedfair.run.initial_model import REMEDY, initial_model_file, is_current, read_initial_model

    if not plan_file.is_file():
        return
    plan = load_plan(plan_file)
    if is_current(plan_file, plan):
        # Where the plan names its weights, what travels must hold them.
        read_initial_model(plan_file, plan)
        return
    if is_installed("torch"):
        from fedfair.tables.source_modules import declared_schema
        from fedfair.training.freezing import freeze_plan

        if declared_schema(plan) is not None:
            freeze_plan(plan_file)
            return
    if plan.training.initial is not None:
        # Its weights are nowhere else: the fault says what is wrong with the file, which stays.
        read_initial_model(plan_file, plan)
    place = initial_model_file(plan_file)
    place.unlink(missing_ok=True)
    warn(f"{place} is not exported, and no aggregator starts without it; {REMEDY}")
