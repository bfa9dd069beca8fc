"""An OpenFL plan with the files that its sections include, and what becomes of each key.

Decides which value counts where a section includes a file of defaults: as in OpenFL, a key of the section
replaces the file's, and keys of `settings` are merged one by one. What a key means, and which finding it leads to,
stands in `openfl_keys.yaml`. Decides too the kinds of findings, their order, and how the list that a migration
ends with is written in Markdown.
Source: OpenFL 1.5 to 1.9, the plan's format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from fedfair.errors import PlanError
from fedfair.plan.yaml_reader import Document, Place, Value, parse_document, read_document, read_text
from fedfair.templates import filled

MAX_VALUE = 60
"""Characters of a value that the list repeats."""

_LETTERS_OF_TABLES = str.maketrans({"|": "\\|", "\n": " ", "\r": " ", "<": "&lt;"})

SETTINGS, DEFAULTS, TEMPLATE = "settings", "defaults", "template"
_FOREIGN_SECTIONS = {
    "connector": "runs another framework through OpenFL's connector",
    "federated_flow": "is a plan of OpenFL's workflow interface",
}
_FRAMEWORK_REMEDY = "only plans of the task runner interface are migrated: docs/how-to/from-openfl.md"


class FindingKind(StrEnum):
    """The ends that a key comes to."""

    BY_HAND = "by-hand"
    NO_COUNTERPART = "no-counterpart"
    BUILT_IN = "built-in"
    CARRIED_OVER = "carried-over"


HEADINGS = {
    FindingKind.BY_HAND: ("To do by hand", "The migration cannot know this."),
    FindingKind.NO_COUNTERPART: (
        "Without a counterpart",
        "Nothing of fedfair does this. The last column says what comes nearest.",
    ),
    FindingKind.BUILT_IN: ("Built in", "fedfair does this by itself, so there is no key for it."),
    FindingKind.CARRIED_OVER: ("Carried over", "This is in the files that were written."),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One key of the old workspace.

    Attributes:
        place: file and line in the old workspace, such as plan/plan.yaml:12.
        key: the key's path with dots.
        value: its value as text; empty where there is none.
        becomes: the key or function of fedfair that has its part; empty where there is none.
        what_to_do: by hand, or what fedfair does.
    """

    kind: FindingKind
    place: str
    key: str
    value: str
    becomes: str
    what_to_do: str


