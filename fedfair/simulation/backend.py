"""Chooses the cohort that computes a simulation: one collaborator after the other, all at once, or many workers.

Decides what `auto` means and refuses what cannot be vectorised, or sharded. The draws, the rule and the result are
the same with all; see `vectorised/clients.py` and `sharded/clients.py` for the rounding. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedfair.errors import PlanError
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import is_unevaluated
from fedfair.plan.losses import OrdinalLoss, OwnLoss, SegmentationLoss
from fedfair.plan.schema import Plan
from fedfair.plan.task import LinearModel, MlpModel
from fedfair.terms.table import terms_of

Engine: TypeAlias = Literal["auto", "loop", "vectorised", "ray"]


@dataclass(frozen=True, slots=True)
class RayCluster:
    """The workers of the engine `ray`.

    Attributes:
        address: of a running cluster: auto, HOST:PORT or ray://HOST:PORT; None takes `RAY_ADDRESS`, or starts Ray
            on this machine.
        workers: how many, at least 1; None for one on every free processor.
    """

    address: str | None = None
    workers: int | None = None


def chosen_engine(plan: Plan, engine: Engine) -> Literal["loop", "vectorised"]:
    """Return the engine for a plan, or that of every worker; `auto` is vectorised where that is possible.

    Raises:
        PlanError: vectorised or ray is asked for, and the plan cannot be.
    """
    reason = obstacle(plan)
    if engine == "ray" and ALGORITHMS[plan.training.algorithm].centralised:
        raise PlanError(
            f"training.algorithm: {plan.training.algorithm} trains on the records of all in one place, "
            "so there is nothing to shard over workers",
            "simulate it with --engine auto or loop",
        )
    if engine == "vectorised" and reason is not None:
        raise PlanError(f"this plan cannot be vectorised: {reason}", "simulate it with --engine auto or loop")
    if engine == "loop" or reason is not None:
        return "loop"
    return "vectorised"


def obstacle(plan: Plan) -> str | None:  # noqa: PLR0911 - one return for each reason
    """Return in words why all collaborators cannot be computed at once; None where they can."""
    training = plan.training
    if not isinstance(plan.task.model, LinearModel | MlpModel) or training.parameters is not None:
        return "only the gradient of a linear model or an mlp is written down, all of whose layers are trained"
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
    for term in terms_of(plan):
        if term.at_sites and not term.batched:
            return f"{term.name} is computed for one collaborator at a time"
    if training.compile:
        return "training.compile is true, and nothing is left to compile"
    return None
