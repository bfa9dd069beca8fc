"""Pinning signing keys: `roster.yaml` beside the plan, written by the machine and read with the plan.

Decides who may be entered, and that a key which is there already is replaced only on purpose. Whether a request is
genuine was settled before, by `fedfair.identity` and by two people comparing its fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan, roster_path
from fedfair.plan.yaml_reader import read_document
from fedfair.store.atomic_file import write_whole

_HEADING = "# Written by `fedfair plan enroll`: the signing key of each collaborator. Part of the plan.\n"


def enroll(plan_path: Path, members: Mapping[str, str], *, replace: bool) -> Path:
    """Pin keys in the roster beside a plan.

    Args:
        plan_path: the plan.
        members: "ed25519:<base64>" by collaborator.
        replace: True where a name may get another key than it has.

    Returns:
        The roster's file.

    Raises:
        PlanError: the plan pins keys itself, a name is no collaborator, or a name has another key already.
    """
    federation = load_plan(plan_path).federation
    path = roster_path(plan_path)
    _check_not_by_hand(plan_path, members)
    for name, key in members.items():
        if name not in federation.collaborators:
            known = ", ".join(federation.collaborators)
            raise PlanError(f"{name!r} is no collaborator of {plan_path}", f"the plan names {known}")
        if federation.roster.get(name, key) != key and not replace:
            raise PlanError(
                f"{path} pins another key for {name}: {federation.roster[name]}",
                "ask the site; if it has made a new signing key, add --replace, and all sites approve again",
            )
    merged = {**federation.roster, **members}
    _check_own_keys(merged)
    lines = [f"{name}: {merged[name]}\n" for name in federation.collaborators if name in merged]
    write_whole(path, _HEADING + "".join(lines))
    return path


def _check_not_by_hand(plan_path: Path, members: Mapping[str, str]) -> None:
    section = read_document(plan_path).values.get("federation")
    if isinstance(section, dict) and "roster" in section:
        lines = "; ".join(f"{name}: {key}" for name, key in members.items())
        raise PlanError(f"{plan_path}: federation.roster is written by hand", f"remove it, or add there: {lines}")


def _check_own_keys(roster: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    for name, key in roster.items():
        owner = owners.setdefault(key, name)
        if owner != name:
            raise PlanError(f"{owner} and {name} have the same signing key", "every site makes a key of its own")
