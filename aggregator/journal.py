"""What survives a crash of the aggregator: the course as it stood after the last recorded sum.

One SQLite file, `save/journal.sqlite`, one transaction per entry: whatever happens, it holds the entry before
or the entry after, never half of one. Vectors lie in it in pieces of 1 MiB, so that writing a model of any size
takes no second copy of it in memory. A journal belongs to one plan digest for ever; another plan's journal is
refused instead of overwritten.

Every start of the aggregator on a journal is counted, because sum numbers must not repeat within a run although
the sums after the last entry are forgotten: each start numbers its sums in a block of its own.

Durability: SQLite's write-ahead log without a flush per entry. A killed process loses nothing; a power failure may
lose the last entries, and the run then goes on from an older one to the same result.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import FedfairError
from fedfair.learning.snapshot import CourseSnapshot

FORMAT = "fedfair/journal/2"
OWNER_ONLY = 0o600
PIECE_BYTES = 1 << 20
SUMS_PER_START = 1 << 40
"""More sums than a run of 2^31 rounds with 2^8 attempts each; 2^63 sum numbers allow 2^23 starts."""

_TABLES = """
CREATE TABLE IF NOT EXISTS run (
    only INTEGER PRIMARY KEY CHECK (only = 1), format TEXT, plan_digest BLOB, run_id TEXT, starts INTEGER,
    words TEXT, seconds REAL, clip REAL
) STRICT;
CREATE TABLE IF NOT EXISTS vector (name TEXT PRIMARY KEY, dtype TEXT, length INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS piece (
    name TEXT, position INTEGER, bytes BLOB, PRIMARY KEY (name, position)
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded state of a run.

    Attributes:
        course: what the course restores itself from; every vector is one-dimensional.
        seconds: how long the run had worked when it was recorded, over all starts.
        clip: of the next masked sum; None where sums are plain.
    """

    course: CourseSnapshot
    seconds: float
    clip: float | None = None


class Journal:
    """The journal of one run; one thread uses it at a time.

    Attributes:
        run_id: 32 hexadecimal digits that name the run, the same after every restart.
        last_sum_number: no sum of an earlier start has a higher number; this start goes on from there.
    """

    def __init__(self, connection: sqlite3.Connection, run_id: str, starts: int) -> None:
        self._connection = connection
        self.run_id = run_id
        self.last_sum_number = (starts - 1) * SUMS_PER_START

    @classmethod
    def open(cls, path: Path, plan_digest: bytes, new_run_id: str) -> Journal:
        """Open the journal at `path`, or begin one, and count this start.

        Args:
            path: the file; its folder exists.
            plan_digest: 32 bytes.
            new_run_id: the name of the run if this call begins it.

        Raises:
            FedfairError: the file is another plan's journal, in use, or no journal.
        """
        _keep_private(path)
        # Used from worker threads, but only by one at a time: the driver waits for each entry.
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            row = connection.execute("SELECT format, plan_digest, run_id, starts FROM run").fetchone()
            if row is None:
                row = (FORMAT, plan_digest, new_run_id, 0)
                connection.execute("INSERT INTO run VALUES (1, ?, ?, ?, ?, NULL, 0, NULL)", row)
            found_format, found_digest, run_id, starts = row
            if found_format == FORMAT and found_digest == plan_digest:
                connection.execute("UPDATE run SET starts = starts + 1")
                connection.execute("COMMIT")
                return cls(connection, run_id, starts + 1)
        except sqlite3.Error as error:
            connection.close()
            raise _explained(error, path) from error
        connection.close()
        if found_format != FORMAT:
            raise FedfairError(
                f"{path} is a journal of the form {found_format}, this version of fedfair writes {FORMAT}",
                "finish that run with the version that began it, or start with --fresh to give it up",
            )
        raise FedfairError(
            f"{path} belongs to another plan: it has digest sha256:{bytes(found_digest).hex()}, "
            f"this plan sha256:{plan_digest.hex()}",
            "run each plan in a folder of its own, or start with --fresh to give the older run up",
        )

    def record(self, entry: Entry) -> None:
        """Replace the recorded state by this one; afterwards a crash can no longer lose it."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("DELETE FROM vector")
            connection.execute("DELETE FROM piece")
            for name, vector in entry.course.vectors.items():
                self._insert(name, vector)
            words = json.dumps(entry.course.state)
            connection.execute(
                "UPDATE run SET words = ?, seconds = ?, clip = ?", (words, entry.seconds, entry.clip)
            )
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _insert(self, name: str, vector: NDArray[np.floating]) -> None:
        row = (name, vector.dtype.newbyteorder("<").str, vector.size)
        self._connection.execute("INSERT INTO vector VALUES (?, ?, ?)", row)
        view = np.ascontiguousarray(vector).data.cast("B")
        for position in range(0, len(view), PIECE_BYTES):
            piece = (name, position, view[position : position + PIECE_BYTES])
            self._connection.execute("INSERT INTO piece VALUES (?, ?, ?)", piece)

    def latest(self) -> Entry | None:
        """Return the recorded state; None where nothing was recorded yet."""
        words, seconds, clip = self._connection.execute("SELECT words, seconds, clip FROM run").fetchone()
        if words is None:
            return None
        rows = self._connection.execute("SELECT name, dtype, length FROM vector").fetchall()
        vectors = {name: self._select(name, dtype, length) for name, dtype, length in rows}
        return Entry(CourseSnapshot(json.loads(words), vectors), seconds, clip)

    def _select(self, name: str, dtype: str, length: int) -> NDArray[np.floating]:
        vector = np.empty(length, dtype)
        view = vector.data.cast("B")
        rows = self._connection.execute("SELECT position, bytes FROM piece WHERE name = ?", (name,))
        for position, piece in rows:
            view[position : position + len(piece)] = piece
        return vector

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()


def forget(path: Path) -> None:
    """Delete the journal at `path`, with its log, if there is one; also one that is damaged.

    Raises:
        FedfairError: an aggregator that runs holds it.
    """
    if path.exists():
        _check_free(path)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _keep_private(path: Path) -> None:
    """Let only the owner read the file; SQLite gives those beside it the same mode.

    A file that is there is not opened for that: closing it would drop the locks that this process may hold on it.
    """
    if not path.exists():
        path.touch(OWNER_ONLY)
    elif path.is_file():
        path.chmod(OWNER_ONLY)


def _check_free(path: Path) -> None:
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if _held(error):
            raise _explained(error, path) from error
    finally:
        connection.close()


def _held(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


def _explained(error: sqlite3.Error, path: Path) -> FedfairError:
    if _held(error):
        return FedfairError(
            f"another aggregator runs in this folder: it holds {path}",
            "stop that one first, or start this one in a folder of its own",
        )
    return FedfairError(
        f"{path} cannot be used as the journal of this run: {error}",
        "if the file is damaged, start with --fresh to give its run up",
    )
