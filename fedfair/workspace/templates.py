"""The files of a new workspace, as text with comments for the person who edits them.

The texts stand in `templates/`; names and addresses are put in here, as YAML reads them back.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.ids import parse_participant_id
from fedfair.plan.yaml_reader import resolve
from fedfair.templates import filled

_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")

TEMPLATES = {"breast-cancer": 100, "csv": 300}
"""Rounds of each template of a plan. A linear model separates the classes of the rehearsal's records: after 100
rounds it only becomes too sure."""

_HERE = "fedfair.workspace"


@dataclass(frozen=True, slots=True)
class Members:
    """Who takes part.

    Attributes:
        host: the name under which sites reach the aggregator.
        collaborators: the names of the sites.
    """

    host: str
    collaborators: tuple[str, ...]


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


def plan_text(federation: str, template: str, members: Members = TWO_CLINICS, task: str | None = None) -> str:
    """Return a commented plan.

    Args:
        federation: a valid federation name.
        template: a key of `TEMPLATES`.
        members: the aggregator's host and the sites; valid.
        task: the lines of `task.data` and the splits, in place of the template's.
    """
    host = f'"{members.host}"' if ":" in members.host else members.host
    return filled(
        _HERE,
        "plan.yaml.jinja",
        federation=federation,
        template=template,
        task=task,
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
