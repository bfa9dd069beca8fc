"""Writes `plan.initial.yaml`: what a plan's run begins with, in the words of `training.initial`."""

from __future__ import annotations

from pathlib import Path

import yaml

from fedfair.errors import PlanError
from fedfair.plan.digest import stated
from fedfair.plan.initial import InitialSection
from fedfair.plan.loading import initial_path
from fedfair.plan.yaml_reader import read_document
from fedfair.store.atomic_file import write_whole

_HEADING = """# Written by `fedfair plan freeze --from` or `fedfair plan extend`: what the run begins with.
# Part of the plan.
"""


def check_not_by_hand(plan_file: Path) -> None:
    """Refuse to write beside a plan that states `training.initial` itself.

    Raises:
        PlanError: it does.
    """
    section = read_document(plan_file).values.get("training")
    if isinstance(section, dict) and "initial" in section:
        raise PlanError(
            f"{plan_file}: training.initial is written by hand", "remove the key: the command writes it beside"
        )


def write_initial_section(plan_file: Path, section: InitialSection) -> Path:
    """Write what a plan's run begins with, and return where it is.

    Raises:
        DataError: the file cannot be written.
    """
    path = initial_path(plan_file)
    write_whole(path, _HEADING + yaml.safe_dump(_plain(stated(section)), sort_keys=False))
    return path


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
