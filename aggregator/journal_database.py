"""The database of a journal: one connection that several threads share, and the faults of reading it in words."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aggregator.journal_rows import UNREADABLE, explained


class JournalDatabase:
    """One connection; a transaction waits for the other.

    Args:
        path: the file.
        connection: to it, without transactions of its own.

    Attributes:
        path: the file.
        connection: to it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection
        self._writing = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write everything that the block writes, or nothing of it."""
        with self._writing:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read; raises StateError for what cannot be read."""
        try:
            yield self.connection
        except UNREADABLE as error:
            raise explained(error, self.path) from error

    def wait_for_the_disk(self) -> None:
        """Let every transaction from now on be on the disk when it ends."""
        with self._writing:
            self.connection.execute("PRAGMA synchronous = FULL")
