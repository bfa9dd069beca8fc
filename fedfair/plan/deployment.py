"""Checks that a plan can be run by real processes, and not in simulation only."""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.errors import PlanError
from fedfair.plan.algorithms import check_deployable
from fedfair.plan.known_groups import group_obstacles
from fedfair.plan.schema import CsvSource, Plan
from fedfair.plan.sources import BUILT_IN

MAX_CONNECTED = 1000
"""Collaborators that one aggregator serves: each has a stream, and one late site delays all. Masks allow fewer."""


def check_deployment(plan: Plan) -> None:
    """Refuse to deploy what runs in simulation only.

    Raises:
        PlanError: the algorithm would have to reveal more than sums, knows groups that the plan does not tell,
            or too many collaborators would connect.
    """
    check_deployable(plan.training.algorithm)
    for obstacle in group_obstacles(plan):
        raise PlanError(
            obstacle,
            "name a column of task.data.csv.categorical, or null for the label; `fedfair simulate` takes any",
        )
    count = len(plan.federation.collaborators)
    if count > MAX_CONNECTED:
        raise PlanError(
            f"federation.collaborators: {count} sites cannot connect to one aggregator, but {MAX_CONNECTED} can",
            "run it with `fedfair simulate`, or name fewer collaborators",
        )


def refuse_records_of_sites(plan: Plan) -> None:
    """Refuse to look on one machine for everybody's records, where the plan says that each site has its own.

    Raises:
        PlanError: the plan names no records that one machine could read and divide.
    """
    task = plan.task
    if task.data in BUILT_IN or task.partition is not None or len(plan.federation.collaborators) == 1:
        return
    files = isinstance(task.data, CsvSource) and (task.data.csv.train_of or task.data.csv.train)
    if files if isinstance(task.data, CsvSource) else task.owner_column is not None:
        return
    raise PlanError(
        "by this plan each site has records of its own, and nothing divides those of one machine",
        "at a site give its own file: `fedfair evaluate -c collaborator.yaml`; everywhere else let the sites "
        "evaluate together: `fedfair aggregator evaluate`. To change the plan would make it another one",
    )


def simulation_only(plan: Plan) -> Iterator[str]:
    """Yield why a plan can only be simulated; nothing for one that can be deployed."""
    try:
        check_deployment(plan)
    except PlanError as fault:
        yield f"simulation only: {fault.message}; {fault.remedy}"
