"""Who at this site is told what happens: one plain line per event, nothing, or several."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Observer(Protocol):
    """What the driver tells."""

    def note(self, text: str) -> None:
        """Something worth a line."""


class Silent:
    """Shows nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


class Several:
    """Tells several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def note(self, text: str) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.note(text)


class Lines:
    """Writes each note with the time in front."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def note(self, text: str) -> None:
        """Write the line."""
        self._write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {text}")
