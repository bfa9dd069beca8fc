"""Observers at a site: one plain line per event, nothing, or several."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from collaborator.notice_words import notice_words
from collaborator.notices import Notice


class SiteObserver(Protocol):
    """The interface of an observer: what the driver tells."""

    def noticed(self, notice: Notice) -> None:
        """Something worth a line; `notice_words` has the words."""


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
