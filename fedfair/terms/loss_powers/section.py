"""When a power of the sites' losses weighs their changes, and what the sum is divided by then."""

from __future__ import annotations

from fedfair.aggregation.header import Field, Number
from fedfair.aggregation.training_sum import UPDATE, Divisor
from fedfair.plan.schema import Plan

CURVATURE = Field("curvature", Number.REAL, lone=UPDATE)

DIVISOR = Divisor("curvature", "curvatures", "lower training.options.loss_power or learning_rate")


def applies(plan: Plan) -> bool:
    """Return whether the plan's algorithm is q-FFL."""
    return plan.training.algorithm == "qffl"


def fields(_plan: Plan, _classes: int) -> tuple[Field, ...]:
    """Return the curvature that takes the place of the weight."""
    return (CURVATURE,)
