"""What `fedfair.simulate` and `fedfair.advise` are given: a plan, its path, or the records of each site."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedfair.api.arrays import ArrayFederation, federation_of
from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.tables.dataset import Splits
from fedfair.tables.in_memory import LabelCoding
from fedfair.tables.source import load_federation


def read_federation(
    source: object, plan: object, workspace: str | os.PathLike[str] | None, sections: Mapping[str, Any]
) -> tuple[ArrayFederation, Path]:
    """Return a plan with the records of all sites, and the folder that its paths start from.

    Args:
        source: a plan, the path of one, or the records of each site by its name.
        plan: the plan for such records, or its path; None otherwise.
        workspace: the folder from which a plan's paths start; None for that of the plan, or the present one.
        sections: keys of a plan for records without one.

    Raises:
        PlanError: the plan or a section breaks a rule, or both are given.
        DataError: records are missing, or are no numbers of one shape.
    """
    if isinstance(source, Mapping):
        made = federation_of(source, None if plan is None else _read(plan), sections)
        return made, _root(made.plan, workspace)
    if plan is not None or sections:
        given = "plan" if plan is not None else next(iter(sections))
        raise PlanError(
            f"{given} is given beside a plan, which states everything itself",
            f"write it into plan.yaml, or give another plan: plan.with_({given}=...)",
        )
    read = _read(source)
    root = _root(read, workspace)
    sites = load_federation(read, root)
    return ArrayFederation(read, sites, _coding(read, sites)), root


def _read(plan: object) -> Plan:
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, str | os.PathLike):
        return load_plan(plan)
    raise PlanError(
        f"{type(plan).__name__} is neither a plan, nor the path of one, nor a mapping from sites to their records",
        "give fedfair.load_plan(...), 'plan/plan.yaml', or {'clinic-a': (X, y), ...}",
    )


def _root(plan: Plan, workspace: str | os.PathLike[str] | None) -> Path:
    return Path(workspace) if workspace is not None else plan.workspace or Path.cwd()


def _coding(plan: Plan, sites: Mapping[ParticipantId, Splits]) -> LabelCoding:
    data = plan.task.data
    values = data.csv.label_classes if isinstance(data, CsvSource) else None
    return LabelCoding(values, next(iter(sites.values())).train.schema.classes)
