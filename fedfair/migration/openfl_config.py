"""An OpenFL plan with the files that it includes, each key with the place it came from.

Decides which value counts where a section includes a file of defaults: as in OpenFL, a key of the section
replaces the file's, and keys of `settings` are merged one by one. Source: OpenFL 1.5 to 1.9, the plan's format.
Reading files is `openfl_workspace.py`'s business, and what a key means that of `openfl_keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.plan.yaml_reader import Document, Place, Value

SETTINGS, DEFAULTS, TEMPLATE = "settings", "defaults", "template"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A key of the plan with a value of its own.

    Attributes:
        key: its path; items of lists have their number.
        value: a scalar, a list of scalars, or an empty mapping.
        place: file and line.
    """

    key: tuple[str, ...]
    value: Value
    place: str

    @property
    def name(self) -> str:
        """The path as one text."""
        return ".".join(self.key)


@dataclass(frozen=True, slots=True)
class OpenflConfig:
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

    def place(self, *key: str) -> str:
        """Return file and line of a key, or of the nearest thing around it."""
        found: Place = key
        while found and found not in self.places:
            found = found[:-1]
        return self.places.get(found, str(self.path))

    def leaves(self) -> Iterator[Leaf]:
        """Yield every key that has a value of its own."""
        yield from self._leaves((), dict(self.values))

    def _leaves(self, key: Place, value: Value) -> Iterator[Leaf]:
        if isinstance(value, dict) and (value or not key):
            for name, inner in value.items():
                yield from self._leaves((*key, name), inner)
        elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            for index, item in enumerate(value):
                yield from self._leaves((*key, index), item)
        else:
            texts = tuple(str(part) for part in key)
            yield Leaf(texts, value, self.places.get(key, self.place(*texts)))


def included_files(plan: Document) -> dict[str, str]:
    """Return the file that each section includes, as it is written.

    Raises:
        PlanError: a section is no mapping, or names something else than a file.
    """
    files = {}
    for section, value in plan.values.items():
        if value is not None and not isinstance(value, dict):
            raise PlanError(
                f"{plan.spot((section,))}: {section} is not a mapping, so this is no plan of OpenFL",
                "a section holds template and settings",
            )
        named = (value or {}).get(DEFAULTS)
        if named is None:
            continue
        if not isinstance(named, str):
            raise PlanError(
                f"{plan.spot((section, DEFAULTS))}: {section}.defaults is {named!r}, not the path of a file",
                "write it like plan/defaults/network.yaml",
            )
        files[section] = named
    return files


def resolved(plan: Document, included: Mapping[str, Document]) -> OpenflConfig:
    """Return the plan with what its sections include.

    Args:
        plan: the plan's own file.
        included: by section, the file that it includes, where it was found.

    Raises:
        PlanError: `settings` of a section is no mapping.
    """
    values: dict[str, Value] = {}
    places: dict[Place, str] = {}
    for section, own in plan.values.items():
        stated = dict(own) if isinstance(own, dict) else {}
        stated.pop(DEFAULTS, None)
        sources = [*([included[section]] if section in included else []), plan]
        merged: dict[str, Value] = {}
        places[section,] = str(plan.spot((section,)))
        for document in sources:
            prefix: Place = (section,) if document is plan else ()
            layer = stated if document is plan else dict(document.values)
            _lay_over(merged, layer, document, prefix, section, places)
        values[section] = merged
    return OpenflConfig(values, places, plan.path)


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
