"""The log of a process that runs a federation: text for people, or one JSON object on each line for programs.

Text is what it was before there was a choice, and its writer is each command's own. Of JSON every line is written
here: `time`, `level`, `event`, `run_id` and `message`, then the event's own fields. The run is named as soon as it
is known; until then `run_id` is empty. Faults that end the process, and warnings of libraries, are lines too.
"""

from __future__ import annotations

import enum
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TextIO

import typer
from rich.text import Text

from fedfair.errors import FedfairError, StoppedError
from fedfair.news.event import LoggedEvent, LogLevel
from fedfair.process.exit_status import exit_status
from fedfair.process.terminal import complaints, error_console


class LogFormat(enum.Enum):
    """The form of a log."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="Log format: text or JSON lines.")]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="Minimum level to log.")]


@dataclass(frozen=True, slots=True)
class LogChoice:
    """The kind of log that the operator wants.

    Attributes:
        format: text or JSON.
        level: the least that is logged.
    """

    format: LogFormat = LogFormat.TEXT
    level: LogLevel = LogLevel.INFO

    @property
    def is_json(self) -> bool:
        """Whether a program reads the log."""
        return self.format is LogFormat.JSON


class JsonLog:
    """Writes events as JSON lines; the faults that end the process too, from its making on.

    Args:
        level: the least that is written.
        write: takes one line without its end.

    Attributes:
        run_id: the run that every line from now on names; empty while there is none.
    """

    def __init__(self, level: LogLevel, write: Callable[[str], None] | None = None) -> None:
        self._level = level
        self._write = write or _to_standard_error
        self.run_id = ""
        complaints.taker = self.failed
        warnings.showwarning = self._warned

    def event(self, event: LoggedEvent) -> None:
        """Write one event, if it matters enough."""
        if isinstance(event.fields.get("run_id"), str):
            self.run_id = str(event.fields["run_id"])
        if not self._level.includes(event.level):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": event.level.value, "event": event.name, "run_id": self.run_id}
        self._write(json.dumps({**line, "message": event.words, **event.fields, "run_id": self.run_id}))

    def doubt(self, name: str, words: str) -> None:
        """Write a warning that has no fields."""
        self.event(LoggedEvent(name, LogLevel.WARNING, words, {}))

    def failed(self, fault: FedfairError | OSError) -> None:
        """Write the fault that ends this process; a stop by its operator is none, and has a name of its own."""
        if isinstance(fault, FedfairError):
            words, remedy = fault.message, fault.remedy
        else:
            words, remedy = f"{fault.strerror or fault} {fault.filename or ''}".strip(), ""
        stopped = isinstance(fault, StoppedError)
        name, level = ("command_stopped", LogLevel.INFO) if stopped else ("command_failed", LogLevel.ERROR)
        status = int(exit_status(fault))
        self.event(
            LoggedEvent(name, level, words, {"fault": type(fault).__name__, "remedy": remedy, "status": status})
        )

    def _warned(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del file, line
        fields = {"category": category.__name__, "place": f"{filename}:{lineno}"}
        self.event(LoggedEvent("library_warned", LogLevel.WARNING, str(message), {**fields}))


def json_log(choice: LogChoice) -> JsonLog | None:
    """Return the log in JSON, if that is the choice; None where people read."""
    if not choice.is_json:
        complaints.taker = None
        return None
    return JsonLog(choice.level)


def _to_standard_error(line: str) -> None:
    error_console.print(Text(line), soft_wrap=True)
