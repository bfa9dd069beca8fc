"""How Ctrl-C and SIGTERM end a program: by an exception in whatever it does, and never by one that gets lost.

Python cannot raise an exception out of a callback of a weak reference, of a finaliser, or of the lock of an
import. It prints a traceback there and goes on, so the signal would be lost. Such a signal is sent again.
Imports nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_SECONDS = 0.02
"""After this time a lost signal is sent again: the callback is over by then, or the signal is lost once more."""


class Terminated(KeyboardInterrupt):
    """SIGTERM outside an event loop that stops in order."""


def interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    """Handle SIGTERM as Python handles Ctrl-C.

    Raises:
        Terminated: always.
    """
    raise Terminated


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """While the block runs, send Ctrl-C or SIGTERM again where Python could not raise it.

    Other faults that could not be raised are printed as ever.
    """
    before = sys.unraisablehook

    def hook(unraisable: UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, KeyboardInterrupt):
            before(unraisable)
            return
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        # In the main thread, and at once, it would be raised in here and be lost again.
        again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
