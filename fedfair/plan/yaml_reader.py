"""YAML text as plain values, with the place of every key and item.

Decides what YAML a plan may be written in: one mapping in UTF-8, of at most 64 KiB, without anchors, aliases, tags
or duplicate keys. What the keys mean is `loading.py`'s and the schemas' business.

Scalars follow the core schema of YAML 1.2 and not PyYAML's 1.1, whose traps cost people their evenings: `no` and
`on` are texts, `1e-3` is a number, `010` and `1:30` are texts, a date is a text. Source: YAML 1.2.2, section 10.3.
The tree is built from PyYAML's events, whose parser needs no recursion, so a file cannot exhaust the stack. Where
libyaml is there, it parses what it is known to read as PyYAML does, in an eighth of the time; faults are PyYAML's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from fedfair.errors import PlanError

MAX_BYTES = 1 << 16
"""Of any file that people write. The parser needs up to 14 microseconds a byte, so the worst takes a second."""
MAX_DEPTH = 20
"""A plan is 6 levels deep."""

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
Place: TypeAlias = tuple[str | int, ...]

LIBYAML = getattr(yaml, "CSafeLoader", None)
READ_ALIKE = re.compile(r"[^\t\ufeff!?]*")
"""Texts of which libyaml and PyYAML make the same values: without tabs, byte order marks, `!` and `?`."""

_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|(?:0|[1-9][0-9]*)\.[0-9]*)(?:e[-+]?[0-9]+)?|(?:0|[1-9][0-9]*)e[-+]?[0-9]+|\.inf)|\.nan",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A line of a file, counted from 1; 0 where the place has no lines, such as an argument of a command."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class Document:
    """A file that people wrote.

    Attributes:
        path: where it is, for messages.
        values: its mapping.
        spots: where every key and item is, by its place; () is the mapping itself.
    """

    path: Path
    values: Mapping[str, Value]
    spots: Mapping[Place, Spot]

    def spot(self, place: Place) -> Spot:
        """Return where a place is, or the nearest thing around it that is in the file."""
        while place not in self.spots:
            place = place[:-1]
        return self.spots[place]


def read_document(path: Path) -> Document:
    """Return the mapping in a YAML file.

    Raises:
        PlanError: the file is missing, unreadable, too large, not UTF-8, not YAML, or not a plain mapping.
    """
    return parse_document(read_text(path), path)


def read_text(path: Path) -> str:
    """Return the content of a small text file.

    Raises:
        PlanError: the file is missing, a folder, unreadable, too large or not UTF-8.
    """
    if path.is_dir():
        raise PlanError(f"{path} is a folder, not a file", "name the file in it, such as plan.yaml")
    try:
        with path.open("rb") as source:
            raw = source.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise PlanError(f"{path} does not exist", "give the path of the file, or create it") from error
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise PlanError(
            f"{path} has {path.stat().st_size} bytes, and a file that people write has at most {MAX_BYTES}",
            "shorten its longest list: of a category, a value that is not listed counts as other; or is another "
            "file meant?",
        )
    return decoded(raw, path)


def decoded(raw: bytes, path: Path) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark.

    Args:
        raw: its content.
        path: where it came from, for messages.

    Raises:
        PlanError: it is not UTF-8; the message names the line.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PlanError(
            f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8", "save it as UTF-8"
        ) from error


def parse_document(text: str, path: Path) -> Document:
    """Return the mapping that a YAML text holds.

    Args:
        text: the content.
        path: where it came from, for messages.

    Raises:
        PlanError: the text is not one plain YAML mapping; the message names the line.
    """
    if LIBYAML is not None and READ_ALIKE.fullmatch(text):
        # Its faults are worded otherwise, and PyYAML meets them again.
        with contextlib.suppress(yaml.YAMLError, PlanError):
            return parsed_by(LIBYAML, text, path)
    try:
        return parsed_by(yaml.SafeLoader, text, path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        if "'\\t'" in (error.problem or ""):
            raise PlanError(
                f"{place}: not YAML: a tab stands where a word begins", "indent with spaces"
            ) from error
        raise PlanError(
            f"{place}: not YAML: {error.problem or error.context}", "check quotes and indents"
        ) from error
    except yaml.YAMLError as error:
        raise PlanError(f"{path}: not YAML: {' '.join(str(error).split())}") from error


def parsed_by(loader: type[yaml.SafeLoader | yaml.CSafeLoader], text: str, path: Path) -> Document:
    """Return the mapping that a parser finds in a text; raises its YAMLError, or a PlanError."""
    builder = _Builder(path)
    values = builder.document(yaml.parse(text, Loader=loader))
    return Document(path, values, builder.spots)


class _Builder:
    """Turns parser events into values, and remembers where each was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.spots: dict[Place, Spot] = {(): Spot(path, 1)}

    def document(self, events: Iterator[Event]) -> dict[str, Value]:
        values: Value = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refused(event, "a second document begins here", "remove the line '---'")
            elif isinstance(event, NodeEvent):
                values = self._value(event, events, ())
        if not isinstance(values, dict):
            what = "is empty" if values is None else "is not a mapping of keys to values"
            raise PlanError(f"{self._path} {what}", "write it as `key: value` lines")
        return values

    def _value(self, event: Event, events: Iterator[Event], place: Place) -> Value:
        self._check(event, place)
        if isinstance(event, MappingStartEvent):
            return self._mapping(events, place)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(events, place)
        if isinstance(event, ScalarEvent):
            return resolve(event.value) if event.implicit[0] else event.value
        raise self._refused(event, f"{type(event).__name__} is out of place", "check the indents")

    def _mapping(self, events: Iterator[Event], place: Place) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            key = self._key(event, place)
            inside = (*place, key)
            if key in values:
                first = self.spots[inside].line
                raise self._refused(event, f"key {key!r} is repeated; it is also on line {first}", "remove one")
            self.spots[inside] = self._spot(event)
            values[key] = self._value(next(events), events, inside)
        return values

    def _sequence(self, events: Iterator[Event], place: Place) -> list[Value]:
        values: list[Value] = []
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            inside = (*place, len(values))
            self.spots[inside] = self._spot(event)
            values.append(self._value(event, events, inside))
        return values

    def _key(self, event: Event, place: Place) -> str:
        self._check(event, place)
        if not isinstance(event, ScalarEvent):
            raise self._refused(event, "a key is a list or a mapping", "write keys as plain words")
        # A key is always a text: a column may well be called 2018, no or null.
        return str(event.value)

    def _check(self, event: Event, place: Place) -> None:
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._refused(event, "anchors and aliases (& and *) are not used here", "write the value out")
        if getattr(event, "tag", None) not in (None, "!"):
            raise self._refused(event, f"the tag {getattr(event, 'tag', '')} is not used here", "remove it")
        if len(place) > MAX_DEPTH:
            raise self._refused(event, f"more than {MAX_DEPTH} levels of nesting", "check the brackets")

    def _refused(self, event: Event, message: str, remedy: str) -> PlanError:
        return PlanError(f"{self._spot(event)}: {message}", remedy)

    def _spot(self, event: Event) -> Spot:
        return Spot(self._path, event.start_mark.line + 1 if event.start_mark else 1)


def resolve(text: str) -> str | int | float | bool | None:
    """Return what a scalar without quotes means (YAML 1.2 core schema, decimal integers only)."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
