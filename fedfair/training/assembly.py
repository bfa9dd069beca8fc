"""From a plan to what computes a local step: its objective, its model, and how a step is made on it.

The mapping from the plan's words is here because `fairness` and `privacy` know no plans. What a site computes with
these is `client.py`'s.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch

from fedfair.errors import PlanError
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.plan.derived import answers_batches, learns_threshold, planned_loss_range, protects_records
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.learning_rates import FIRST_ROUND, local_rates
from fedfair.plan.parameters import ParametersSection
from fedfair.plan.privacy import SampleLevelSection
from fedfair.plan.schema import Plan
from fedfair.privacy.batch_parts import ALONE, BatchParts
from fedfair.privacy.sample_level import Mechanism, PrivateSteps
from fedfair.training.dp_sgd import (
    trainable_entries,
    watched,
)
from fedfair.training.eight_bits import hold_in_eight_bits
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import LocalSteps, LossWeighting, loss_function
from fedfair.training.loss_weightings.best_response import best_response
from fedfair.training.loss_weightings.fedavg import equal_coefficients
from fedfair.training.loss_weightings.fedsrcvar import tail_weighting
from fedfair.training.models import build_model
from fedfair.training.record_loss import RecordLoss, record_loss
from fedfair.training.travelling import freeze_tensors, parts_of


def objective_of(plan: Plan, loss_unit: float = 1.0) -> Objective:
    """Return the objective that the plan describes.

    Args:
        plan: the plan.
        loss_unit: how many units of the losses that it is asked about one loss of the local steps has, for which
            gamma is stated.
    """
    stated = plan.objective
    smoothed = smoothing(stated.smoothing.name, stated.smoothing.gamma * loss_unit)
    return Objective(stated.worst_group_size, stated.tradeoff, smoothed, stated.loss_bound)


def flat_model(plan: Plan, schema: FeatureSchema, device: torch.device, workspace: Path) -> FlatModel:
    """Return the plan's model before round 1 on a device, as one vector.

    Args:
        plan: the plan.
        schema: what the model must accept and return.
        device: where it will be trained.
        workspace: where the source of a "module:function" is.

    Raises:
        PlanError: the model does not fit the plan, or the frozen parameters are not those that the plan names.
        DataError: the file of the frozen parameters cannot be read.
    """
    module = built(plan, schema, workspace)
    parts, stated = parts_of(module, plan.training.parameters), plan.training.initial
    named = None if stated is None else stated.frozen
    if named is not None:
        _freeze(plan, module, parts.travel or frozenset())
    model = FlatModel(module, width_of(plan), device, loss_of(plan, schema, workspace), parts)
    if named is not None and model.layout.frozen != parse_digest(named):
        raise PlanError(
            f"{plan.frozen_place} holds other frozen parameters than the plan names: "
            f"{format_digest(model.layout.frozen) if model.layout.frozen else 'none'}, not {named}",
            "bring the file that belongs to the plan; or the lead: run `fedfair plan freeze --from FILE` again",
        )
    held_as_stated(model, plan.training.parameters)
    return model


def held_as_stated(model: FlatModel, stated: ParametersSection | None) -> None:
    """Hold the frozen layers of a model as a plan states it; their digest is of the values before."""
    if stated is not None and stated.frozen_bits is not None:
        hold_in_eight_bits(model.module, model.moving)


def width_of(plan: Plan) -> torch.dtype:
    """Return the width of a plan's model and of its vector; half widths keep a float32 model."""
    return torch.float64 if plan.training.precision == "fp64" else torch.float32


def built(plan: Plan, schema: FeatureSchema, workspace: Path) -> torch.nn.Module:
    """Return the plan's model as its seed makes it, with its adapters; arguments and faults as in `flat_model`."""
    stated = plan.training.parameters
    lora = None if stated is None else stated.lora
    return build_model(plan.task.model, schema, plan.training.seed, width_of(plan), workspace, lora)


def _freeze(plan: Plan, module: torch.nn.Module, travels: Collection[str]) -> None:
    place = plan.frozen_place
    if place is None or not place.exists():
        raise PlanError(
            f"{place or 'a file'} is missing: the plan names frozen parameters, which every site has itself",
            "bring the file that `fedfair plan freeze --from` wrote beside the plan, or name your own copy as "
            "frozen in collaborator.yaml",
        )
    freeze_tensors(module, travels, place)


def loss_of(plan: Plan, schema: FeatureSchema, workspace: Path) -> RecordLoss:
    """Return the plan's loss of single records; arguments and faults as in `flat_model`."""
    end = planned_loss_range(plan, schema.classes)
    return record_loss(plan.task.loss, schema, end, workspace, singly=protects_records(plan))


def loss_weighting(plan: Plan) -> LossWeighting:
    """Return what the plan makes of losses."""
    if answers_batches(plan):
        # DRO has no floor; BPF's objective, put through the inverse map, is the plan's own.
        floor = plan.objective.tradeoff if plan.training.algorithm == "bpf" else 0.0
        return best_response(plan.objective.worst_group_size, floor)
    return tail_weighting(objective_of(plan)) if learns_threshold(plan) else equal_coefficients


def local_steps(
    plan: Plan, model: FlatModel, schema: FeatureSchema, parts: BatchParts = ALONE
) -> LocalSteps | PrivateSteps:
    """Return how the plan makes a local step of round 1 on `model`, which private steps watch from now on.

    With `parts`, several processes make it together.

    Raises:
        PlanError: the model cannot be trained with the differential privacy that the plan asks for.
    """
    training, asked = plan.training, plan.privacy.sample_level
    losses = loss_function(model, training.precision, compiled=training.compile)
    rates = local_rates(plan, FIRST_ROUND)
    if asked is not None:
        gradients = watched(plan, model, schema)
        mechanism, trainable = mechanism_of(plan, asked), trainable_entries(model)
        return PrivateSteps(model, losses, gradients, mechanism, rates, trainable, parts)
    scaled = training.precision == "fp16"
    return LocalSteps(model, losses, loss_weighting(plan), rates, scaled=scaled, parts=parts)


def mechanism_of(plan: Plan, asked: SampleLevelSection) -> Mechanism:
    """Return what the plan does to the gradients of single records."""
    objective = objective_of(plan) if learns_threshold(plan) else None
    return Mechanism(objective, asked.noise_multiplier, asked.clip, asked.clipping, asked.threshold_scale)
