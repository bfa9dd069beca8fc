"""Ctrl-C and SIGTERM for a service that runs an event loop: the first stops it cleanly, a later one at once.

What stopping in order means is the service's own business; shared by the aggregator and the collaborator.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import ParamSpec

from fedfair.errors import StoppedError
from fedfair.process.hangup import terminal_outlived
from fedfair.process.interrupts import (
    BEGINS_ITSELF,
    EXIT_BY_SIGNAL,
    SAME_REQUEST_SECONDS,
    SIGNALS,
    Terminated,
    interrupts_of_this_process,
    taken_by_an_import,
)

WAKE_BYTES = 64

Arguments = ParamSpec("Arguments")


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
def stopping(
    stop: Callable[[str], None],
    tell: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """While the block runs in an event loop, let SIGINT and SIGTERM stop it.

    Args:
        stop: called in the loop with the name of the first signal; it returns soon.
        tell: called next with the same name, to say so. What it cannot write is left unsaid.
        clock: seconds that never go back.
    """

    def stop_then_notify(name: str) -> None:
        stop(name)
        # On a full disk no note fits, and that must keep nobody from stopping.
        with suppress(OSError):
            if tell is not None:
                tell(name)

    requests, loop = StopRequests(stop_then_notify, clock), asyncio.get_running_loop()
    interrupts = interrupts_of_this_process()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)

    def take() -> None:
        for number in os.read(woken, WAKE_BYTES):
            if number not in SIGNALS:
                continue
            if interrupts is not None:
                interrupts.end()
            if requests.take(signal.Signals(number).name):
                os._exit(EXIT_BY_SIGNAL)

    # The loop's own way gives SIGTERM back to the system, which kills, before anybody can have it again.
    loop.add_reader(woken, take)
    before_wake = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _wake_only) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
        signal.set_wakeup_fd(before_wake)
        loop.remove_reader(woken)
        os.close(woken)
        os.close(wake)


def _wake_only(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number of the signal stands in the pipe that wakes the loop."""


@contextmanager
def service(what: str) -> Iterator[None]:
    """Let SIGTERM stop a service in order also while no event loop listens to it, such as before its loop.

    Args:
        what: the service, for the message.

    Raises:
        StoppedError: SIGTERM came, in the block or before it.
    """
    interrupts = interrupts_of_this_process()
    try:
        if interrupts is not None:
            interrupts.begin()
        try:
            yield
        finally:
            # The service is over; a signal from now on asks for what happens already.
            if interrupts is not None:
                interrupts.end()
    except Terminated as stop:
        raise _stopped(what) from stop
    except Exception as fault:
        if not isinstance(taken_by_an_import(fault), Terminated):
            raise
        raise _stopped(what) from fault


def _stopped(what: str) -> StoppedError:
    name = signal.SIGTERM.name
    return StoppedError(f"{what} was stopped by its operator ({name})", signal_name=name)


def as_service(what: str) -> Callable[[Callable[Arguments, None]], Callable[Arguments, None]]:
    """Make a command a service: SIGTERM shuts it down cleanly, also before it has begun, and SIGHUP ends nothing.

    Args:
        what: the service, for the message.
    """

    def made(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
        @wraps(command)
        def serve(*words: Arguments.args, **options: Arguments.kwargs) -> None:
            with terminal_outlived(), service(what):
                command(*words, **options)

        serve.__dict__[BEGINS_ITSELF] = True
        return serve

    return made


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
