"""The deadlines of a run: when each passes, and its timer, by the clock of the event loop or a caller's own.

The rules set and cancel deadlines without a clock (`fedfair/rounds/deadlines.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from fedfair.rounds.events import DeadlineKind, DeadlineToken

StartTimer: TypeAlias = Callable[[DeadlineToken, float, Callable[[], None]], asyncio.TimerHandle]
"""Calls back after so many seconds, unless the handle is cancelled; the token names the deadline."""


def clock_timer(_token: DeadlineToken, seconds: float, passed: Callable[[], None]) -> asyncio.TimerHandle:
    """Start a timer of the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, passed)


class DeadlineTimers:
    """The deadlines that are set.

    Args:
        start_timer: starts the timer of one.
    """

    def __init__(self, start_timer: StartTimer = clock_timer) -> None:
        self._start_timer = start_timer
        self._timers: dict[DeadlineToken, asyncio.TimerHandle] = {}
        self._ends: dict[DeadlineToken, datetime] = {}

    def set(self, token: DeadlineToken, seconds: float, passed: Callable[[], None]) -> None:
        """Set a deadline; `passed` is called when it has passed, unless it is cancelled."""
        self._ends[token] = datetime.now(UTC) + timedelta(seconds=seconds)
        self._timers[token] = self._start_timer(token, seconds, passed)

    def cancel(self, token: DeadlineToken) -> None:
        """Cancel a deadline that was set."""
        self._timers.pop(token).cancel()
        del self._ends[token]

    def cancel_all(self) -> None:
        """Cancel every deadline: the run is over."""
        for timer in self._timers.values():
            timer.cancel()

    def first(self, tokens: Collection[DeadlineToken]) -> datetime:
        """Return when the first of some deadlines passes, with a time zone."""
        return min(self._ends[token] for token in tokens)

    def end_of_sum(self, awaited: int) -> datetime | None:
        """Return when the open sum waits no longer, for so many sites; None where nothing ends it."""
        ends = [at for token, at in self._ends.items() if token.kind in {DeadlineKind.SUM, DeadlineKind.MASKS}]
        graces = [at for token, at in self._ends.items() if token.kind is DeadlineKind.GRACE]
        if graces and len(graces) == awaited:
            # All that are awaited are away, and nobody waits for them longer than that.
            ends.append(max(graces))
        return min(ends, default=None)
