"""Remembers which reasons an operator has read of whom, so that nobody fills the notes by repeating them."""

from __future__ import annotations

from collections.abc import Callable

MAX_REASONS = 8
"""Reasons that are published of one name."""

REMINDER_SECONDS = 24 * 3600.0
"""After so long a reason is published again."""


class Repetition:
    """The reasons that were published, by name.

    Args:
        clock: seconds since any fixed moment; None where nothing is ever published again.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._since = 0.0 if clock is None else clock()
        self._known: dict[str, set[str]] = {}

    def is_new(self, who: str, reason: str) -> bool:
        """Return whether this is to be published; it counts as published then."""
        if self._clock is not None and self._clock() - self._since > REMINDER_SECONDS:
            self._known, self._since = {}, self._clock()
        known = self._known.setdefault(who, set())
        if reason in known or len(known) >= MAX_REASONS:
            return False
        known.add(reason)
        return True
