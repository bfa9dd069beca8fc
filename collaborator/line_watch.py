"""Tells whether the line to the aggregator breaks often, so that its next silence is looked into sooner.

A dead line that nobody has closed is found by its silence. On a good line a pause of some seconds is nothing, and
to give up a long upload for it would be worse. On one that broke twice of late it is probably dead again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fedfair.wire.service import FRAIL_KEEPALIVE, KEEPALIVE, KeepAlive

BREAKS = 2
BREAKS_SECONDS = 60.0
"""So many attempts in so many seconds before this one make a line frail."""


class LineWatch:
    """The attempts to connect of one process.

    Args:
        clock: seconds since any fixed moment.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: deque[float] = deque(maxlen=BREAKS)

    def next(self) -> KeepAlive:
        """Return how the line is watched that is opened now."""
        now, before = self._clock(), tuple(self._attempts)
        self._attempts.append(now)
        return FRAIL_KEEPALIVE if len(before) == BREAKS and now - before[0] <= BREAKS_SECONDS else KEEPALIVE
