"""The journal, which survives a crash: the training run as it stood after the last recorded sum.

One SQLite file, `save/journal.sqlite`, one transaction per entry: whatever happens, it holds the entry before
or the entry after, never half of one. Short vectors lie in it in pieces of 1 MiB. A vector above 4 MiB is a file
in `save/journal.vectors`, named by its digest (`fedfair.store.vector_files`), because a database would write
each byte of it three times. Such a file is on the disk before the entry that names it, and is removed after an
entry that does not. What is the same in two entries is written once.

A journal in which a sum was recorded belongs to one plan digest for ever; another plan's journal is refused
instead of overwritten. A run that never started is discarded when the plan changes.

Sum numbers must not repeat within a run, although the sums after the last entry are forgotten, and the whole file
may be an old copy: each start numbers its sums in a block of its own, by the clock (`rounds/continued.py`).

Every row has a digest, and the row of the run names the digests of the vectors that belong to it. They are checked
when the journal is read, so a flipped bit or a lost piece never becomes the model. A digest is no signature: it
shows damage, and not that somebody wrote another journal on purpose.

Beside it lies what opens the sum that is under way, from what the sites have sent: written before it is asked for.
Evaluations and costs are written once, a row for each: an entry takes no longer late in a run than early.
What every sum cost is written with the entry that has its total, and who left at once: `result.json` tells both,
and no log is read for it. A sum that a crash made the run forget is repeated, and counts once.

Durability: SQLite's write-ahead log without a flush per entry. A killed process loses nothing; a power failure may
lose the last entries, and the run then continues from an older one to the same result. With files each entry waits
for the disk, because a power failure must not bring back an entry whose files are removed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.journal_rows import REMEDY, TABLES, UNREADABLE, check_row, damaged, explained, seal, sha256_of
from fedfair.aggregation.evaluator import Evaluation
from fedfair.errors import FedfairError, StateError
from fedfair.file_formats import format_fault
from fedfair.ids import ParticipantId, SumNumber
from fedfair.results.costs import SumCost
from fedfair.rounds.continued import first_block
from fedfair.rounds.events import Departed, UnfinishedSum
from fedfair.rounds.state_steps import LastOpened
from fedfair.run.history import to_line
from fedfair.run.snapshot import RunSnapshot
from fedfair.statistics.table import Purpose
from fedfair.store.lock import HeldError, ProcessLock, runs_already
from fedfair.store.vector_files import VectorFiles, no_step

FORMAT = "fedfair/journal/7"

OWNER_ONLY = 0o600
PIECE_BYTES = 1 << 20
LARGE_BYTES = 4 << 20
"""The longest vector in the database, in bytes; a longer one is a file."""
NEWEST_COSTS = 10_000
"""Rows of what sums cost that a start checks: a tenth of a second, whatever the run's history."""

