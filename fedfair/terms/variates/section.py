"""When a plan has control variates, what its sums tell for them, and what that shows."""

from __future__ import annotations

from fedfair.aggregation.header import Bits, Field, Number
from fedfair.plan.schema import Plan

NEW_WEIGHT = Field("new_weight", Number.COUNT, lone=Bits(0))
"""A site's weight again where no sum has counted it before, or 0."""


def applies(plan: Plan) -> bool:
    """Return whether local steps are corrected by control variates."""
    return plan.training.control_variates


def fields(_plan: Plan, _classes: int) -> tuple[Field, ...]:
    """Return the weight of those whom a sum counts for the first time."""
    return (NEW_WEIGHT,)


def shown(_plan: Plan) -> str:
    """Return what a round shows where a site can be left out of it."""
    return (
        "training.control_variates: true shows the weight of the sites that a round counts for the "
        "first time, and so that of a site that joins late and alone"
    )
