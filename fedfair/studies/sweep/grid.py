"""Lists the plans that a sweep runs: the base plan under every combination of the grid's values.

An item of the grid is written `KEY=VALUE,VALUE,...`. The key is a place of the plan, such as training.batch_size,
or one of the short words below; the values are YAML as in the plan itself. Every combination is validated by the
plan's own strict schema before anything runs, and is known by the digest of the plan that it makes: the same
settings have the same identity in whichever order and spelling they were asked for.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.likeness import meant
from fedfair.plan.digest import canonical_plan
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import shown, validated
from fedfair.plan.yaml_reader import Document, Place, Spot, Value, parse_document

_OBJECTIVE = ("worst_group_size", "tradeoff", "loss_bound")
_TRAINING = (
    "algorithm", "seed", "rounds", "local_steps", "batch_size", "learning_rate", "threshold_learning_rate"
)  # fmt: skip

ALIASES: Mapping[str, tuple[str, ...]] = {
    **{name: ("objective", name) for name in _OBJECTIVE},
    "gamma": ("objective", "smoothing", "gamma"),
    **{name: ("training", name) for name in _TRAINING},
}
"""The words that stand for a place of the plan."""

SEED = "seed"
"""The axis over which figures are averaged."""

MAX_POINTS = 10_000
MAX_FAULTS = 5
"""Faults of combinations that one message tells."""

ID_DIGITS = 16
"""Hex digits of a point's identity: 64 bits, so that 10,000 points agree by chance once in 10^11 sweeps."""

_NAMES = {place: name for name, place in ALIASES.items()}
_EXAMPLE = "write it like tradeoff=0.01,0.5"


@dataclass(frozen=True, slots=True)
class GridAxis:
    """One item of the grid.

    Attributes:
        name: the short word, or else the dotted place.
        place: the keys from the top of the plan.
        values: what stands there in turn.
        spot: the item as it was written, for messages.
    """

    name: str
    place: tuple[str, ...]
    values: tuple[Value, ...]
    spot: Spot


@dataclass(frozen=True, slots=True)
class Point:
    """One combination.

    Attributes:
        id: hex digits; a function of the plan alone.
        settings: the value of every axis, in the order of the grid.
        plan: the base plan under these settings.
    """

    id: str
    settings: Mapping[str, Value]
    plan: Plan


def parse_grid(items: Sequence[str]) -> tuple[GridAxis, ...]:
    """Return the axes of a grid.

    Args:
        items: texts of the form KEY=VALUE,VALUE,...

    Raises:
        PlanError: an item is malformed or empty, its key is unknown, or two items speak of the same place.
    """
    axes = tuple(_axis(item) for item in items)
    for one, other in itertools.combinations(axes, 2):
        shared = min(len(one.place), len(other.place))
        if one.place[:shared] == other.place[:shared]:
            raise PlanError(
                f"{other.spot}: {one.spot} speaks of the same place of the plan", "state every place once"
            )
    return axes


def named_axis(key: str, axes: Sequence[GridAxis]) -> str:
    """Return the name of the axis that a key means.

    Raises:
        PlanError: the grid has no such axis.
    """
    name = _NAMES.get(tuple(key.split(".")), key)
    if name not in [axis.name for axis in axes]:
        named = ", ".join(axis.name for axis in axes)
        remedy = (
            f"the axes are {named}" if named else "leave --per away: the grid has nothing to compare but seeds"
        )
        raise PlanError(f"{key!r} is no axis of the grid", remedy)
    return name


def points_of(base: Document, axes: Sequence[GridAxis]) -> tuple[Point, ...]:
    """Return every combination as a validated plan; the last axis varies fastest.

    Args:
        base: the base plan as it is written.
        axes: the grid.

    Raises:
        PlanError: a combination is no valid plan, two are the same plan, or there are more than MAX_POINTS.
    """
    count = math.prod(len(axis.values) for axis in axes)
    if count > MAX_POINTS:
        sizes = " x ".join(str(len(axis.values)) for axis in axes)
        raise PlanError(f"the grid has {sizes} = {count} points, more than {MAX_POINTS}", "run several sweeps")
    made: list[Point] = []
    faults: dict[str, None] = {}
    for values in itertools.product(*(axis.values for axis in axes)):
        try:
            made.append(_point(base, axes, values))
        except PlanError as error:
            faults[error.diagnostics()] = None
    if faults:
        raise PlanError(_joined(list(faults)))
    _check_different(made)
    return tuple(made)