OPENED_MESSAGE, OPENED_VECTOR = "opened.message", "opened.vector"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One recorded state of a run.

    Attributes:
        training_run: what the training run restores itself from; every vector is one-dimensional.
        seconds: how long the run had worked when it was recorded, over all starts.
        costs: of the sums that closed since the entry before, in order; `latest` leaves them to `costs`.
        opened: the sum that was opened last, for sites that have missed it; None before the first.
        history: the evaluations that the training run's words leave out; `latest` puts them in their place.
        known_sha256: 64 hexadecimal digits for vectors whose digest is known already, by name.
    """

    training_run: RunSnapshot
    seconds: float
    costs: tuple[SumCost, ...] = ()
    opened: LastOpened | None = None
    history: tuple[Evaluation, ...] = ()
    known_sha256: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LongVectors:
    """Which vectors are files.

    Attributes:
        large_bytes: the longest vector in the database; a longer one is a file.
        reached: called with the name of each step of an entry before it is taken; a test can stop there.
    """

    large_bytes: int = LARGE_BYTES
    reached: Callable[[str], None] = no_step


AS_FILES = LongVectors()


class Journal:
    """The journal of one run; several threads may write to it.

    Attributes:
        run_id: 32 hexadecimal digits that name the run, the same after every restart.
        last_sum_number: no sum of an earlier start has a higher number; this start continues from there.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: ProcessLock,
        run_id: str,
        block: SumNumber,
        long: LongVectors,
    ) -> None:
        self._path = path
        self._long = long
        self._files = VectorFiles(_vectors_folder(path), REMEDY, reached=long.reached)
        self._recording = threading.Lock()
        self._lock = lock
        self._connection = connection
        self._writing = threading.Lock()
        self._history: tuple[Evaluation, ...] | None = None
        self.run_id = run_id
        self.last_sum_number = block

    @classmethod
    def open(
        cls,
        path: Path,
        plan_digest: bytes,
        new_run_id: str,
        now_seconds: float,
        long: LongVectors = AS_FILES,
    ) -> Journal:
        """Open the journal at `path`, or begin one, and take a block of sum numbers.

        Files of vectors that the recorded state does not name are removed: a crash has left them.

        Args:
            path: the file; its folder exists.
            plan_digest: 32 bytes.
            new_run_id: the name of the run if this call begins it.
            now_seconds: since 1970, by this machine's clock.
            long: which vectors are files.

        Raises:
            StateError: the file is another plan's journal, damaged, or no journal.
            FedfairError: it is in use.
        """
        lock = _lock(path)
        try:
            return cls._open(path, lock, plan_digest, new_run_id, now_seconds, long)
        except BaseException:
            lock.close()
            raise

    @classmethod
    def _open(
        cls,
        path: Path,
        lock: ProcessLock,
        plan_digest: bytes,
        new_run_id: str,
        now_seconds: float,
        long: LongVectors,
    ) -> Journal:
        _keep_private(path)
        # Used from worker threads; one transaction waits for the other.
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            is_new = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            for statement in TABLES.split(";"):
                connection.execute(statement)
            if is_new:
                row = (FORMAT, plan_digest, new_run_id)
                connection.execute("INSERT INTO run VALUES (1, ?, ?, ?, 0, NULL, 0, '{}', 0, NULL)", row)
                seal(connection, "run")
            row = connection.execute("SELECT format, plan_digest, run_id, block FROM run").fetchone()
            found_format, found_digest, run_id, earlier = row or (FORMAT, plan_digest, "", 0)
            is_readable = found_format == FORMAT
            if is_readable:
                check_row(connection, path, "run")
            if is_readable and found_digest != plan_digest and not _has_begun(connection):
                _begin_anew(connection, plan_digest, new_run_id)
                found_digest, run_id = plan_digest, new_run_id
            if is_readable and found_digest == plan_digest:
                block = first_block(now_seconds, SumNumber(earlier))
                connection.execute("UPDATE run SET block = ?", (block,))
                seal(connection, "run")
                connection.execute("COMMIT")
                journal = cls(path, connection, lock, run_id, block, long)
                journal._drop_unnamed_files()
                return journal
        except FedfairError:
            connection.close()
            raise
        except (*UNREADABLE, OSError) as error:
            connection.close()
            raise explained(error, path) from error
        connection.close()
        if not is_readable:
            raise StateError(
                format_fault(str(found_format), FORMAT, str(path)),
                "finish that run with the version that began it, or start with --fresh to discard it",
            )
        raise StateError(
            f"{path} belongs to another plan: it has digest sha256:{bytes(found_digest).hex()}, "
            f"this plan sha256:{plan_digest.hex()}",
            "run each plan in a folder of its own, or start with --fresh to discard the older run",
        )

    def record(self, entry: JournalEntry) -> None:
        """Replace the recorded state by this one; afterwards a crash can no longer lose it.

        Raises:
            OSError, sqlite3.Error: it cannot be written; the state before is still recorded.
        """
        with self._recording:
            self._record(entry)

    def _record(self, entry: JournalEntry) -> None:
        vectors: dict[str, NDArray[np.floating] | NDArray[np.uint8]] = dict(_vectors_of(entry.opened))
        vectors |= entry.training_run.vectors
        large = {name: vector for name, vector in vectors.items() if vector.nbytes > self._long.large_bytes}
        places: dict[str, _Place] = {
            name: self._file(vector, entry.known_sha256.get(name, "")) for name, vector in large.items()
        }
        if large:
            with self._writing:
                self._connection.execute("PRAGMA synchronous = FULL")
        self._long.reached("begin the transaction")
        with self._transaction() as connection:
            connection.execute("DELETE FROM vector")
            connection.execute("DELETE FROM piece")
            short = (name for name in vectors if name not in large)
            places |= {name: self._insert(name, vectors[name]) for name in short}
            (sums,) = connection.execute("SELECT sums FROM run").fetchone()
            for position, cost in enumerate(entry.costs, sums):
                taken = (float(cost.seconds), cost.contributors, cost.bytes_up, cost.bytes_down)
                row = (position, cost.purpose.value, cost.round, *taken)
                connection.execute("INSERT INTO cost VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, sha256_of(row)))
            evaluations = self._record_history(connection, entry.history)
            words = (
                json.dumps([entry.training_run.state, _facts_of(entry.opened), evaluations]),
                entry.seconds,
                json.dumps(places),
            )
            update = "UPDATE run SET words = ?, seconds = ?, vectors = ?, sums = ?"
            connection.execute(update, (*words, sums + len(entry.costs)))
            seal(connection, "run")
            self._long.reached("commit")
        self._history = entry.history
        self._long.reached("committed")
        self._files.drop_all_but(_files_of(places))

    def _drop_unnamed_files(self) -> None:
        (places,) = self._connection.execute("SELECT vectors FROM run").fetchone()
        self._files.drop_all_but(_files_of(json.loads(places)))

    def _record_history(self, connection: sqlite3.Connection, history: tuple[Evaluation, ...]) -> int:
        """Write the evaluations that are not written yet; return how many there are."""
        known = self._history or ()
        # Evaluations are values that a run hands on as they are, so one look at the last of them is enough.
        continues = len(known) <= len(history) and (not known or history[len(known) - 1] is known[-1])
        if self._history is None or not continues:
            # A run that was restored, or a long history that was shortened.
            connection.execute("DELETE FROM evaluation")
            known = ()
        for position in range(len(known), len(history)):
            row = (position, to_line(history[position]))
            connection.execute("INSERT INTO evaluation VALUES (?, ?, ?)", (*row, sha256_of(row)))
        return len(history)

    def keep(self, unfinished: UnfinishedSum) -> None:
        """Replace the record of the sum that is under way; whether it was finished shows the recorded state."""
        with self._transaction() as connection:
            row = (unfinished.attempt, unfinished.record)
            connection.execute("INSERT OR REPLACE INTO unfinished VALUES (1, ?, ?, NULL)", row)
            seal(connection, "unfinished")

    def add_departure(self, departed: Departed) -> None:
        """Add who left, or does not come; afterwards a crash can no longer lose it."""
        with self._transaction() as connection:
            (position,) = connection.execute("SELECT count(*) FROM departure").fetchone()
            row = (position, departed.participant, departed.round, departed.reason)
            connection.execute("INSERT INTO departure VALUES (?, ?, ?, ?, ?)", (*row, sha256_of(row)))

    def add_lateness(self, who: ParticipantId, seconds: float, *, times: int) -> None:
        """Count a collaborator's lateness: one row for each, with the sum of `times` and the most of `seconds`.

        Args:
            who: its name.
            seconds: how long it has taken for a step of a sum.
            times: how many steps went on without it.
        """
        with self._transaction() as connection:
            (count,) = connection.execute("SELECT count(*) FROM late_site").fetchone()
            query = "SELECT position, times, seconds FROM late_site WHERE collaborator = ?"
            position, before, longest = connection.execute(query, (who,)).fetchone() or (count, 0, 0.0)
            row = (position, who, before + times, max(longest, float(seconds)))
            connection.execute("INSERT OR REPLACE INTO late_site VALUES (?, ?, ?, ?, ?)", (*row, sha256_of(row)))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def costs(self) -> list[SumCost]:
        """Return what every sum of the recorded state cost, over all starts, in order.

        Raises:
            StateError: a row is damaged or lost.
        """
        try:
            (sums,) = self._connection.execute("SELECT sums FROM run").fetchone()
            rows = self._checked("SELECT * FROM cost ORDER BY position", sums, "what a sum cost")
            return [SumCost(Purpose(purpose), *figures) for purpose, *figures in rows]
        except UNREADABLE as error:
            raise explained(error, self._path) from error

    def departures(self) -> list[Departed]:
        """Return who left, or did not come, over all starts, in order.

        Raises:
            StateError: a row is damaged.
        """
        try:
            rows = self._checked("SELECT * FROM departure ORDER BY position", None, "who left")
            return [Departed(ParticipantId(name), number, reason) for name, number, reason in rows]
        except UNREADABLE as error:
            raise explained(error, self._path) from error

    def late_sites(self) -> list[tuple[str, int, float]]:
        """Return who was late, over all starts: its name, how often, and the most seconds that it took.

        Raises:
            StateError: a row is damaged.
        """
        try:
            rows = self._checked("SELECT * FROM late_site ORDER BY position", None, "who was late")
            return [(name, times, seconds) for name, times, seconds in rows]
        except UNREADABLE as error:
            raise explained(error, self._path) from error

    def _checked(self, query: str, count: int | None, what: str, first: int = 0) -> list[tuple[Any, ...]]:
        """Return rows without position and digest; each must be in its place, and have its digest."""
        rows = self._connection.execute(query).fetchall()
        for place, (*values, digest) in enumerate(rows, first):
            if values[0] != place or sha256_of(values) != digest:
                raise damaged(self._path, f"the row of {what} ({place + 1})")
        if count is not None and len(rows) != count:
            raise damaged(self._path, f"the table of {what}, with {len(rows)} rows in place of {count},")
        return [tuple(values[1:]) for *values, _ in rows]

    def unfinished(self) -> UnfinishedSum | None:
        """Return the latest sum that was begun, finished or not; None where none was kept.

        Raises:
            StateError: its row is damaged.
        """
        try:
            row = self._connection.execute("SELECT attempt, record FROM unfinished").fetchone()
            if row is None:
                return None
            check_row(self._connection, self._path, "unfinished")
        except UNREADABLE as error:
            raise explained(error, self._path) from error
        return UnfinishedSum(row[0], bytes(row[1]))

    def _file(self, vector: NDArray[np.floating] | NDArray[np.uint8], sha256: str) -> tuple[str, str, int]:
        """Keep a vector as a file; return its digest, its kind of numbers and how many there are."""
        dtype = vector.dtype.newbyteorder("<")
        content = np.ascontiguousarray(vector, dtype).data.cast("B")
        return self._files.keep(content, sha256), dtype.str, vector.size

    def _insert(self, name: str, vector: NDArray[np.floating] | NDArray[np.uint8]) -> str:
        row = (name, vector.dtype.newbyteorder("<").str, vector.size)
        self._connection.execute("INSERT INTO vector VALUES (?, ?, ?)", row)
        view = np.ascontiguousarray(vector).data.cast("B")
        for position in range(0, len(view), PIECE_BYTES):
            piece = (name, position, view[position : position + PIECE_BYTES])
            self._connection.execute("INSERT INTO piece VALUES (?, ?, ?)", piece)
        return _vector_sha256(row[1], view)

    def latest(self) -> JournalEntry | None:
        """Return the recorded state; None where nothing was recorded yet.

        Raises:
            StateError: it is damaged; the message names the row.
        """
        try:
            check_row(self._connection, self._path, "run")
            row = self._connection.execute("SELECT words, seconds, vectors FROM run").fetchone()
            words, seconds, places = row
            if words is None:
                return None
            found = {name: self._select(name, place) for name, place in json.loads(places).items()}
        except UNREADABLE as error:
            raise explained(error, self._path) from error
        # What the result will need is looked at here too: damage is reported before the run continues.
        self._check_newest_costs()
        self.departures()
        self.late_sites()
        state, told, evaluations = json.loads(words)
        if evaluations:
            state = {**state, "history": self._evaluations(evaluations)}
        opened = _opened_of(told, found)
        return JournalEntry(RunSnapshot(state, found), seconds, opened=opened)

    def _evaluations(self, count: int) -> list[object]:
        """Return the words of every evaluation of the history, in order."""
        try:
            rows = self._checked("SELECT * FROM evaluation ORDER BY position", count, "an evaluation")
            return [json.loads(words) for (words,) in rows]
        except UNREADABLE as error:
            raise explained(error, self._path) from error

    def _check_newest_costs(self) -> None:
        """Check what the newest sums cost; older rows are checked when the result is made of all of them.

        Raises:
            StateError: a row is damaged or lost.
        """
        try:
            (sums,) = self._connection.execute("SELECT sums FROM run").fetchone()
            first = max(0, sums - NEWEST_COSTS)
            query = f"SELECT * FROM cost WHERE position >= {first:d} ORDER BY position"  # noqa: S608 - a number
            self._checked(query, sums - first, "what a sum cost", first)
        except UNREADABLE as error:
            raise explained(error, self._path) from error

    def _select(self, name: str, place: _Place) -> NDArray[np.floating]:
        if not isinstance(place, str):
            digest, dtype, length = place
            return self._files.load(digest, length * np.dtype(dtype).itemsize).view(dtype)
        row = self._connection.execute("SELECT dtype, length FROM vector WHERE name = ?", (name,)).fetchone()
        query = "SELECT position, bytes FROM piece WHERE name = ? ORDER BY position"
        pieces = [] if row is None else self._connection.execute(query, (name,)).fetchall()
        # A flipped bit in the header of a row changes what kind of value SQLite takes a column for.
        sound = (
            row is not None and isinstance(row[0], str) and all(isinstance(piece, bytes) for _, piece in pieces)
        )
        content = b"".join(piece for _, piece in pieces) if sound else b""
        if not sound or _vector_sha256(row[0], content) != place:
            raise damaged(self._path, f"the vector {name!r}")
        # The digest covers what kind of numbers these are, and how many bytes.
        return np.frombuffer(bytearray(content), row[0])

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()
        self._lock.close()


def check_free(path: Path) -> None:
    """Refuse to touch the journal at `path` while somebody has it.

    Raises:
        FedfairError: an aggregator that runs holds it.
    """
    _lock(path).close()


def forget(path: Path) -> None:
    """Delete the journal at `path`, with its log and its vectors, if there is one; also one that is damaged.

    Raises:
        FedfairError: an aggregator that runs holds it.
    """
    if path.parent.exists():
        _lock(path).close()
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    folder = _vectors_folder(path)
    VectorFiles(folder, REMEDY).drop_all_but(())


def _has_begun(connection: sqlite3.Connection) -> bool:
    """Return whether a sum of the run was made, or is under way; the state before the first is nobody's loss."""
    (sums,) = connection.execute("SELECT sums FROM run").fetchone()
    tables = ("unfinished", "cost", "evaluation")
    rows = (connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables)  # noqa: S608 - our own names
    return bool(sums) or any(count for (count,) in rows)


def _begin_anew(connection: sqlite3.Connection, plan_digest: bytes, run_id: str) -> None:
    """Give a journal without a sum to the run of another plan; who did not come to the old one is forgotten."""
    update = "UPDATE run SET plan_digest = ?, run_id = ?, words = NULL, seconds = 0, vectors = '{}'"
    connection.execute(update, (plan_digest, run_id))
    seal(connection, "run")
    for table in ("vector", "piece", "departure", "late_site"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names


def _keep_private(path: Path) -> None:
    """Let only the owner read the file; SQLite gives those beside it the same mode.

    A file that is there is not opened for that: closing it would drop the locks that this process may hold on it.
    """
    if not path.exists():
        path.touch(OWNER_ONLY)
    elif path.is_file():
        path.chmod(OWNER_ONLY)


def _lock(path: Path) -> ProcessLock:
    """Hold the journal for this process, in a file beside it that names the process."""
    try:
        return ProcessLock(path.with_suffix(".lock"))
    except HeldError as error:
        raise FedfairError(*runs_already("an aggregator", error.process, path)) from error
    except OSError as error:
        raise explained(error, path) from error


_Place = str | tuple[str, str, int]
"""Where a vector of the entry is: in the database, with this digest; or the digest, the kind and the number of the
values in a file."""


def _vectors_folder(path: Path) -> Path:
    return path.with_suffix(".vectors")


def _files_of(places: Mapping[str, _Place]) -> set[str]:
    """Return the digests of the vectors that are files."""
    return {place[0] for place in places.values() if not isinstance(place, str)}


def _vector_sha256(dtype: str, content: bytes | memoryview) -> str:
    digest = hashlib.sha256(dtype.encode() + b"\0")
    digest.update(content)
    return digest.hexdigest()


def _vectors_of(opened: LastOpened | None) -> dict[str, NDArray[np.uint8]]:
    if opened is None:
        return {}
    parts = {OPENED_MESSAGE: opened.message, OPENED_VECTOR: opened.vector}
    return {name: np.frombuffer(part, np.uint8) for name, part in parts.items()}


_Facts = tuple[str, bool, list[str]]
"""The state before the sum that was opened last, whether it is masked, and who was told."""


def _facts_of(opened: LastOpened | None) -> _Facts | None:
    return None if opened is None else (opened.before.hex(), opened.masked, list(opened.told))


def _opened_of(told: _Facts | None, vectors: dict[str, NDArray[np.floating]]) -> LastOpened | None:
    """Take what is kept of the sum that was opened last out of the vectors."""
    message, vector = (vectors.pop(name, None) for name in (OPENED_MESSAGE, OPENED_VECTOR))
    if told is None or message is None or vector is None:
        return None
    before, masked, names = told
    # A long one is a file, and stays there.
    parts = (message.tobytes(), vector.data)
    return LastOpened(bytes.fromhex(before), *parts, masked=masked, told=tuple(names))