def shown_value(value: object) -> str:
    """Return a value of the old plan as short text."""
    text = str(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def of_kind(findings: Iterable[Finding], kind: FindingKind) -> list[Finding]:
    """Return the findings of one kind, in their order."""
    return [finding for finding in findings if finding.kind == kind]


def as_markdown(origin: str, findings: Sequence[Finding]) -> str:
    """Return the list as a page.

    Args:
        origin: the old workspace, in words.
        findings: everything that was found.
    """
    parts = [(*HEADINGS[kind], list(map(_cells, of_kind(findings, kind)))) for kind in HEADINGS]
    return filled("fedfair.migration", "MIGRATION.md.jinja", origin=_cell(origin), parts=parts)


def _cells(finding: Finding) -> list[str]:
    code = [
        f"`{_cell(text.replace('`', chr(39)))}`" if text else ""
        for text in (finding.key, finding.value, finding.becomes)
    ]
    return [_cell(finding.place), *code, _cell(finding.what_to_do)]


def _cell(text: str) -> str:
    return text.translate(_LETTERS_OF_TABLES)


@dataclass(frozen=True, slots=True)
class OpenflPlan:
    """The plan as OpenFL sees it.

    Attributes:
        values: sections by name, with what they include.
        places: file and line of every key and item.
        path: the plan's own file, for messages.
    """

    values: Mapping[str, Value]
    places: Mapping[Place, str]
    path: Path

    def get(self, *key: str) -> Value:
        """Return the value at a path; None where there is none."""
        value: Value = dict(self.values)
        for part in key:
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value

    def place(self, *key: str | int) -> str:
        """Return file and line of a key, or of the nearest thing around it."""
        found: Place = key
        while found and found not in self.places:
            found = found[:-1]
        return self.places.get(found, str(self.path))

    @property
    def training_task(self) -> str | None:
        """Name of the task that trains."""
        tasks = self.get("tasks")
        for name, task in (tasks if isinstance(tasks, dict) else {}).items():
            if isinstance(task, dict) and str(task.get("function", "")).startswith("train"):
                return name
        return None


class _Row(BaseModel):
    """One row of `openfl_keys.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str | tuple[str, ...]
    value: str = "*"
    kind: FindingKind
    becomes: str = ""
    words: str = ""

    def fits(self, key: str, value: Value) -> bool:
        """Return whether a key with its value belongs into this row."""
        keys = (self.key,) if isinstance(self.key, str) else self.key
        texts = [str(item).lower() for item in (value if isinstance(value, list) else [value])]
        return any(fnmatchcase(key, pattern) for pattern in keys) and all(
            any(fnmatchcase(text, pattern) for pattern in self.value.split("|")) for text in texts
        )


@cache
def _rows() -> tuple[_Row, ...]:
    text = files("fedfair.migration").joinpath("openfl_keys.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[_Row, ...]).validate_python(yaml.safe_load(text))


def key_findings(plan: OpenflPlan) -> Iterator[Finding]:
    """Yield one finding for each key of the plan."""
    for place, value in _leaves((), dict(plan.values)):
        key = ".".join(map(str, place))
        evaluates = place[0] == "tasks" and place[1] != plan.training_task
        if value == {}:
            kind, becomes, words = FindingKind.BUILT_IN, "", "it is empty"
        elif evaluates and place[2:] in (("kwargs", "batch_size"), ("kwargs", "epochs")):
            words = "evaluations read all records, in batches of fedfair's choice"
            kind, becomes = FindingKind.BUILT_IN, "evaluation"
        else:
            row = next(row for row in _rows() if row.fits(key, value))
            kind, becomes, words = row.kind, row.becomes, row.words
        yield Finding(kind, plan.place(*place), key, shown_value(value), becomes, words)


def read_plan(folder: Path, path: str, defaults: Path | None) -> tuple[OpenflPlan, list[Finding]]:
    """Return the plan with what its sections include, and a finding for each section that includes a file.

    Args:
        folder: the workspace.
        path: the plan's file in it.
        defaults: OpenFL's own folder `workspace`, for included files that the workspace lacks.

    Raises:
        PlanError: a file is at fault, or the plan is none of OpenFL's task runner interface.
    """
    plan = parse_document(read_text(folder / path), Path(path))
    values: dict[str, Value] = {}
    places: dict[Place, str] = {}
    findings: list[Finding] = []
    for section, stated in plan.values.items():
        if stated is not None and not isinstance(stated, dict):
            raise PlanError(
                f"{plan.spot((section,))}: {section} is not a mapping, so this is no plan of OpenFL",
                "a section holds template and settings",
            )
        own = dict(stated or {})
        named = own.pop(DEFAULTS, None)
        merged: dict[str, Value] = {}
        if named is not None:
            included, finding = _included(plan, section, named, folder, defaults)
            findings.append(finding)
            _lay_over(merged, dict(included.values), included, (), section, places)
        places[section,] = str(plan.spot((section,)))
        _lay_over(merged, own, plan, (section,), section, places)
        values[section] = merged
    read = OpenflPlan(values, places, plan.path)
    _check_kind(read)
    return read, findings


def _check_kind(plan: OpenflPlan) -> None:
    """Refuse a plan that is none of OpenFL's task runner interface."""
    for section, reason in _FOREIGN_SECTIONS.items():
        if section in plan.values:
            raise PlanError(f"{plan.place(section)}: the plan {reason}", _FRAMEWORK_REMEDY)
    for section in ("aggregator", "task_runner"):
        if section not in plan.values:
            raise PlanError(
                f"{plan.path}: has no section {section}, so it is no plan of OpenFL",
                "name the folder that holds plan/plan.yaml, plan/cols.yaml and plan/data.yaml",
            )
    template = str(plan.get("aggregator", TEMPLATE) or "")
    if ".experimental." in template or ".workflow." in template:
        place = plan.place("aggregator", TEMPLATE)
        raise PlanError(f"{place}: the plan {_FOREIGN_SECTIONS['federated_flow']}", _FRAMEWORK_REMEDY)


def _included(
    plan: Document, section: str, named: Value, folder: Path, defaults: Path | None
) -> tuple[Document, Finding]:
    """Return the file that a section includes, empty where it is in no folder, and the finding about it."""
    place = str(plan.spot((section, DEFAULTS)))
    if not isinstance(named, str):
        raise PlanError(
            f"{place}: {section}.defaults is {named!r}, not the path of a file",
            "write it like plan/defaults/network.yaml",
        )
    if PurePosixPath(named).is_absolute() or ".." in PurePosixPath(named).parts:
        raise PlanError(
            f"{place}: {section}.defaults is {named!r}, which leads out of the workspace",
            "name a file below the workspace, such as plan/defaults/network.yaml",
        )
    roots = [folder, *([] if defaults is None else [defaults, *defaults.parents[:2]])]
    file = next((root / named for root in roots if (root / named).is_file()), None)
    if file is None:
        words = (
            "not in the workspace, so only the section's own keys were read: OpenFL takes the file from where "
            "it is installed; give that folder openfl-workspace/workspace by --defaults"
        )
        return Document(Path(named), {}, {}), Finding(
            FindingKind.BY_HAND, place, f"{section}.defaults", named, "", words
        )
    document = read_document(file)
    shown = Path(named) if file == folder / named else file
    spots = {key: replace(spot, path=shown) for key, spot in document.spots.items()}
    finding = Finding(FindingKind.CARRIED_OVER, place, f"{section}.defaults", named, "", "read")
    return Document(shown, document.values, spots), finding


def _lay_over(
    merged: dict[str, Value],
    layer: Mapping[str, Value],
    document: Document,
    prefix: Place,
    section: str,
    places: dict[Place, str],
) -> None:
    for key, value in layer.items():
        settings = merged.get(key) if key == SETTINGS else None
        if key == SETTINGS and value is not None and not isinstance(value, dict):
            spot = document.spot((*prefix, key))
            raise PlanError(f"{spot}: {section}.settings is not a mapping", "write it as `key: value` lines")
        inner = dict(value) if isinstance(value, dict) else {}
        merged[key] = {**settings, **inner} if isinstance(settings, dict) else value
        start = (*prefix, key)
        for place, spot in document.spots.items():
            if place[: len(start)] == start:
                places[(section, *place[len(prefix) :])] = str(spot)


def _leaves(key: Place, value: Value) -> Iterator[tuple[Place, Value]]:
    """Yield every key below one that has a value of its own; a list of scalars is one value."""
    if isinstance(value, dict) and (value or not key):
        for name, inner in value.items():
            yield from _leaves((*key, name), inner)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _leaves((*key, index), item)
    else:
        yield key, value
