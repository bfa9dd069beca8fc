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

import json
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregator.journal_database import JournalDatabase
from aggregator.journal_rows import REMEDY, TABLES, UNREADABLE, check_row, explained, seal
from aggregator.journal_vectors import AS_FILES, JournalVectors, LongVectors, vectors_folder
from aggregator.run_rows import RunRows
from fedfair.aggregation.evaluator import Evaluation
from fedfair.errors import FedfairError, StateError
from fedfair.file_formats import format_fault
from fedfair.ids import SumNumber
from fedfair.results.costs import SumCost
from fedfair.rounds.continued import first_block
from fedfair.rounds.events import UnfinishedSum
from fedfair.rounds.state_steps import LastOpened
from fedfair.run.snapshot import RunSnapshot
from fedfair.store.lock import HeldError, ProcessLock, runs_already
from fedfair.store.vector_files import VectorFiles

FORMAT = "fedfair/journal/7"

OWNER_ONLY = 0o600

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


class Journal:
    """The journal of one run; several threads may write to it.

    Attributes:
        rows: what grows with the run.
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
        self._path, self._long, self._lock = path, long, lock
        self._database = JournalDatabase(path, connection)
        self._vectors = JournalVectors(self._database, long)
        self._recording = threading.Lock()
        self.rows = RunRows(self._database)
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
                journal._vectors.drop_unnamed(json.loads(_places_of(connection)))
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
        files = self._vectors.keep_files(vectors, entry.known_sha256)
        if files:
            self._database.wait_for_the_disk()
        self._long.reached("begin the transaction")
        with self._database.transaction() as connection:
            sums, recorded = connection.execute("SELECT sums, vectors FROM run").fetchone()
            short = {name: vectors[name] for name in vectors if name not in files}
            places = files | self._vectors.replace(short, json.loads(recorded))
            self.rows.add_costs(entry.costs, sums)
            evaluations = self.rows.record_history(entry.history)
            words = (
                json.dumps([entry.training_run.state, _facts_of(entry.opened), evaluations]),
                entry.seconds,
                json.dumps(places),
            )
            update = "UPDATE run SET words = ?, seconds = ?, vectors = ?, sums = ?"
            connection.execute(update, (*words, sums + len(entry.costs)))
            seal(connection, "run")
            self._long.reached("commit")
        self.rows.history = entry.history
        self._long.reached("committed")
        self._vectors.drop_unnamed(places)

    def keep(self, unfinished: UnfinishedSum) -> None:
        """Replace the record of the sum that is under way; whether it was finished shows the recorded state."""
        with self._database.transaction() as connection:
            row = (unfinished.attempt, unfinished.record)
            connection.execute("INSERT OR REPLACE INTO unfinished VALUES (1, ?, ?, NULL)", row)
            seal(connection, "unfinished")

    def unfinished(self) -> UnfinishedSum | None:
        """Return the latest sum that was begun, finished or not; None where none was kept.

        Raises:
            StateError: its row is damaged.
        """
        with self._database.reading() as connection:
            row = connection.execute("SELECT attempt, record FROM unfinished").fetchone()
            if row is None:
                return None
            check_row(connection, self._path, "unfinished")
        return UnfinishedSum(row[0], bytes(row[1]))

    def latest(self) -> JournalEntry | None:
        """Return the recorded state; None where nothing was recorded yet.

        Raises:
            StateError: it is damaged; the message names the row.
        """
        with self._database.reading() as connection:
            check_row(connection, self._path, "run")
            words, seconds, places = connection.execute("SELECT words, seconds, vectors FROM run").fetchone()
            if words is None:
                return None
            found = {name: self._vectors.load(name, place) for name, place in json.loads(places).items()}
        # What the result will need is looked at here too: damage is reported before the run continues.
        self.rows.check()
        state, last, evaluations = json.loads(words)
        if evaluations:
            state = {**state, "history": self.rows.evaluations(evaluations)}
        opened = _opened_of(last, found)
        return JournalEntry(RunSnapshot(state, found), seconds, opened=opened)

    def close(self) -> None:
        """Let the file go."""
        self._database.connection.close()
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
    VectorFiles(vectors_folder(path), REMEDY).drop_all_but(())


def _places_of(connection: sqlite3.Connection) -> str:
    """Return where the vectors of the recorded state are, as JSON."""
    places: str = connection.execute("SELECT vectors FROM run").fetchone()[0]
    return places


def _has_begun(connection: sqlite3.Connection) -> bool:
    """Return whether a sum of the run was made, or is under way; the state before the first is nobody's loss."""
    (sums,) = connection.execute("SELECT sums FROM run").fetchone()
    tables = ("unfinished", "cost", "evaluation")
    rows = (connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables)  # noqa: S608 - our own names
    return bool(sums) or any(count for (count,) in rows)


def _begin_anew(connection: sqlite3.Connection, plan_digest: bytes, run_id: str) -> None:
    """Give a journal without a sum to the run of another plan; absences from the old one are forgotten."""
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


def _vectors_of(opened: LastOpened | None) -> dict[str, NDArray[np.uint8]]:
    if opened is None:
        return {}
    parts = {OPENED_MESSAGE: opened.message, OPENED_VECTOR: opened.vector}
    return {name: np.frombuffer(part, np.uint8) for name, part in parts.items()}


_Facts = tuple[str, bool, list[str]]
"""The state before the sum that was opened last, whether it is masked, and who received it."""


def _facts_of(opened: LastOpened | None) -> _Facts | None:
    return None if opened is None else (opened.before.hex(), opened.masked, list(opened.receivers))


def _opened_of(facts: _Facts | None, vectors: dict[str, NDArray[np.floating]]) -> LastOpened | None:
    """Take what is kept of the sum that was opened last out of the vectors."""
    message, vector = (vectors.pop(name, None) for name in (OPENED_MESSAGE, OPENED_VECTOR))
    if facts is None or message is None or vector is None:
        return None
    before, masked, names = facts
    # A long one is a file, and stays there.
    parts = (message.tobytes(), vector.data)
    return LastOpened(bytes.fromhex(before), *parts, masked=masked, receivers=tuple(names))
