"""Chooses the wait before the next attempt to connect.

Doubles from a quarter of a second to half a minute, and takes a random part of it, so that many sites which lost
the same aggregator do not all come back in the same moment. Starts again with every accepted answer, every
round that was heard to its end, and after a stream that lived for a while; not with every greeting: an aggregator
whose streams break right after it must not be called several times a second.
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_SECONDS = 0.25
MAX_SECONDS = 30.0

LIVED_SECONDS = 30.0
"""A stream that lived so long was good: what broke it is a new fault."""


class Backoff:
    """The waiting times of one process.

    Args:
        draw: returns a number in [0, 1); randomness comes from outside.

    Attributes:
        fruitless: attempts since something was brought to its end.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._longest = FIRST_SECONDS
        self.fruitless = 0

    def next(self) -> float:
        """Return the seconds to wait now: between half of the present bound and all of it."""
        bound = self._longest
        self.fruitless += 1
        self._longest = min(2 * bound, MAX_SECONDS)
        return bound * (1 + self._draw()) / 2

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._longest = FIRST_SECONDS
        self.fruitless = 0
