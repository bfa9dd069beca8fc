"""A table on this site's disk that only grows: rows by key, durable when written, its owner's alone.

One SQLite file, which one process uses at a time. Every row has a checksum, and a damaged one is refused. Rows are
found by their key, so neither memory nor the cost of a start or a row grows with the rows before. What a row means
is its user's business: `fedfair.secagg.history` and `collaborator.request_record`.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import FedfairError, StateError
from fedfair.store.disk import unwritable

OWNER_ONLY = 0o600
_TABLE = (
    "CREATE TABLE IF NOT EXISTS remembered "
    "(key BLOB PRIMARY KEY, value BLOB NOT NULL, checksum BLOB NOT NULL) STRICT, WITHOUT ROWID"
)
_FIND = "SELECT value, checksum FROM remembered WHERE key = ?"
_CHECKSUM_BYTES = 16
_MOST_RECENT = 64
"""Rows in memory: those of a request or a round, which are asked for several times."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a table, in words for messages.

    Attributes:
        words: what it is, such as "this site's record".
        remedy: what to do when the file cannot be used.
    """

    words: str
    remedy: str


def _checksum(key: bytes, value: bytes) -> bytes:
    """Return what tells that a row is not the one that was written: SQLite itself checks no content."""
    return hashlib.sha256(b"%d:%b%b" % (len(key), key, value)).digest()[:_CHECKSUM_BYTES]


class TableFile:
    """One open table; one thread uses it at a time.

    Args:
        path: the file; made if there is none, with its folder.
        content: what it holds.
        patience_seconds: how long to wait for another process that has it.

    Raises:
        StateError: it cannot be opened, or it is no such table.
        FedfairError: another process has it.
    """

    def __init__(self, path: Path, content: Content, patience_seconds: float = 0.0) -> None:
        self._path = path
        self._content = content
        self._recent = dict[bytes, bytes | None]()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(OWNER_ONLY)
            path.chmod(OWNER_ONLY)
            # Used from the worker's thread alone, after this one has made it.
            self._connection = sqlite3.connect(
                path, timeout=patience_seconds, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error
        try:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_TABLE)
            # A table of other columns is found now, and not at the first row.
            self.get(b"")
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unusable(error) from error
        except FedfairError:
            self._connection.close()
            raise

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of a key; None where there is none.

        Raises:
            FedfairError: the file cannot be read.
        """
        # One process has the file, so a row is what this one has read or written last.
        if key not in self._recent:
            if len(self._recent) >= _MOST_RECENT:
                self._recent.clear()
            self._recent[key] = self._found(key)
        return self._recent[key]

    def _found(self, key: bytes) -> bytes | None:
        try:
            found = self._connection.execute(_FIND, (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        if found is None:
            return None
        value, known = map(bytes, found)
        if known != _checksum(key, value):
            raise StateError(
                f"{self._path} cannot be used as {self._content.words}: the row {key.hex()} of {len(value)} bytes "
                "is damaged, for its checksum is another",
                self._content.remedy,
            )
        return value

    def write(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write rows, all or none; they are on the disk when this returns.

        Raises:
            FedfairError: they cannot be written.
        """
        checked = [(key, value, _checksum(key, value)) for key, value in rows]
        for key, _, _ in checked:
            self._recent.pop(key, None)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?)", checked)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise unwritable(self._path, str(error)) from error
            raise self._unusable(error) from error

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def _unusable(self, error: Exception) -> FedfairError:
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            return FedfairError(
                f"this site already runs here: another process uses {self._path}",
                "stop that process first, or let it finish",
            )
        words = f"{self._path} cannot be used as {self._content.words}: {error}"
        return StateError(words, self._content.remedy)
