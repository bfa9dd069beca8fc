"""Processes that are killed while they write a ledger; prints what each had used, as one JSON line a kill.

    python ledger_crashes.py FOLDER

One process is forked for every point; it records release after release, and tells through a pipe when it uses one,
as a site draws noise. At a POINT it stops, says so, and is killed with SIGKILL by its parent; at a BYTE the kernel
kills it, with SIGXFSZ, as soon as it writes to any file beyond that offset: in the middle of SQLite's journal or
of the ledger's own pages.
"""

import json
import os
import resource
import signal
import sqlite3
import sys
from pathlib import Path

from collaborator.ledger import Ledger
from tests.actors.ledger_makers import entry

POINTS = ("BEGIN IMMEDIATE", "SELECT number", "INSERT INTO entry", "COMMIT", "recorded", "used")
AT_CREATION = ("PRAGMA application_id", "CREATE TABLE", "link", "sync")
BYTES = {2: (0, 300, 512, 2048, 4096, 4615, 5000, 8192), 15: (0, 600, 4096, 4616, 8192, 8700, 9000, 12288, 13000)}
"""Offsets in bytes, by how many entries there are before: a page has room for the next one, or must be divided."""


class Dying:
    """Stops at one point for ever; what it has used is told through a pipe."""

    def __init__(self, pipe: int, point: str) -> None:
        self._pipe = pipe
        self._point = point
        self.armed = False

    def at(self, place: str) -> None:
        if self.armed and place.strip().startswith(self._point):
            os.write(self._pipe, b"!")
            signal.pause()

    def use(self) -> None:
        os.write(self._pipe, b"u")


def watched(dying: Dying) -> None:
    """Have this process stop at statements and at the steps of making the file."""
    connect, link, sync = sqlite3.connect, os.link, os.fsync

    def connecting(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(dying.at)
        return connection

    def linking(source: Path, target: Path) -> None:
        dying.at("link")
        link(source, target)

    def syncing(descriptor: int) -> None:
        dying.at("sync")
        sync(descriptor)

    sqlite3.connect, os.link, os.fsync = connecting, linking, syncing


def live(path: Path, before: int, dying: Dying, limit: int | None) -> None:
    watched(dying)
    dying.armed = before == 0
    ledger = Ledger(path)
    for number in range(before + 3):
        if number == before:
            dying.armed = True
            if limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        ledger.record(entry(), lambda _: None)
        dying.at("recorded")
        dying.use()
        dying.at("used")


def killed(path: Path, before: int, point: str, limit: int | None = None) -> dict[str, object]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        live(path, before, Dying(writing, point), limit)
        os._exit(0)
    os.close(writing)
    used = 0
    while word := os.read(reading, 1):
        if word == b"!":
            os.kill(child, signal.SIGKILL)
        used += word == b"u"
    os.close(reading)
    _, status = os.waitpid(child, 0)
    died_of = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {"point": point, "path": str(path), "before": before, "used": used, "died_of": died_of}


def tell(kill: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(kill) + "\n")
    sys.stdout.flush()


def main() -> None:
    folder = Path(sys.argv[1])
    for number, point in enumerate(AT_CREATION):
        tell(killed(folder / f"new-{number}.sqlite", 0, point))
    for before, limits in BYTES.items():
        for number, point in enumerate(POINTS):
            tell(killed(folder / f"at-{before}-{number}.sqlite", before, point))
        for limit in limits:
            tell(killed((folder / f"byte-{before}-{limit}.sqlite"), before, f"byte {limit}", limit))


if __name__ == "__main__":
    main()
