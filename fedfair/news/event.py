"""One kind of news is one class: its name, level and sentence, its JSON fields, and its effect on the status.

The name of a kind is its class in lower case with underscores, `StreamOpened` is `stream_opened`, and
`docs/reference/events.md` lists all. Who reads which news is decided in `processors.py`, and what a status holds
in `fedfair.watching.run_status`.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Protocol, dataclass_transform

from fedfair.aggregation.requests import SumRequest
from fedfair.results.document import Json
from fedfair.watching.run_status import RunStatus, counted, noted

RESERVED = ("time", "level", "event", "run_id", "message")
"""The keys of every line; the `run_id` of news is the line's."""


class LogLevel(enum.Enum):
    """How much an event matters, from the least."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    def includes(self, other: LogLevel) -> bool:
        """Return whether an event of the other level is shown at this one."""
        order = list(LogLevel)
        return order.index(other) >= order.index(self)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event of the JSON log.

    Attributes:
        name: its stable name.
        level: how much it matters.
        words: the sentence that an operator reads.
        fields: its values, each as JSON; no key of `RESERVED` but `run_id`.
    """

    name: str
    level: LogLevel
    words: str
    fields: Mapping[str, Json]


class StatusUpdate(Protocol):
    """Whatever changes the status of a run: news, and figures that have no sentence."""

    def updated(self, status: RunStatus, now: datetime) -> RunStatus:
        """Return the status after it."""


@dataclass_transform(frozen_default=True)
class News:
    """One kind of news: every subclass is a frozen dataclass, and its fields are the values of the JSON log.

    Attributes:
        level: how much it matters; INFO where a kind does not state it.
        text: its sentence, with the names of its fields in braces; a kind that needs more overrides `sentence`.
        refusal: what it refuses, as the metrics count refusals; empty where it refuses nothing.
        is_notice: whether the status counts it, and trackers have it.
        is_noted: whether its sentence is among the recent notes of the status.
    """

    level: ClassVar[LogLevel] = LogLevel.INFO
    text: ClassVar[str] = ""
    refusal: ClassVar[str] = ""
    is_notice: ClassVar[bool] = True
    is_noted: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return self.text.format_map(vars(self))

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status with what this kind tells beyond its sentence."""
        return status

    def updated(self, status: RunStatus, now: datetime) -> RunStatus:
        """Return the status after this news.

        Args:
            status: before.
            now: when it was reported, with a time zone.
        """
        if self.is_notice:
            status = counted(status, "notices", event_name(type(self)))
        if self.refusal:
            status = counted(status, "refusals", self.refusal)
        status = self.change(status, now)
        return noted(status, self.sentence, now) if self.is_noted else status

    def fields(self) -> Mapping[str, Json]:
        """Return the values of the JSON log."""
        return {name: json_value(value) for name, value in vars(self).items()}

    def logged(self) -> LoggedEvent:
        """Return this news as an event for programs."""
        return LoggedEvent(event_name(type(self)), self.level, self.sentence, self.fields())


def event_name(kind: type) -> str:
    """Return the name of a kind of news: `StreamOpened` is `stream_opened`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


def json_value(value: object) -> Json:  # noqa: PLR0911 - one case per kind
    """Return a value of news as JSON: times in UTC, a number that is not finite as null.

    A value without a form of its own becomes its text.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case enum.Enum():
            return json_value(value.value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds")
        case Path():
            return str(value)
        case Mapping():
            return {str(json_value(key)): json_value(inner) for key, inner in value.items()}
        case SumRequest():
            # Its shapes are the plan's.
            return {"purpose": value.purpose.value, "round": int(value.round), "attempt": value.attempt}
        case tuple() | list() | set() | frozenset():
            return [json_value(inner) for inner in value]
        case _ if dataclasses.is_dataclass(value):
            return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    # News must not end a run; a test looks for values that get here.
    return repr(value)
