"""Remembers which reasons an operator has been told of whom, so that nobody fills the notes by repeating them."""

from __future__ import annotations

from collections.abc import Callable

MAX_REASONS = 8
"""Reasons that are told of one name."""

REMINDER_SECONDS = 24 * 3600.0
"""After so long a reason is told again."""


class ToldReasons:
    """The reasons that were told, by name.

    Args:
        clock: seconds since any fixed moment; None where nothing is ever told again.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._since = 0.0 if clock is None else clock()
        self._told: dict[str, set[str]] = {}

    def is_news(self, who: str, reason: str) -> bool:
        """Return whether this is to be told; it counts as told then."""
        if self._clock is not None and self._clock() - self._since > REMINDER_SECONDS:
            self._told, self._since = {}, self._clock()
        told = self._told.setdefault(who, set())
        if reason in told or len(told) >= MAX_REASONS:
            return False
        told.add(reason)
        return True
