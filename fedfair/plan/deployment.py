"""Checks that a plan can be run by real processes, and not in simulation only."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.errors import PlanError
from fedfair.plan.algorithms import check_deployable
from fedfair.plan.schema import Plan

MAX_CONNECTED = 1000
"""Collaborators that one aggregator serves: each has a stream, and one late site delays all. Masks allow fewer."""


def check_deployment(plan: Plan) -> None:
    """Refuse to deploy what runs in simulation only.

    Raises:
        PlanError: the algorithm would have to reveal more than sums, or too many collaborators would connect.
    """
    check_deployable(plan.training.algorithm)
    count = len(plan.federation.collaborators)
    if count > MAX_CONNECTED:
        raise PlanError(
            f"federation.collaborators: {count} sites cannot connect to one aggregator, but {MAX_CONNECTED} can",
            "run it with `fedfair simulate`, or name fewer collaborators",
        )


def simulation_only(plan: Plan) -> Iterator[str]:
    """Yield why a plan can only be simulated; nothing for one that can be deployed."""
    try:
        check_deployment(plan)
    except PlanError as fault:
        yield f"simulation only: {fault.message}; {fault.remedy}"
