"""Ctrl-C and SIGTERM for a program that runs an event loop: the first stops it in order, a later one at once.

What stopping in order means is the program's own business; shared by the aggregator and the collaborator.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedfair.report.launch import EXIT_BY_SIGNAL

SAME_REQUEST_SECONDS = 1.0
"""Signals within this time of the first are one request: a terminal sends Ctrl-C to everybody in it, and whoever
started this process (`timeout`, a script, a service) may pass it on. Nobody could have read the answer sooner."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequests:
    """Tells a first request to stop from one that has lost patience.

    Args:
        stop: called with the name of the first signal.
        clock: seconds that never go back.
    """

    def __init__(self, stop: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._stop = stop
        self._clock = clock
        self._first: float | None = None

    def take(self, name: str) -> bool:
        """Take a signal, and return whether the process has to end at once."""
        now = self._clock()
        if self._first is None:
            self._first = now
            self._stop(name)
            return False
        return now - self._first >= SAME_REQUEST_SECONDS


@contextmanager
def stopping(stop: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """While the block runs in an event loop, let SIGINT and SIGTERM stop it.

    Args:
        stop: called in the loop with the name of the first signal; it returns soon.
        clock: seconds that never go back.
    """
    requests, loop = StopRequests(stop, clock), asyncio.get_running_loop()

    def take(name: str) -> None:
        if requests.take(name):
            os._exit(EXIT_BY_SIGNAL)

    for number in SIGNALS:
        loop.add_signal_handler(number, take, number.name)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
