"""Writes a module of own code into a workspace: a loader and a model, with comments, which run as they are."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.plan.module_code import SOURCE_FOLDER
from fedfair.templates import filled

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}", re.ASCII)
_HERE = "fedfair.workspace"


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
