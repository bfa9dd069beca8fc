"""Starts the timers of a run's deadlines: by the clock of the event loop, unless a caller brings its own.

The rules set and cancel deadlines without a clock (`fedfair/rounds/deadlines.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from fedfair.rounds.events import DeadlineToken

StartTimer: TypeAlias = Callable[[DeadlineToken, float, Callable[[], None]], asyncio.TimerHandle]
"""Calls back after so many seconds, unless the handle is cancelled; the token names the deadline."""


def clock_timer(_token: DeadlineToken, seconds: float, passed: Callable[[], None]) -> asyncio.TimerHandle:
    """Start a timer of the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, passed)