def point_id(plan: Plan) -> str:
    """Return what a plan is known by in a sweep."""
    return hashlib.sha256(canonical_plan(plan)).hexdigest()[:ID_DIGITS]


def in_words(settings: Mapping[str, Value]) -> str:
    """Return settings as a person would write them."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in settings.items())


def value_text(value: Value) -> str:
    """Return one value as it stands in a plan, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return value if isinstance(value, str) else shown(value)


def _axis(item: str) -> GridAxis:
    key, equals, text = item.partition("=")
    spot = Spot(Path(f"--grid {item}"), 0)
    if not equals or not key.strip():
        raise PlanError(f"{spot}: is not of the form KEY=VALUE,VALUE,...", _EXAMPLE)
    place = _place(key.strip(), spot)
    return GridAxis(_NAMES.get(place, ".".join(place)), place, tuple(_values(text, spot)), spot)


def _place(key: str, spot: Spot) -> tuple[str, ...]:
    if key in ALIASES:
        return ALIASES[key]
    place = tuple(key.split("."))
    if len(place) == 1:
        near = meant(key, ALIASES)
        known = f"did you mean {near!r}" if near else f"is it one of {', '.join(ALIASES)}"
        raise PlanError(f"{spot}: unknown key {key!r}", f"{known}, or a place such as training.batch_size?")
    return place


def _values(text: str, spot: Spot) -> list[Value]:
    """Return the items of a YAML list without its brackets."""
    if not text.strip() or "\n" in text:
        raise PlanError(f"{spot}: has no values", _EXAMPLE)
    if text.rstrip().endswith(","):
        raise PlanError(f"{spot}: ends with a comma", "remove it, or write the last value")
    try:
        values = parse_document(f"values: [{text}]", spot.path).values["values"]
    except PlanError as error:
        raise PlanError(f"{spot}: is not a list of YAML values", "check commas, quotes and brackets") from error
    return values if isinstance(values, list) else [values]


def _point(base: Document, axes: Sequence[GridAxis], values: Sequence[Value]) -> Point:
    document = base
    for axis, value in zip(axes, values, strict=True):
        document = _changed(document, axis, value)
    plan = validated(Plan, document)
    settings = {axis.name: value for axis, value in zip(axes, values, strict=True)}
    return Point(point_id(plan), settings, plan)


def _changed(document: Document, axis: GridAxis, value: Value) -> Document:
    """Return the document with another value at an axis's place; its faults are then found at the axis."""
    within = len(axis.place)
    made: dict[Place, Spot] = {axis.place[:depth]: axis.spot for depth in range(1, within + 1)}
    kept = {place: spot for place, spot in document.spots.items() if place[:within] != axis.place}
    spots = {**made, **kept}
    return Document(document.path, _replaced(document.values, axis, value, 0), spots)


def _replaced(values: Mapping[str, Value], axis: GridAxis, value: Value, depth: int) -> dict[str, Value]:
    key = axis.place[depth]
    if depth == len(axis.place) - 1:
        return {**values, key: value}
    inner = values.get(key, {})
    if not isinstance(inner, dict):
        raise PlanError(
            f"{axis.spot}: {'.'.join(axis.place[: depth + 1])} is {shown(inner)} in the plan, and has no keys",
            "vary the whole of it, or write it as a mapping in the plan",
        )
    return {**values, key: _replaced(inner, axis, value, depth + 1)}


def _joined(faults: Sequence[str]) -> str:
    more = len(faults) - MAX_FAULTS
    rest = [f"and {more} more"] if more > 0 else []
    told = [*faults[:MAX_FAULTS], *rest]
    return told[0] if len(told) == 1 else "\n  ".join(["the grid asks for plans that cannot be:", *told])


def _check_different(points: Sequence[Point]) -> None:
    seen: dict[str, Point] = {}
    for point in points:
        first = seen.setdefault(point.id, point)
        if first is not point:
            raise PlanError(
                f"the grid asks twice for one plan: {in_words(first.settings)} and {in_words(point.settings)}",
                "list every value once",
            )
