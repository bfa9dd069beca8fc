"""Interrupts that are delayed, and interrupts that must not be lost.

What must not be torn in the middle is done whole, then the interrupt arrives.

A signal's handler runs between any two steps of the main thread, also inside the standard library: an interrupt
in the middle of `subprocess.Popen` leaves an orphaned child. Blocking the signal instead would not do,
because a child inherits what is blocked and could then not be asked to stop.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block has ended, then let each that came be handled as before."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs handlers in the main thread only.
        return
    came: list[signal.Signals] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(signal.Signals(number))

    try:
        with _handled_by(remember):
            yield
    finally:
        for interrupt in dict.fromkeys(came):
            signal.raise_signal(interrupt)


@contextlib.contextmanager
def interrupts_caught() -> Iterator[Callable[[], None]]:
    """Let SIGINT and SIGTERM raise a KeyboardInterrupt in the block, which gets a function to ask for lost ones.

    Python swallows what is raised while it destroys an object or forgets a module's lock. A caller that asks at
    every turn of a loop has the KeyboardInterrupt then. Call it in the main thread.
    """
    came: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    def ask() -> None:
        if came:
            raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield ask


@contextlib.contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    """Let a handler have both signals in the block, and afterwards who had them before."""
    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    try:
        for number in INTERRUPTS:
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
