"""Processors of news: functions that take every update of a run, one after the other.

Text lines for people, JSON lines for programs, and the status; the live display is `dashboard.py`'s, the pipe to a
parent process `progress_pipe.py`'s, and the trackers are `fedfair.tracking`'s. No processor decides anything about
the run, and none sees more than the sums do. Source of the idea: the processors of structlog.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from fedfair.news.event import LogLevel, News, StatusUpdate
from fedfair.news.figures import Attendance
from fedfair.news.log import JsonLog
from fedfair.watching.run_status import RunStatus, over

Processor: TypeAlias = Callable[[StatusUpdate], None]


def ignore(update: StatusUpdate) -> None:
    """Do nothing with an update."""
    del update


def in_turn(*processors: Processor) -> Processor:
    """Return the processor that hands each update to several, in this order."""

    def process(update: StatusUpdate) -> None:
        for each in processors:
            each(update)

    return process


def text_lines(write: Callable[[str], None], level: LogLevel = LogLevel.INFO) -> Processor:
    """Return the processor that writes the sentence of news, line by line, with the time in front of each.

    Args:
        write: takes a line.
        level: the least that is written.
    """

    def process(update: StatusUpdate) -> None:
        if isinstance(update, News) and level.includes(update.level):
            for line in update.sentence.splitlines():
                write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {line}")

    return process


def json_lines(log: JsonLog) -> Processor:
    """Return the processor that writes news to the JSON log, which has a level of its own."""

    def process(update: StatusUpdate) -> None:
        if isinstance(update, News):
            log.event(update.logged())

    return process


MANY_AWAITED = 64
"""Up to so many awaited sites, each answer is counted at once: it takes microseconds."""

COALESCED = timedelta(seconds=0.2)
"""The answers of more sites are counted together, so that n answers do not take n² steps."""


class StatusKeeper:
    """The processor that keeps the status, for those who read it over HTTP.

    It holds one value and replaces it with each update; whoever reads it gets a value that changes no more.

    Args:
        status: at the beginning.
        clock: the time, with a time zone.
    """

    def __init__(self, status: RunStatus, clock: Callable[[], datetime]) -> None:
        self._status = status
        self._clock = clock
        self._attendance: Attendance | None = None
        self._updated = status.started

    @property
    def status(self) -> RunStatus:
        """Return the present status."""
        self._take_attendance()
        return self._status

    def __call__(self, update: StatusUpdate) -> None:
        """Take an update at once, but an attendance of many sites after a moment."""
        if not isinstance(update, Attendance):
            self._take_attendance()
            self._status = update.updated(self._status, self._clock())
            return
        self._attendance = update
        if len(update.awaited) <= MANY_AWAITED or self._clock() - self._updated >= COALESCED:
            self._take_attendance()

    def close(self) -> None:
        """Note that the run is over."""
        self._status = over(self.status, self._clock())

    def _take_attendance(self) -> None:
        if self._attendance is not None:
            self._updated = self._clock()
            self._status = self._attendance.updated(self._status, self._updated)
            self._attendance = None
