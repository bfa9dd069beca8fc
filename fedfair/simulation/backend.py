"""Chooses the cohort that computes a simulation: one collaborator after the other, or all at once.

Decides what `auto` means and refuses what cannot be vectorised. The draws, the rule and the result are the same
with both; see `vectorised/clients.py` for the rounding. No torch.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from fedfair.errors import PlanError
from fedfair.plan.derived import is_unevaluated
from fedfair.plan.losses import OrdinalLoss, OwnLoss, SegmentationLoss
from fedfair.plan.schema import Plan
from fedfair.plan.task import LinearModel, MlpModel

Engine: TypeAlias = Literal["auto", "loop", "vectorised"]


def chosen_engine(plan: Plan, engine: Engine) -> Literal["loop", "vectorised"]:
    """Return the engine for a plan; `auto` is vectorised where that is possible.

    Raises:
        PlanError: vectorised is asked for, and the plan cannot be.
    """
    reason = obstacle(plan)
    if engine == "vectorised" and reason is not None:
        raise PlanError(f"this plan cannot be vectorised: {reason}", "simulate it with --engine auto or loop")
    if engine == "loop" or reason is not None:
        return "loop"
    return "vectorised"


def obstacle(plan: Plan) -> str | None:  # noqa: PLR0911 - one return for each reason
    """Return in words why all collaborators cannot be computed at once; None where they can."""
    training = plan.training
    if not isinstance(plan.task.model, LinearModel | MlpModel):
        return "task.model is neither linear nor mlp, and only their gradient is written down"
    if isinstance(plan.task.loss, OwnLoss):
        return f"task.loss {plan.task.loss.name} is called with the records of one collaborator at a time"
    if isinstance(plan.task.loss, OrdinalLoss):
        return "task.loss ordinal learns borders between classes, and only linear layers are written down"
    if isinstance(plan.task.loss, SegmentationLoss):
        return "task.loss segmentation gives the outputs a shape, and only rows of outputs are written down"
    if training.precision not in {"fp32", "fp64"}:
        return f"training.precision is {training.precision}, not fp32 or fp64"
    if is_unevaluated(plan):
        return "privacy.collaborator_level clips and rounds the change of every collaborator by itself"
    if training.compile:
        return "training.compile is true, and nothing is left to compile"
    return None
