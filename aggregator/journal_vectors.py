"""The vectors of a journal: short ones in its database, long ones as files beside it.

A file is on the disk before the entry that names it, and is removed after an entry that does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregator.journal_database import JournalDatabase
from aggregator.journal_rows import REMEDY, damaged
from fedfair.store.vector_files import VectorFiles, no_step

PIECE_BYTES = 1 << 20
LARGE_BYTES = 4 << 20
"""The longest vector in the database, in bytes; a longer one is a file."""

Vector = NDArray[np.floating] | NDArray[np.uint8]
Place = str | tuple[str, str, int]
"""Where a vector of the entry is: in the database, with this digest; or the digest, the kind and the number of the
values in a file."""


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


class JournalVectors:
    """The vectors of the recorded state.

    Args:
        database: of the journal.
        long: which vectors are files.
    """

    def __init__(self, database: JournalDatabase, long: LongVectors) -> None:
        self._database, self._long = database, long
        self._files = VectorFiles(vectors_folder(database.path), REMEDY, reached=long.reached)
        self._hashed = dict[str, tuple[Vector, Place]]()

    def keep_files(self, vectors: Mapping[str, Vector], known_sha256: Mapping[str, str]) -> dict[str, Place]:
        """Write the long ones of the vectors of an entry as files; return where they are.

        Args:
            vectors: by name.
            known_sha256: 64 hexadecimal digits for vectors whose digest is known already.
        """
        large = {name: vector for name, vector in vectors.items() if vector.nbytes > self._long.large_bytes}
        return {name: self._file(vector, known_sha256.get(name, "")) for name, vector in large.items()}

    def replace(self, vectors: Mapping[str, Vector], recorded: Mapping[str, Place]) -> dict[str, Place]:
        """Put these in the place of all vectors of the database, within a transaction; return where they are.

        Args:
            vectors: by name.
            recorded: where the vectors are that the database has; one that is the same stays as it is.
        """
        places: dict[str, Place] = {}
        for name, vector in vectors.items():
            dtype, content = vector.dtype.newbyteorder("<").str, np.ascontiguousarray(vector).data.cast("B")
            # No array of a state is ever changed, so the very same one need not be hashed again.
            known = self._hashed.get(name)
            if known is not None and known[0] is vector:
                places[name] = known[1]
            else:
                places[name] = _vector_sha256(dtype, content)
            if recorded.get(name) != places[name]:
                self._remove(name)
                self._insert(name, dtype, content)
        for name in recorded.keys() - places.keys():
            self._remove(name)
        self._hashed = {name: (vectors[name], place) for name, place in places.items()}
        return places

    def drop_unnamed(self, places: Mapping[str, Place]) -> None:
        """Remove every file that no vector is in."""
        self._files.drop_all_but({place[0] for place in places.values() if not isinstance(place, str)})

    def _file(self, vector: Vector, sha256: str) -> tuple[str, str, int]:
        """Keep a vector as a file; return its digest, its kind of numbers and how many there are."""
        dtype = vector.dtype.newbyteorder("<")
        content = np.ascontiguousarray(vector, dtype).data.cast("B")
        return self._files.keep(content, sha256), dtype.str, vector.size

    def _remove(self, name: str) -> None:
        for table in ("vector", "piece"):
            self._database.connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608 - our own names

    def _insert(self, name: str, dtype: str, content: memoryview) -> None:
        row = (name, dtype, len(content) // np.dtype(dtype).itemsize)
        self._database.connection.execute("INSERT INTO vector VALUES (?, ?, ?)", row)
        for position in range(0, len(content), PIECE_BYTES):
            piece = (name, position, content[position : position + PIECE_BYTES])
            self._database.connection.execute("INSERT INTO piece VALUES (?, ?, ?)", piece)

    def load(self, name: str, place: Place) -> NDArray[np.floating]:
        """Return a vector of the recorded state; raises StateError where it is damaged."""
        if not isinstance(place, str):
            digest, dtype, length = place
            return self._files.load(digest, length * np.dtype(dtype).itemsize).view(dtype)
        select, connection = "SELECT dtype, length FROM vector WHERE name = ?", self._database.connection
        row = connection.execute(select, (name,)).fetchone()
        query = "SELECT position, bytes FROM piece WHERE name = ? ORDER BY position"
        pieces = [] if row is None else connection.execute(query, (name,)).fetchall()
        # A flipped bit in the header of a row changes what kind of value SQLite takes a column for.
        sound = (
            row is not None and isinstance(row[0], str) and all(isinstance(piece, bytes) for _, piece in pieces)
        )
        content = b"".join(piece for _, piece in pieces) if sound else b""
        if not sound or _vector_sha256(row[0], content) != place:
            raise damaged(self._database.path, f"the vector {name!r}")
        # The digest covers what kind of numbers these are, and how many bytes.
        return np.frombuffer(bytearray(content), row[0])


def vectors_folder(path: Path) -> Path:
    """Return the folder of the vectors that are files."""
    return path.with_suffix(".vectors")


def _vector_sha256(dtype: str, content: bytes | memoryview) -> str:
    digest = hashlib.sha256(dtype.encode() + b"\0")
    digest.update(content)
    return digest.hexdigest()
