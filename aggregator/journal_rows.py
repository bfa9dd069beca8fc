"""The tables of the journal, the digest that each row ends in, and what is said of a row that does not fit it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from fedfair.errors import FedfairError, StateError

REMEDY = "copy save/ back from a backup, or start with --fresh to discard this run"

UNREADABLE = (sqlite3.Error, ValueError, OverflowError)
"""Exceptions of reading a damaged file: the database's own faults, and those of Python's strings and numbers."""

TABLES = """
CREATE TABLE IF NOT EXISTS run (
    only INTEGER PRIMARY KEY CHECK (only = 1), format TEXT, plan_digest BLOB, run_id TEXT, block INTEGER,
    words TEXT, seconds REAL, vectors TEXT, sums INTEGER, sha256 BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS vector (name TEXT PRIMARY KEY, dtype TEXT, length INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS piece (
    name TEXT, position INTEGER, bytes BLOB, PRIMARY KEY (name, position)
) STRICT;
CREATE TABLE IF NOT EXISTS unfinished (
    only INTEGER PRIMARY KEY CHECK (only = 1), attempt INTEGER, record BLOB, sha256 BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS cost (
    position INTEGER PRIMARY KEY, purpose TEXT, round INTEGER, seconds REAL, contributors INTEGER,
    bytes_up INTEGER, bytes_down INTEGER, sha256 BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS evaluation (position INTEGER PRIMARY KEY, words TEXT, sha256 BLOB) STRICT;
CREATE TABLE IF NOT EXISTS departure (
    position INTEGER PRIMARY KEY, collaborator TEXT, round INTEGER, reason TEXT, sha256 BLOB
) STRICT;
CREATE TABLE IF NOT EXISTS late_site (
    position INTEGER PRIMARY KEY, collaborator TEXT, times INTEGER, seconds REAL, sha256 BLOB
) STRICT;
"""

Sealed = Literal["run", "unfinished"]
"""A table of one row that ends in its digest."""

_ROWS: Mapping[Sealed, str] = {"run": "the row of the run", "unfinished": "the row of the sum under way"}


def seal(connection: sqlite3.Connection, table: Sealed) -> None:
    """Write the digest of a table's row; part of the transaction that changed the row."""
    connection.execute(f"UPDATE {table} SET sha256 = ?", (_row_sha256(connection, table),))  # noqa: S608 - our own


def check_row(connection: sqlite3.Connection, path: Path, table: Sealed) -> None:
    """Compare a table's row with its digest.

    Raises:
        StateError: the row is gone, or is another one than was written.
    """
    stated = connection.execute(f"SELECT sha256 FROM {table}").fetchone()  # noqa: S608 - our own name
    if stated is None or stated[0] != _row_sha256(connection, table):
        raise damaged(path, _ROWS[table])


def _row_sha256(connection: sqlite3.Connection, table: Sealed) -> bytes:
    """Return the SHA-256 of all columns but the digest, whichever they are."""
    found = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - our own name
    names = [column[0] for column in found.description]
    row = dict(zip(names, found.fetchone() or (), strict=False))
    words = [[name, value.hex() if isinstance(value, bytes) else value] for name, value in row.items()]
    return sha256_of([word for word in words if word[0] != "sha256"])


def sha256_of(values: Sequence[object]) -> bytes:
    """Return 32 bytes for the values of a row that can be written as JSON."""
    return hashlib.sha256(json.dumps(list(values)).encode()).digest()


def damaged(path: Path, row: str) -> StateError:
    """Return the fault of a row, a table or a vector that is not what was written; `row` names it."""
    return StateError(
        f"{path} is damaged: {row} does not have the checksum that it was written with",
        REMEDY,
    )


def _held(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


def explained(error: Exception, path: Path) -> FedfairError:
    """Return the fault that stands for an exception of the database or of reading the file."""
    if _held(error):
        return FedfairError(
            f"{path} is in use by another program",
            "close that program first",
        )
    return StateError(
        f"{path} cannot be used as the journal of this run: {error}",
        "if the file is damaged, copy save/ back from a backup, or start with --fresh to discard its run",
    )
