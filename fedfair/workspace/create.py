"""The folder that a federation lives in on one host.

    plan/plan.yaml, plan/roster.yaml   what all agree on
    src/                               code that the plan may name
    collaborator.yaml                  this site's own terms
    cert/ data/ save/ logs/ approvals/ keys, records, models, logs, consent: never exported
    egress/ received/                  records of what left and of what arrived: never exported
    runs/                              a site's own copies of runs: never exported

Decides what is in it, and never overwrites. The texts, with comments for the person who edits them, stand in
`templates/`; names and addresses are put in here, as YAML reads them back. A module of own code, a loader and a
model, runs as it is written. How it travels is `archive.py`'s business.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.ids import parse_participant_id
from fedfair.plan.module_code import SOURCE_FOLDER
from fedfair.plan.sections import ObjectiveSection
from fedfair.plan.yaml_reader import resolve
from fedfair.templates import filled

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")

TEMPLATES = {"breast-cancer": 100, "csv": 300, "statistics": 0}
"""Rounds of each template of a plan; none of one that trains nothing. A linear model separates the classes of the
rehearsal's records: after 100 rounds it only becomes too sure."""

COMMENT_WIDTH = 108

_HERE = "fedfair.workspace"
PLAN_FILE = Path("plan", "plan.yaml")
FOLDERS = ("plan", "src", "save", "logs", "data", "cert", "approvals")


@dataclass(frozen=True, slots=True)
class Members:
    """Who takes part.

    Attributes:
        host: the name under which sites reach the aggregator.
        collaborators: the names of the sites.
    """

    host: str
    collaborators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdvisedValues:
    """The values of a plan that were advised for its records, and why.

    Attributes:
        measure: of the objective.
        worst_group_size: rho; 1 for plain averaging.
        tradeoff: epsilon; likewise.
        plain: whether plain averaging trains the model.
        optimizer: the server's optimizer with its rate, as YAML; empty for the usual one.
        reason: sentences, which become a comment.
    """

    measure: str
    worst_group_size: float
    tradeoff: float
    plain: bool
    optimizer: str = ""
    reason: tuple[str, ...] = ()


_STATED = ObjectiveSection()
USUAL = AdvisedValues("excess", _STATED.worst_group_size, _STATED.tradeoff, plain=False)
"""What a new plan has where nobody has looked at its records."""


TWO_CLINICS = Members("localhost", ("clinic-a", "clinic-b"))


def check_members(members: Members) -> None:
    """Refuse a host or names that no plan can have.

    Raises:
        PlanError: the host cannot be one, or a name stands twice.
        FedfairError: a name is not 1 to 40 of a-z, 0-9 and inner hyphens, or is reserved.
    """
    for name in members.collaborators:
        parse_participant_id(name)
        if members.collaborators.count(name) > 1:
            raise PlanError(f"{name} is named twice", "name every site once")
    if not _HOST.fullmatch(members.host):
        raise PlanError(f"{members.host!r} is no host name or address", "name it without a port: agg.example.org")


def plan_text(
    federation: str,
    template: str,
    members: Members = TWO_CLINICS,
    task: str | None = None,
    advised: AdvisedValues | None = None,
) -> str:
    """Return a commented plan.

    Args:
        federation: a valid federation name.
        template: a key of `TEMPLATES`.
        members: the aggregator's host and the sites; valid.
        task: the lines of `task.data` and the splits, in place of the template's.
        advised: values in place of the template's.
    """
    values = advised or USUAL
    host = f'"{members.host}"' if ":" in members.host else members.host
    return filled(
        _HERE,
        "plan.yaml.jinja" if TEMPLATES[template] else "statistics.yaml.jinja",
        federation=federation,
        template=template,
        task=task,
        values=values,
        reason=textwrap.wrap(" ".join(values.reason), COMMENT_WIDTH),
        rounds=TEMPLATES[template],
        host=host.ljust(len("localhost")),
        collaborators=", ".join(map(_quoted, members.collaborators)),
        count=len(members.collaborators),
    )


def gitignore_text() -> str:
    """Return what no workspace puts into version control: keys, certificates, data, and what runs leave."""
    return filled(_HERE, "gitignore.jinja")


def collaborator_text(name: str, records: Path | None = None) -> str:
    """Return a commented `collaborator.yaml` with the most careful terms.

    Args:
        name: the site's.
        records: the file or the folder of its records; None where somebody fills it in.
    """
    places = {"train": "null", "test": "null", "root": "null"}
    if records is not None:
        # A text of JSON is one of YAML, whatever characters a path has.
        places["root" if records.is_dir() else "train"] = json.dumps(str(records.resolve()), ensure_ascii=False)
    return filled(_HERE, "collaborator.yaml.jinja", name=_quoted(name), **places)


def _quoted(name: str) -> str:
    """Return a name as YAML reads it back: one such as 1 or null is valid, and would be something else."""
    return name if resolve(name) == name else f'"{name}"'


def check_new(folder: Path, members: Members) -> None:
    """Refuse a folder that holds something already, and names that no plan can have.

    Raises:
        PlanError: the folder is a file, or holds something already; or a name cannot be one.
    """
    check_members(members)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PlanError(f"{folder} exists and is not an empty folder; nothing was written", "name another folder")


def create_workspace(
    folder: Path,
    federation: str,
    template: str,
    members: Members = TWO_CLINICS,
    task: str | None = None,
    advised: AdvisedValues | None = None,
) -> list[Path]:
    """Create a workspace.

    Args:
        folder: does not exist, or is empty.
        federation: a valid federation name.
        template: a key of `fedfair.workspace.create.TEMPLATES`.
        members: the aggregator's host and the sites.
        task: the lines of `task.data` and the splits, in place of the template's.
        advised: values in place of the template's.

    Returns:
        The files that were written.

    Raises:
        PlanError: the folder is a file, or holds something already; or a name cannot be one.
    """
    check_new(folder, members)
    files = {
        PLAN_FILE: plan_text(federation, template, members, task, advised),
        Path("collaborator.yaml"): collaborator_text(members.collaborators[0]),
        Path(".gitignore"): gitignore_text(),
    }
    make_folders(folder)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return [folder / path for path in files]


def make_folders(folder: Path) -> None:
    """Make the folders of a workspace; that of keys is for its owner alone."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "cert").chmod(0o700)


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


def write_module(workspace: Path, name: str) -> Path:
    """Write the module into the workspace's `src` and return its place.

    Args:
        workspace: the folder of the plan.
        name: of the module: a lower-case Python name that no installed module has.

    Raises:
        PlanError: the name is none that can be imported, or the file exists.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise PlanError(f"{name!r} is no name of a module", "use 1 to 40 of a-z, 0-9 and '_', such as own")
    if name in sys.stdlib_module_names or name in {"fedfair", "aggregator", "collaborator", "torch", "numpy"}:
        raise PlanError(f"{name!r} is the name of another module", "choose another, such as own")
    place = workspace / SOURCE_FOLDER / f"{name}.py"
    if place.exists():
        raise PlanError(f"{place} exists and is not replaced", "choose another name, or move the file away")
    place.parent.mkdir(exist_ok=True)
    place.write_text(filled(_HERE, "module.py.jinja"), encoding="utf-8")
    return place


def task_text(name: str) -> str:
    """Return the section of the plan that uses a module, as YAML."""
    return filled(_HERE, "task.yaml.jinja", name=name, path=f"{SOURCE_FOLDER}/{name}.py")
