"""`plan.yaml` as a validated plan.

Decides which files make up a plan: the plan itself, and beside it `roster.yaml`, which `fedfair plan enroll`
writes so that no machine edits a file that people wrote. The YAML rules are `yaml_reader.py`'s, the schema
`schema.py`'s and the words for faults `validation_messages.py`'s.
"""

from __future__ import annotations

import os
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import Document, read_document

PLAN_FOLDER = "plan"
ROSTER_FILE = "roster.yaml"
UPDATE_FOLDER = ".update"
"""Beside the plan's folder while another plan takes its place (`fedfair.workspace.update`)."""


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Return the plan in a file, with the roster beside it.

    Args:
        path: the file, such as `plan/plan.yaml` in a workspace. The plan remembers this workspace.

    Raises:
        PlanError: a file cannot be read or breaks the schema; the message tells all faults with their lines.
    """
    path = Path(path)
    _check_whole(workspace_of(path))
    plan = validated(Plan, plan_document(path))
    plan._workspace = workspace_of(path)  # noqa: SLF001 - no part of what the plan states
    return plan


def _check_whole(workspace: Path) -> None:
    if (workspace / UPDATE_FOLDER).exists():
        raise PlanError(
            f"an update of {workspace} was interrupted, so its plan is not whole",
            "run `fedfair workspace import --update ARCHIVE` again, which finishes it first",
        )


def plan_document(path: Path) -> Document:
    """Return what is written in a plan's file and in the roster beside it, not yet validated.

    Raises:
        PlanError: a file cannot be read, or both hold a roster.
    """
    return _with_roster(read_document(path))


def workspace_of(plan_path: Path) -> Path:
    """Return the workspace of a plan: the folder around `plan/plan.yaml`, or else the plan's own folder."""
    folder = plan_path.resolve().parent
    return folder.parent if folder.name == PLAN_FOLDER else folder


def roster_path(plan_path: Path) -> Path:
    """Return where the roster beside a plan is."""
    return plan_path.parent / ROSTER_FILE


def _with_roster(document: Document) -> Document:
    path = roster_path(document.path)
    federation = document.values.get("federation")
    if not path.exists() or not isinstance(federation, dict):
        return document
    if "roster" in federation:
        spot = document.spot(("federation", "roster"))
        raise PlanError(
            f"{spot}: federation.roster: the roster is also in {path}",
            "keep one of them: remove the key or the file",
        )
    roster = read_document(path)
    values = {**document.values, "federation": {**federation, "roster": dict(roster.values)}}
    moved = {("federation", "roster", *place): spot for place, spot in roster.spots.items()}
    return Document(document.path, values, {**document.spots, **moved})
