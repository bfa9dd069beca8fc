"""Observers of a run: the driver gives notice, an observer shows it.

Silence, one plain line per event for a log file, a live display for a terminal (`terminal_dashboard.py`), or
several of them. None decides anything, and none sees more than the sums do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from aggregator.notice_words import notice_words
from aggregator.notices import Notice
from fedfair.ids import ParticipantId
from fedfair.process.events import LogLevel
from fedfair.results.costs import SumCost
from fedfair.results.loss_text import loss_text
from fedfair.rounds.stragglers import SumPace
from fedfair.run.training_run import Progress
from fedfair.watching.run_status import SumStep


class RunObserver(Protocol):
    """The interface of an observer: what the driver tells."""

    def noticed(self, notice: Notice) -> None:
        """Something worth a line; `notice_words` has the words."""

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Who is connected, and whose answer (or coming) is awaited; told after every event."""

    def progressed(self, progress: Progress) -> None:
        """A sum was applied."""

    def close(self) -> None:
        """The run is over."""


Measure: TypeAlias = SumCost | SumPace | SumStep
"""Figures of a sum that need no words: what it cost once it has closed, and what it waits for."""


def unmeasured(measure: Measure) -> None:
    """Ignore a measure: nobody watches."""
    del measure


class SilentRunObserver:
    """Shows nothing."""

    def noticed(self, notice: Notice) -> None:
        """Show nothing."""

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Show nothing."""

    def progressed(self, progress: Progress) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


class SeveralRunObservers:
    """Tells several observers."""

    def __init__(self, *observers: RunObserver) -> None:
        self._observers = observers

    def noticed(self, notice: Notice) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.noticed(notice)

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.waiting(present, awaited)

    def progressed(self, progress: Progress) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.progressed(progress)

    def close(self) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.close()


class RunLines:
    """Writes one line per event that a log should keep; a round that was only trained is not one.

    Args:
        write: takes a line.
        rounds_total: training rounds of the plan.
        worst_group_size: of the plan.
        level: the least that is told of sums: at `debug` each of them has a line.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        rounds_total: int,
        worst_group_size: float,
        level: LogLevel = LogLevel.INFO,
    ) -> None:
        self._level = level
        self._write = write
        self._rounds_total = rounds_total
        self._worst_group_size = worst_group_size

    def noticed(self, notice: Notice) -> None:
        """Write its sentence."""
        self._line(notice_words(notice))

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Write nothing: it happens several times a round, and comings and goings are noted in words."""

    def progressed(self, progress: Progress) -> None:
        """Write the round's figures where it was evaluated."""
        if self._level is LogLevel.DEBUG:
            self._line(f"the {progress.purpose.value} sum of round {progress.round} was applied")
        if progress.evaluation is not None and self._level.includes(LogLevel.INFO):
            figures = summary(progress, self._worst_group_size)
            self._line(f"round {progress.round} of {self._rounds_total}: {figures}")

    def close(self) -> None:
        """Write nothing more."""

    def _line(self, text: str) -> None:
        self._write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {text}")


def summary(progress: Progress, worst_group_size: float) -> str:
    """Return the figures of an evaluation in words: the threshold, then mean and worst-group risk by split."""
    words = [f"threshold {loss_text(progress.threshold, 4)}"]
    if progress.evaluation is not None:
        words += [
            f"{name}: mean {loss_text(split.mean, 4)}, worst {worst_group_size:.0%} "
            f"{loss_text(split.by_group_size[worst_group_size].worst, 4)}"
            + ("" if split.accuracy is None else f", accuracy {split.accuracy:.1%}")
            for name, split in progress.evaluation.splits.items()
        ]
    return "; ".join(words)
