"""Observers at a site: one plain line per event, nothing, or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from collaborator.notice_words import notice_words
from collaborator.notices import Notice
from fedfair.statistics.table import Purpose
from fedfair.watching.run_status import SumStep


class SiteObserver(Protocol):
    """The interface of an observer: what the driver tells."""

    def noticed(self, notice: Notice) -> None:
        """Something worth a line; `notice_words` has the words."""


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """The cost of an answer that the aggregator has accepted, as this site's metrics have it.

    Attributes:
        purpose: of the sum.
        round: of the sum.
        seconds: from the request to its acceptance.
        bytes_sent: bytes of frames.
        bytes_received: bytes of frames.
    """

    purpose: Purpose
    round: int
    seconds: float
    bytes_sent: int
    bytes_received: int


Measure: TypeAlias = SumStep | AnswerCost
"""Figures that need no words: what this site is asked for, and what an answer has cost."""


def unmeasured(measure: Measure) -> None:
    """Ignore a measure: nobody watches."""
    del measure


class SilentSiteObserver:
    """Shows nothing."""

    def noticed(self, notice: Notice) -> None:
        """Show nothing."""


class SeveralSiteObservers:
    """Tells several observers."""

    def __init__(self, *observers: SiteObserver) -> None:
        self._observers = observers

    def noticed(self, notice: Notice) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.noticed(notice)


class SiteLines:
    """Writes the sentence of each notice, line by line, with the time in front of each."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def noticed(self, notice: Notice) -> None:
        """Write the line, or the lines."""
        for line in notice_words(notice).splitlines():
            self._write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {line}")
