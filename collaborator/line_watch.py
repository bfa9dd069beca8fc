"""Tells whether the line to the aggregator broke of late, so that its next silence is looked into sooner.

A dead line that nobody has closed is found by its silence. On a good line a pause of some seconds is nothing, and
to give up a long upload for it would be worse. On one that broke a moment ago it is probably dead again. But where
attempt after attempt brings nothing to its end, the line may be one that often pauses, and is given its time.
"""

from __future__ import annotations

from collections.abc import Callable

from fedfair.wire.service import FRAIL_KEEPALIVE, KEEPALIVE, KeepAlive

FRAIL_SECONDS = 60.0
"""A line is frail that is opened again within so many seconds."""

MAX_FRUITLESS = 3
"""Attempts that may bring nothing to its end before a line is given its time."""


class LineWatch:
    """The attempts to connect of one process.

    Args:
        clock: seconds since any fixed moment.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: float | None = None

    def next(self, fruitless: int) -> KeepAlive:
        """Return how the line is watched that is opened now.

        Args:
            fruitless: attempts since a contribution was accepted, a round was heard to its end, or a stream lived.
        """
        now, before = self._clock(), self._before
        self._before = now
        is_frail = before is not None and now - before <= FRAIL_SECONDS and fruitless <= MAX_FRUITLESS
        return FRAIL_KEEPALIVE if is_frail else KEEPALIVE
