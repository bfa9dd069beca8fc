"""The signals of this process, which a command line that runs in it takes for good."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from fedfair.process.interrupts import SIGNALS


@contextmanager
def interrupts_given_back() -> Iterator[None]:
    """Let whoever had SIGINT and SIGTERM before the block have them again after it."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
