"""The folder that a federation lives in on one host.

    plan/plan.yaml, plan/roster.yaml   what all agree on
    src/                               code that the plan may name
    collaborator.yaml                  this site's own terms
    cert/ data/ save/ logs/ approvals/ keys, records, models, logs, consent: never exported
    egress/ received/                  records of what left and of what arrived: never exported
    runs/                              a site's own copies of runs: never exported

Decides what is in it, and never overwrites. How it travels is `archive.py`'s business.
"""

from __future__ import annotations

from pathlib import Path

from fedfair.errors import PlanError
from fedfair.workspace.templates import (
    TWO_CLINICS,
    Members,
    check_members,
    collaborator_text,
    gitignore_text,
    plan_text,
)

PLAN_FILE = Path("plan", "plan.yaml")
FOLDERS = ("plan", "src", "save", "logs", "data", "cert", "approvals")


def create_workspace(
    folder: Path, federation: str, template: str, members: Members = TWO_CLINICS, task: str | None = None
) -> list[Path]:
    """Create a workspace.

    Args:
        folder: does not exist, or is empty.
        federation: a valid federation name.
        template: a key of `fedfair.workspace.templates.TEMPLATES`.
        members: the aggregator's host and the sites.
        task: the lines of `task.data` and the splits, in place of the template's.

    Returns:
        The files that were written.

    Raises:
        PlanError: the folder is a file, or holds something already; or a name cannot be one.
    """
    check_members(members)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PlanError(f"{folder} exists and is not an empty folder; nothing was written", "name another folder")
    files = {
        PLAN_FILE: plan_text(federation, template, members, task),
        Path("collaborator.yaml"): collaborator_text(members.collaborators[0]),
        Path(".gitignore"): gitignore_text(),
    }
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "cert").chmod(0o700)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return [folder / path for path in files]


def write_site_file(folder: Path, name: str, records: Path | None = None) -> Path:
    """Write a `collaborator.yaml` with the most careful terms, unless there is one.

    Args:
        folder: the workspace.
        name: the site's.
        records: the file or the folder of its records; None where somebody fills it in.

    Raises:
        PlanError: there is one.
    """
    path = folder / "collaborator.yaml"
    try:
        with path.open("x", encoding="utf-8") as target:
            target.write(collaborator_text(name, records))
    except FileExistsError as error:
        raise PlanError(f"{path} exists; it was left alone", "edit it, or move it away first") from error
    return path
