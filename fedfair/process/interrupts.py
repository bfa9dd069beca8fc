"""Ends a program on Ctrl-C and SIGTERM, by one exception that never gets lost.

Signals that follow each other closely are one request, so the last words of a program are said in peace.

Python cannot raise an exception out of a callback of a weak reference, of a finaliser, or of the lock of an
import. It prints a traceback there and continues, so the signal would be lost. Such a signal is sent again.
Imports nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SIGNALS = (signal.SIGINT, signal.SIGTERM)

EXIT_BY_SIGNAL = 130
"""As `exit_status.ExitStatus.INTERRUPTED`, which takes longer to import."""

SAME_REQUEST_SECONDS = 1.0
"""Signals within this time of the first are one request: a terminal sends Ctrl-C to all processes in it, and the
parent of this process (`timeout`, a script, a service) may pass it on. Nobody could have read the answer
sooner."""

BEGINS_ITSELF = "begins_itself"
"""The attribute of a command that calls `Interrupts.begin` by itself, where it can say what SIGTERM does."""

AGAIN_SECONDS = 0.02
"""After this time a lost signal is sent again, and then as often until it is taken."""


class Terminated(KeyboardInterrupt):
    """SIGTERM outside an event loop that stops cleanly."""


class Interrupts:
    """The handler of SIGINT and SIGTERM in a command; it raises once for each request.

    SIGTERM waits until the command has begun: only then does anybody know whether a service is to be stopped.
    It lives in the table of signals, where `interrupts_of_this_process` finds it.
    """

    def __init__(self) -> None:
        self._requested: float | None = None
        self._ending = False
        self._begun = False
        self._early = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: a new request; `Terminated` where it is SIGTERM.
        """
        now = time.monotonic()
        if self._requested is not None and now - self._requested < SAME_REQUEST_SECONDS:
            return
        if self._ending:
            os._exit(EXIT_BY_SIGNAL)
        if number == signal.SIGTERM and not self._begun:
            self._early = True
            return
        self._requested = now
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def begin(self) -> None:
        """Take SIGTERM from now on, also one that came before.

        Raises:
            Terminated: SIGTERM came before.
        """
        self._begun = True
        if self._early:
            self._early = False
            self._requested = time.monotonic()
            raise Terminated

    def end(self) -> None:
        """Raise nothing any more: the process ends. A signal of a later request ends it at once."""
        if self._requested is None:
            self._requested = time.monotonic()
        self._ending = True

    def forget(self) -> None:
        """Take the next signal as a new request, because the last one was lost."""
        self._requested = None

    def has_request(self) -> bool:
        """Return whether a signal has been taken that nobody forgot since."""
        return self._requested is not None or self._early


def interrupts_of_this_process() -> Interrupts | None:
    """Return the handler that the command line of this process has installed."""
    handler = signal.getsignal(signal.SIGTERM)
    return handler if isinstance(handler, Interrupts) else None


def taken_by_an_import(fault: BaseException | None) -> KeyboardInterrupt | None:
    """Return the request to stop behind a fault, where an import has put a fault of its own in its place.

    So does a module in C that is interrupted while it is initialised: it raises an `ImportError`.
    """
    while fault is not None:
        behind = fault.__cause__ or fault.__context__
        if isinstance(fault, ImportError) and isinstance(behind, KeyboardInterrupt):
            return behind
        fault = behind
    return None


def ignore_interrupts() -> None:
    """Let SIGINT and SIGTERM do nothing for the rest of the process."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


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
        interrupts = interrupts_of_this_process()
        if interrupts is not None:
            interrupts.forget()
        taken = interrupts.has_request if interrupts is not None else _once_is_enough
        # In the main thread, and at once, it would be raised in here and be lost again.
        threading.Thread(target=send_until_taken, args=(partial(_send, number), taken), daemon=True).start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def send_until_taken(send: Callable[[], None], taken: Callable[[], bool], every: float = AGAIN_SECONDS) -> None:
    """Send a signal again and again until its handler has taken it.

    Once is not enough. Where the signal arrives after the main thread has given up Python's lock, and before it
    sleeps in the system, Python notes it and does not handle it: the sleep lasts as long as ever.

    Args:
        send: sends it to the main thread.
        taken: whether the handler has taken it.
        every: seconds before each time.
    """
    while True:
        time.sleep(every)
        send()
        if taken():
            return


def _send(number: signal.Signals) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, number)


def _once_is_enough() -> bool:
    """Say so where the handler is another's, who does not tell when it has taken a signal."""
    return True
