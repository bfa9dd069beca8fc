"""A notice as an event for programs: a stable name, a level, and its fields as JSON values.

The name is the notice's class in lower case with underscores, `StreamOpened` is `stream_opened`, and
`docs/reference/events.md` lists all. Which notices are warnings or errors, and their sentence, is decided beside
the notices of each actor.
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

from fedfair.aggregation.requests import SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.results.document import Json

RESERVED = ("time", "level", "event", "run_id", "message")
"""The keys of every line; a notice's `run_id` is the line's."""


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
    """One event.

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


@dataclass(frozen=True, slots=True)
class NoticeLevels:
    """Log level of each notice class; a class that is in no set has none.

    Attributes:
        errors: an operator has to look into these.
        warnings: something is not as it should be, and the run goes on.
        information: what happens in every run.
    """

    errors: frozenset[type]
    warnings: frozenset[type]
    information: frozenset[type]

    def of(self, kind: type) -> LogLevel:
        """Return the level of a class of notices.

        Raises:
            LocalProtocolError: the class is in no set.
        """
        for level, kinds in (
            (LogLevel.ERROR, self.errors),
            (LogLevel.WARNING, self.warnings),
            (LogLevel.INFO, self.information),
        ):
            if kind in kinds:
                return level
        raise LocalProtocolError(f"{kind.__name__} has no level: nobody has said how much it matters")


def event_name(kind: type) -> str:
    """Return the name of a class of notices: `StreamOpened` is `stream_opened`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).lower()


def notice_event(notice: object, level: LogLevel, words: str) -> LoggedEvent:
    """Return a notice as an event.

    Args:
        notice: a frozen dataclass.
        level: how much it matters.
        words: its sentence.

    Raises:
        LocalProtocolError: it is no dataclass.
    """
    fields = json_value(notice)
    if not isinstance(fields, dict):
        raise LocalProtocolError(f"{type(notice).__name__} is no notice: it has no fields")
    return LoggedEvent(event_name(type(notice)), level, words, fields)


def json_value(value: object) -> Json:  # noqa: PLR0911 - one case per kind
    """Return a value of a notice as JSON: times in UTC, a number that is not finite as null.

    What has no form of its own is its text.
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
            return {
                "purpose": value.purpose.value,
                "round": int(value.round),
                "attempt": value.attempt,
            }
        case tuple() | list() | set() | frozenset():
            return [json_value(inner) for inner in value]
        case _ if dataclasses.is_dataclass(value):
            return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    # A notice must not end a run; a test looks for values that get here.
    return repr(value)
