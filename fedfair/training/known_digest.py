"""The digest of a plan for whoever asks: from the workspace where it can tell, and else by making the model."""

from __future__ import annotations

from pathlib import Path

from fedfair.extras import is_installed
from fedfair.plan.loading import workspace_of
from fedfair.plan.schema import Plan
from fedfair.run.initial_model import is_current, read_initial_model


def digest_of(plan: Plan, plan_file: Path) -> bytes:
    """Return the 32 bytes that sites approve.

    The model before round 1 in the workspace spares the seconds that torch takes to load. A site that approves a
    plan makes the model itself.

    Raises:
        FedfairError: the model can neither be read nor made.
    """
    if is_current(plan_file, plan) or not is_installed("torch"):
        return read_initial_model(plan_file, plan).plan_digest
    from fedfair.training.binding import plan_binding

    return plan_binding(plan, workspace_of(plan_file)).digest
