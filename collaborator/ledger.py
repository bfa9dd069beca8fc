"""The site's ledger on its disk: everything that was released about its records, across plans and restarts.

One SQLite file. Decides how a line becomes durable and who may write: `record` returns when the line is on the
disk, folder included, so that noise drawn afterwards is always accounted for, whenever a process is killed
or the power fails. Asking whether there is room and writing it down are one transaction, so that two processes of
one site cannot both spend the last of a budget. Nothing is held open between two lines: what another process has
written in the meantime, or has done to the file, is seen each time, and a ledger that no longer holds what this
process has seen is not written to.

That the file was replaced by an older copy of itself between two starts is what the rollback guard notices: a
note of the last entry that this site wrote, in its folder of state. It is written after the ledger, so that it
is never ahead of it. What it cannot notice is that both were put back together.

A start reads only what was written since an earlier entry whose total was noted. One small file in the site's
folder of state, `<name>.ledger-total`: the entry, its chain value, and the entries up to it with those alike
counted together. It is written after every thousandth entry and is no evidence: it is used only where the ledger
still holds that very entry, `fedfair privacy show` never uses it, and a file that is missing or damaged means that
a start reads the whole ledger.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from typing import TypeAlias

from fedfair.errors import PrivacyError
from fedfair.privacy.entries import START, LedgerEntry, Origin, Written, parse_release
from fedfair.privacy.releases import GaussianRelease, SharedNoiseRelease, SkellamRelease
from fedfair.store.atomic_file import OWNER_ONLY, sync_folder, write_whole
from fedfair.store.disk import writing

EVERY = 1000
"""Entries between two notes."""

_FORM = "fedfair/ledger-total/1"


class LedgerTotal:
    """The total of one ledger; one thread uses it at a time.

    Args:
        path: its file; its folder is made with the first note.
        every: entries between two notes, at least 1.

    Attributes:
        noted: the number of the entry that the file is about; 0 where there is no file that can be used.
    """

    def __init__(self, path: Path, every: int = EVERY) -> None:
        self._path = path
        self._every = every
        self._merged: dict[tuple[Origin, Written], LedgerEntry] = {}
        self.noted = 0

    def load(self, most: int) -> tuple[tuple[int, bytes], tuple[LedgerEntry, ...]] | None:
        """Return number and chain value of the entry that was noted, and the entries up to it, counted together.

        Args:
            most: a later entry than this is not believed; None is returned.
        """
        try:
            stated, text = self._path.read_text(encoding="utf-8").split("\n", 1)
            if hashlib.sha256(text.encode()).hexdigest() != stated:
                return None
            words = json.loads(text)
            if words["form"] != _FORM or words["entry"] > most:
                return None
            entries = tuple(
                LedgerEntry(at, Origin(*origin), parse_release(kind, parameters))
                for at, origin, kind, parameters in words["entries"]
            )
            head = (int(words["entry"]), bytes.fromhex(words["chain"]))
        except (OSError, ValueError, KeyError, TypeError, PrivacyError):
            return None
        self.count(entries)
        self.noted = head[0]
        return head, entries

    def count(self, entries: Iterable[LedgerEntry]) -> None:
        """Count entries."""
        for entry in entries:
            key = (entry.origin, _times(entry.release, 1))
            known = self._merged.get(key)
            if known is not None:
                both = _times(known.release, _count(known.release) + _count(entry.release))
            self._merged[key] = entry if known is None else replace(known, release=both)

    def note(self, number: int, chain: bytes) -> None:
        """Write what was counted so far, where enough is new.

        Args:
            number: of the last entry that was counted.
            chain: its chain value.

        Raises:
            FedfairError: the note cannot be written.
        """
        if number - self.noted < self._every:
            return
        merged = self._merged.values()
        entries = [(one.at, astuple(one.origin), one.kind, one.parameters) for one in merged]
        text = json.dumps({"form": _FORM, "entry": number, "chain": chain.hex(), "entries": entries})
        with writing(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}", OWNER_ONLY)
        self.noted = number


def _count(release: Written) -> int:
    """Return how often a release was made."""
    match release:
        case GaussianRelease() | SharedNoiseRelease():
            return release.steps
        case SkellamRelease():
            return release.count
    return 1


def _times(release: Written, count: int) -> Written:
    """Return a release as if it had been made that often; one that is not counted as it is."""
    match release:
        case GaussianRelease() | SharedNoiseRelease():
            return replace(release, steps=count)
        case SkellamRelease():
            return replace(release, count=count)
    return release


def total_of(state: Path, participant: str) -> LedgerTotal:
    """Return the total of a site's ledger, in its folder of state."""
    return LedgerTotal(state / f"{participant}.ledger-total")


class RollbackGuard:
    """The rollback guard of one site.

    Args:
        path: its file; its folder is made with the first note.

    Attributes:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def seen(self) -> tuple[int, bytes]:
        """Return the number and the chain value of the last entry; of no entry where nothing was noted.

        Raises:
            PrivacyError: the note cannot be read.
        """
        try:
            words = json.loads(self.path.read_text(encoding="utf-8"))
            return int(words["entry"]), bytes.fromhex(words["chain"])
        except FileNotFoundError:
            return 0, START
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PrivacyError(
                f"{self.path} cannot be read as this site's rollback guard: {error}",
                "remove it if you are sure that the ledger is the newest one; nothing else can check that",
            ) from error

    def note(self, number: int, chain: bytes) -> None:
        """Remember the last entry.

        Raises:
            FedfairError: the note cannot be written.
        """
        with writing(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.path, json.dumps({"entry": number, "chain": chain.hex()}) + "\n", OWNER_ONLY)


def witness_of(state: Path, participant: str) -> RollbackGuard:
    """Return the rollback guard of a site, in its folder of state."""
    return RollbackGuard(state / f"{participant}.ledger-seen")


APPLICATION_ID = 0x6666_6C31
"""Marks the file as a ledger of fedfair ("ffl1")."""

VERSION = 1
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
        total: an earlier total of the ledger, for a quick start; None for somebody who reads everything.

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
                row = (head[0], entry.at, *astuple(entry.origin), entry.kind, entry.parameters, head[1])
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
