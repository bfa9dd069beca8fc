"""The site's ledger on its disk: everything that was released about its records, across plans and restarts.

One SQLite file. Decides how a line becomes durable and who may write: `record` returns when the line is on the
disk, folder included, so that noise drawn afterwards is always accounted for, whenever a process is killed
or the power fails. Asking whether there is room and writing it down are one transaction, so that two processes of
one site cannot both spend the last of a budget. Nothing is held open between two lines: what another process has
written in the meantime, or has done to the file, is seen each time, and a ledger that no longer holds what this
process has seen is not written to.

That the file was replaced by an older copy of itself between two starts is what `rollback_guard.py` notices.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from collaborator.ledger_total import LedgerTotal
from collaborator.rollback_guard import RollbackGuard
from fedfair.errors import PrivacyError
from fedfair.privacy.entries import START, LedgerEntry, Origin, parse_release
from fedfair.store.atomic_file import sync_folder

APPLICATION_ID = 0x6666_6C31
"""Marks the file as a ledger of fedfair ("ffl1")."""

VERSION = 1
OWNER_ONLY = 0o600
LOCK_SECONDS = 120.0
"""How long to wait for another process of this site, which may be composing what its own release would cost."""

_TABLE = """
CREATE TABLE entry (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, participant TEXT NOT NULL, federation TEXT NOT NULL,
    plan_digest TEXT NOT NULL, data_set TEXT, kind TEXT NOT NULL, parameters TEXT NOT NULL, chain BLOB NOT NULL
) STRICT
"""
_COLUMNS = "number, at, participant, federation, plan_digest, data_set, kind, parameters, chain"

Permit: TypeAlias = Callable[[Sequence[LedgerEntry]], None]
"""Takes the entries that were not seen before; raises a PrivacyError where there is no room for the next one."""


class Ledger:
    """The ledger in one file; one thread uses it at a time.

    Args:
        path: the file; made, with its folder, if there is none.
        witness: remembers how far the ledger had come; None for somebody who only reads.
        total: what the ledger came to earlier, for a quick start; None for somebody who reads everything.

    Raises:
        PrivacyError: it cannot be made, or is gone although this site has written to it.
    """

    def __init__(self, path: Path, witness: RollbackGuard | None = None, total: LedgerTotal | None = None) -> None:
        self._total = total
        self._path = path
        self._witness = witness
        self._head = (0, START)
        self._noted = (0, START) if witness is None else witness.seen()
        if not os.path.lexists(path):
            if self._noted[0]:
                raise self._unusable(f"it is gone, and this site wrote {self._noted[0]} entries or more to it")
            self._create()

    def look(self) -> tuple[LedgerEntry, ...]:
        """Return what was written since the last look, by any process; at first, everything.

        With a total, those that it knows come with what is alike counted together.

        Raises:
            PrivacyError: the file cannot be read, or is not what it was.
        """
        first = self._head[0] == 0
        known = None if self._total is None or not first else self._total.load(self._noted[0])
        self._head, before = (self._head, ()) if known is None else known
        with self._opened() as connection, _transaction(connection, "BEGIN"):
            if self._noted[0]:
                self._after(connection, self._noted)
            fresh, self._head = self._after(connection, self._head)
        self._count(fresh)
        self._note_total()
        return (*before, *fresh)

    def record(self, entry: LedgerEntry, permit: Permit) -> None:
        """Write one entry if it is permitted; it is on the disk when this returns.

        Args:
            entry: what is about to be released.
            permit: receives, under the lock, what was written since the last look, and may refuse.

        Raises:
            PrivacyError: it is not permitted, or cannot be written; nothing may be released.
        """
        with self._opened() as connection:
            with _transaction(connection, "BEGIN IMMEDIATE"):
                fresh, self._head = self._after(connection, self._head)
                # Before anything can go wrong: they were seen, and will not be seen again.
                self._count(fresh)
                permit(fresh)
                number, chain = self._head
                head = (number + 1, entry.chained(chain))
                origin = entry.origin
                words = (origin.participant, origin.federation, origin.plan_digest, origin.data_set)
                row = (head[0], entry.at, *words, entry.kind, entry.parameters, head[1])
                connection.execute(f"INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608 - our own columns
            self._head = head
            if self._witness is not None:
                self._witness.note(*head)
        self._count((entry,))
        self._note_total()

    def _count(self, entries: Sequence[LedgerEntry]) -> None:
        if self._total is not None:
            self._total.count(entries)

    def _note_total(self) -> None:
        if self._total is not None:
            self._total.note(*self._head)

    # -------------------------------------------------------------- the file

    def _create(self) -> None:
        """Put an empty ledger in place, whole: half of one could pass for a ledger in which nothing was spent."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            os.close(handle)
            temporary = Path(name)
            try:
                with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
                    connection.execute("PRAGMA synchronous = EXTRA")
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                    connection.execute(_TABLE)
                # Of two processes that begin a ledger at once, one finds the other's.
                if not os.path.lexists(self._path):
                    _link(temporary, self._path)
                sync_folder(self._path.parent)
            finally:
                temporary.unlink(missing_ok=True)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(str(error)) from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._path.stat().st_size == 0:
                raise self._unusable("it is empty, and a ledger never is")
            # `rw` makes no file where there is none: no new ledger takes the place of one that has vanished.
            place = f"{self._path.resolve().as_uri()}?mode=rw"
            with closing(
                sqlite3.connect(
                    place, uri=True, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False
                )
            ) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")
                # Beyond FULL, this also syncs the folder after the journal is gone: a commit is not undone.
                connection.execute("PRAGMA synchronous = EXTRA")
                self._check_kind(connection)
                yield connection
        except FileNotFoundError as error:
            raise self._unusable("it is gone") from error
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(str(error)) from error

    def _check_kind(self, connection: sqlite3.Connection) -> None:
        (kind,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if kind != APPLICATION_ID:
            raise self._unusable("it is a database of something else")
        if version != VERSION:
            raise self._unusable(f"it is of version {version}, and this fedfair writes version {VERSION}")

    def _after(
        self, connection: sqlite3.Connection, head: tuple[int, bytes]
    ) -> tuple[tuple[LedgerEntry, ...], tuple[int, bytes]]:
        """Return the entries behind `head` and the new head, after checking that each fits the one before it."""
        number, chain = head
        query = f"SELECT {_COLUMNS} FROM entry WHERE number >= ? ORDER BY number"  # noqa: S608 - our own columns
        rows = iter(connection.execute(query, (max(number, 1),)).fetchall())
        if number:
            first = next(rows, None)
            if first is None or (first[0], first[-1]) != head:
                raise self._unusable(f"it no longer holds entry {number} as this site has seen it")
        found = []
        for row in rows:
            number += 1
            if not all(word is None or isinstance(word, str) for word in row[1:-1]):
                raise self._unusable(f"entry {number} holds what is no text")
            at, participant, federation, plan_digest, data_set, kind, parameters = row[1:-1]
            origin = Origin(participant, federation, plan_digest, data_set)
            entry = LedgerEntry(at, origin, parse_release(kind, parameters))
            chain = entry.chained(chain)
            if (row[0], row[-1]) != (number, chain):
                raise self._unusable(
                    f"entry {number} does not fit those before it, something was changed or removed"
                )
            found.append(entry)
        return tuple(found), (number, chain)

    def _unusable(self, why: str) -> PrivacyError:
        noted = "" if self._witness is None else str(self._witness.path)
        begun_anew = f" (to start again all the same, remove {noted})" if noted else ""
        return PrivacyError(
            f"{self._path} cannot be used as this site's ledger: {why}; nothing is released",
            "repair it, or restore its newest backup; without it nobody knows what was spent" + begun_anew,
        )


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        return
