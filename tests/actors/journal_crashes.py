"""Processes that record two entries of a journal with long vectors, and die at one step of the second each.

    python -m tests.actors.journal_crashes FOLDER

Steps are operations on the file system, statements of the database, and the journal's own. One process is forked
for every step, and dies by SIGKILL before it takes that step; the last one takes them all. Each writes
`FOLDER/<step>/journal.sqlite`.
"""

import itertools
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from aggregator.journal import Journal, JournalEntry
from aggregator.journal_vectors import LongVectors
from fedfair.rounds.state_steps import LastOpened
from fedfair.run.snapshot import RunSnapshot

DIGEST, RUN, NOW = bytes(range(32)), "0123456789abcdef" * 2, 1_800_000_000.0
LARGE = 4096
LENGTH = LARGE // 4 + 1


def entry(value: int) -> JournalEntry:
    """Return an entry with a long model and sum of its own, a long vector that stays the same, and a short one."""
    vectors = {
        "model": np.full(LENGTH, value, np.float32),
        "best": np.full(LENGTH, 7.0, np.float32),
        "scaling.mean": np.full(3, float(value)),
    }
    opened = LastOpened(bytes(32), b"message", bytes([value]) * (LARGE + 1), masked=True, receivers=("a",))
    return JournalEntry(RunSnapshot({"round": value}, vectors), float(value), opened=opened)


class Dying:
    """Counts steps once it is armed, and dies before one of them."""

    def __init__(self, step: int) -> None:
        self._left = step
        self.armed = False

    def at(self, _: object) -> None:
        if self.armed:
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1

    def before(self, function: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            self.at(None)
            return function(*arguments, **options)

        return counted


def watched(dying: Dying) -> None:
    """Have every operation of this process on files, and every statement, be a step."""
    connect = sqlite3.connect

    def connecting(*arguments: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(dying.at)
        return connection

    sqlite3.connect = connecting  # type: ignore[assignment]
    for name in ("open", "fdopen", "fsync", "mkdir", "unlink", "rename", "replace"):
        setattr(os, name, dying.before(getattr(os, name)))


def live(path: Path, step: int) -> None:
    dying = Dying(step)
    watched(dying)
    journal = Journal.open(path, DIGEST, RUN, NOW, LongVectors(LARGE, dying.at))
    journal.record(entry(1))
    dying.armed = True
    journal.record(entry(2))


def main(folder: Path) -> None:
    for step in itertools.count():
        place = folder / str(step)
        place.mkdir()
        child = os.fork()
        if not child:
            live(place / "journal.sqlite", step)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not status:
            return
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            raise SystemExit(f"the process of step {step} ended with {status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
