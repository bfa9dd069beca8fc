"""The threshold before round 1, and what the opening of a standardisation sum makes of it. No torch."""

from __future__ import annotations

import math
from dataclasses import replace

from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.target_scaling import loss_unit
from fedfair.plan.derived import threshold_beginning
from fedfair.plan.schema import Plan
from fedfair.run.state import RunState


def initial_threshold(plan: Plan, scaling: FeatureScaling | None) -> float:
    """Return c before round 1: that of the initial weights, a number of the plan, or the bound B; else 1.

    The 1 is a loss of the local steps, which a scaling of the target gives its unit.
    """
    begins, given, bound = plan.training.initial, threshold_beginning(plan), plan.objective.loss_bound
    upper = math.inf if bound is None else bound
    if begins is not None and begins.threshold is not None:
        return min(begins.threshold, upper)
    if isinstance(given, str):
        return loss_unit(plan.task.loss, scaling) if bound is None else bound
    return min(float(given), upper)


def with_scaling(plan: Plan, state: RunState, scaling: FeatureScaling) -> RunState:
    """Return the state with the scaling that its sum opened; a threshold that nobody stated takes its unit."""
    threshold = initial_threshold(plan, scaling)
    model = state.model
    if threshold != model.threshold:
        model = replace(model, threshold=threshold)
    return replace(state, scaling=scaling, model=model)
