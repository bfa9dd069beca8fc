"""Checks that a plan can be run by real processes, and not in simulation only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.plan.algorithms import check_deployable
from fedfair.plan.derived import trains
from fedfair.plan.known_groups import group_obstacles
from fedfair.plan.schema import Plan
from fedfair.plan.sources import BUILT_IN, CsvSource

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


def check_trains(plan: Plan) -> Plan:
    """Return a plan that trains a model.

    Raises:
        PlanError: it asks for statistics of columns.
    """
    if trains(plan):
        return plan
    raise PlanError(
        "this plan asks for statistics of columns and trains no model",
        "run it with `fedfair simulate` or `fedfair aggregator start`, or name a plan that trains one",
    )


def refuse_records_of_sites(plan: Plan, root: Path) -> None:
    """Refuse to look on one machine for the records of all, where the plan says that each site has its own.

    Args:
        plan: the plan.
        root: the folder that the plan's paths start from.

    Raises:
        PlanError: one machine could not read and divide the records, or the file for that is not here.
    """
    task = plan.task
    if task.data in BUILT_IN:
        return
    fault = ""
    if isinstance(task.data, CsvSource):
        table = task.data.csv
        files = [*table.train_of.values()] or [file for file in (table.train,) if file is not None]
        missing = [file for file in files if not (root / file).exists()]
        if missing:
            fault = f"{root / missing[0]}, which a simulation would read, is not here"
        elif not files:
            fault = "and the plan names no file of theirs for one machine"
    elif task.partition is None and task.owner_column is None and len(plan.federation.collaborators) > 1:
        fault = "and nothing divides those of one machine"
    if fault:
        raise PlanError(
            f"by this plan each site has records of its own, {fault}",
            "at a site give its own file: `fedfair evaluate -c collaborator.yaml`; everywhere else let the sites "
            "evaluate together: `fedfair aggregator evaluate`. To change the plan would make it another one",
        )


def simulation_only(plan: Plan) -> Iterator[str]:
    """Yield why a plan can only be simulated; nothing for one that can be deployed."""
    try:
        check_deployment(plan)
    except PlanError as fault:
        yield f"simulation only: {fault.message}; {fault.remedy}"
