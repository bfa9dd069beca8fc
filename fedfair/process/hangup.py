"""Lets a service outlive its terminal: SIGHUP ends nothing, and what was shown there goes nowhere from then on.

There is nothing that the signal could ask for besides: certificates and revocations are looked at every second,
and a plan never changes under a run. Notes and logs are in files. Where the signal is ignored already (`nohup`),
that stays. Imports nothing that takes time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STREAMS = (0, 1, 2)


@contextmanager
def terminal_outlived() -> Iterator[None]:
    """While the block runs in the main thread, continue without the terminal where it closes."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) == signal.SIG_IGN:
        yield
        return
    # Asked beforehand: a terminal that is gone says that it is none.
    shown = [stream for stream in STREAMS if os.isatty(stream)]

    def keep_running(_number: int, _frame: FrameType | None) -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in shown:
            os.dup2(nowhere, stream)
        os.close(nowhere)

    before = signal.signal(hangup, keep_running)
    try:
        yield
    finally:
        signal.signal(hangup, before)
