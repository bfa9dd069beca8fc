"""Sections of a plan that a program states, in place of a file: some keys over others, checked as a file's are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar, cast

from fedfair.errors import PlanError
from fedfair.plan.fields import Section
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import Document, Spot, Value

Stated = Mapping[str, Mapping[str, object] | Section]
"""Keys of a plan by section."""

_Plan = TypeVar("_Plan", bound=Section)


def with_sections(
    stated: Mapping[str, Mapping[str, object]], sections: Stated, known: Collection[str]
) -> dict[str, dict[str, object]]:
    """Return the keys of some sections with others over them; what is given stays as it is.

    Args:
        stated: keys by section.
        sections: what lies over them; of a section that is an object, the keys that were set.
        known: the sections of a plan.

    Raises:
        PlanError: there is no such section, or what is given for one has no keys.
    """
    unknown = [name for name in sections if name not in known]
    if unknown:
        raise PlanError(f"{unknown[0]!r} is no section of a plan", f"they are {', '.join(known)}")
    found = {name: dict(keys) for name, keys in stated.items()}
    for name, given in sections.items():
        keys = given.model_dump(exclude_unset=True) if isinstance(given, Section) else given
        if not isinstance(keys, Mapping):
            raise PlanError(f"{name} is {keys!r}, not a section", f"give a mapping, such as {name}={{...}}")
        found[name] = {**found.get(name, {}), **keys}
    return found


def from_sections(kind: type[_Plan], stated: Mapping[str, Mapping[str, object]], where: str) -> _Plan:
    """Return the plan that these keys state.

    Args:
        kind: of the plan.
        stated: keys by section.
        where: what a fault names in place of a file.

    Raises:
        PlanError: the keys break the schema; the message tells all faults.
    """
    # Plain values or not: validation checks them.
    values = cast("Mapping[str, Value]", stated)
    return validated(kind, Document(Path(where), values, {(): Spot(Path(where), 0)}))
