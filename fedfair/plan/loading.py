"""`plan.yaml` as a validated plan.

Decides which files make up a plan: the plan itself, and beside it `roster.yaml` and `plan.initial.yaml`. `fedfair
plan enroll` and `fedfair plan freeze --from` write these, so that no machine edits a file that people wrote. The
YAML rules are `yaml_reader.py`'s, the schema `schema.py`'s and the words for faults `validation_messages.py`'s.
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
INITIAL_SUFFIX = ".initial.yaml"
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
    _check_is_there(path)
    _check_whole(workspace_of(path))
    plan = validated(Plan, plan_document(path))
    plan._workspace, plan._file = workspace_of(path), path.resolve()  # noqa: SLF001 - no part of what it states
    return plan


def _check_is_there(path: Path) -> None:
    """Refuse a plan that does not exist: most often the command was run beside the federation's folder."""
    if path.exists() or path.parent.name != PLAN_FOLDER:
        return
    near = sorted(found.parents[1].name for found in workspace_of(path).glob(f"*/{PLAN_FOLDER}/{path.name}"))
    remedy = (
        "run the command in the folder of a federation, where `fedfair join` or `fedfair workspace create` has "
        "put it, or name the plan with -p"
    )
    if near:
        remedy = (
            f"go to the folder of the federation first (here is {', '.join(near[:3])}), or name the plan with -p"
        )
    raise PlanError(f"{path} does not exist", remedy)


def _check_whole(workspace: Path) -> None:
    if (workspace / UPDATE_FOLDER).exists():
        raise PlanError(
            f"an update of {workspace} was interrupted, so its plan is not whole",
            "run `fedfair workspace import --update ARCHIVE` again, which finishes it first",
        )


def plan_document(path: Path) -> Document:
    """Return what is written in a plan's file and in the files beside it, not yet validated.

    Raises:
        PlanError: a file cannot be read, or two of them hold the same.
    """
    beside = (("federation", "roster", roster_path(path)), ("training", "initial", initial_path(path)))
    document = read_document(path)
    written = document.values.get("format")
    if isinstance(written, str) and written.startswith("fedfair/"):
        raise PlanError(
            f"{path} is a file of the form {written}, and no plan", "name the plan, such as plan/plan.yaml"
        )
    for section, key, place in beside:
        document = _with_file(document, section, key, place)
    return document


def workspace_of(plan_path: Path) -> Path:
    """Return the workspace of a plan: the folder around `plan/plan.yaml`, or else the plan's own folder."""
    folder = plan_path.resolve().parent
    return folder.parent if folder.name == PLAN_FOLDER else folder


def roster_path(plan_path: Path) -> Path:
    """Return where the roster beside a plan is."""
    return plan_path.parent / ROSTER_FILE


def initial_path(plan_path: Path) -> Path:
    """Return where it is stated what a plan's run begins with in place of its seed."""
    return plan_path.with_suffix(INITIAL_SUFFIX)


def _with_file(document: Document, section: str, key: str, path: Path) -> Document:
    """Return a plan's document with what a file beside it says of one key."""
    values = document.values.get(section)
    if not path.exists() or not isinstance(values, dict):
        return document
    if key in values:
        spot = document.spot((section, key))
        raise PlanError(
            f"{spot}: {section}.{key}: the {key} is also in {path}",
            "keep one of them: remove the key or the file",
        )
    beside = read_document(path)
    merged = {**document.values, section: {**values, key: dict(beside.values)}}
    moved = {(section, key, *place): spot for place, spot in beside.spots.items()}
    return Document(document.path, merged, {**document.spots, **moved})
