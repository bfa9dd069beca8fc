"""Ctrl-C and SIGTERM for a service that runs an event loop: the first stops it in order, a later one at once.

What stopping in order means is the service's own business; shared by the aggregator and the collaborator.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedfair.errors import StoppedError
from fedfair.report.interrupts import Terminated
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

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, take, number.name)
    try:
        yield
    finally:
        for number, earlier in before.items():
            loop.remove_signal_handler(number)
            # The loop would leave SIGTERM to the system, which kills.
            signal.signal(number, earlier)


@contextmanager
def service(what: str) -> Iterator[None]:
    """Let SIGTERM stop a service in order also while no event loop listens to it, such as before its loop.

    Args:
        what: the service, for the message.

    Raises:
        StoppedError: SIGTERM came.
    """
    try:
        yield
    except Terminated as stop:
        name = signal.SIGTERM.name
        raise StoppedError(f"{what} was stopped by its operator ({name})", signal_name=name) from stop


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let SIGINT and SIGTERM do nothing while a service that ends anyway writes down how it ended.

    What arrives now asks for what happens already. Call it in the main thread; the block takes moments.
    """
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
