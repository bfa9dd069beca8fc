"""Long vectors that are rarely read, in a file in place of memory: mapped, and brought in page by page.

The file has no name, so nobody can change or cut it, and it is gone with the last reference to the vector, or with
the process. It is no record of anything: what must survive a crash is written elsewhere.
"""

from __future__ import annotations

import hashlib
import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from io import FileIO
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fedfair.store.long_vectors import IN_MEMORY, VectorWriter
from fedfair.store.mapped_array import mapping_of

PIECE_BYTES = 4 << 20
"""How much of a spilled vector `pieces` has in memory at a time."""

SMALL_BYTES = 1 << 20
"""Up to this length, in bytes, a vector is no burden."""


def spilled(parts: Iterable[bytes | memoryview], folder: Path) -> memoryview:
    """Return the bytes of `parts`, one after the other, read-only and not in memory.

    Args:
        parts: at least one byte together.
        folder: where there is room for them.

    Raises:
        OSError: there is none.
    """
    with tempfile.TemporaryFile(dir=folder, prefix=".spilled-", buffering=0) as file:
        for part in parts:
            write_whole_part(file, part)
        return mapped(file)


def write_whole_part(file: FileIO, part: bytes | memoryview) -> None:
    """Write to a file without a buffer, which takes of a write what it can, until all is written."""
    for piece in pieces(part):
        left = piece
        while left:
            left = left[file.write(left) :]


def mapped(file: IO[bytes] | FileIO) -> memoryview:
    """Return the content of a file, read-only and not in memory; it stays when the file is removed.

    Args:
        file: open, of at least one byte; nobody writes to it from now on.
    """
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def spilled_array(vector: NDArray[np.floating], folder: Path) -> NDArray[np.floating]:
    """Return an equal vector, read-only and not in memory; the vector itself where it is one already.

    Raises:
        OSError: there is no room.
    """
    if mapping_of(vector) is not None or not vector.size:
        return vector
    return np.frombuffer(spilled([np.ascontiguousarray(vector).data], folder), vector.dtype)


def forget_pages(vector: NDArray[np.floating] | bytes | memoryview) -> None:
    """Give back the memory of what was read of a spilled vector; do nothing with any other."""
    mapping = mapping_of(vector)
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def pieces(content: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Yield the bytes of a vector a piece at a time, and give back the memory of each if it was spilled.

    Each piece is good until the next one is asked for.
    """
    view, mapping = memoryview(content).cast("B"), mapping_of(content)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]
        if mapping is not None and len(mapping) == len(view):
            mapping.madvise(mmap.MADV_DONTNEED, start, min(PIECE_BYTES, len(view) - start))


def _no_words(_: Path) -> AbstractContextManager[None]:
    return nullcontext()


class SpilledVectors:
    """Room for vectors in one folder: each is a file without a name, and is gone with its last reader.

    Args:
        folder: where there is room; it exists.
        small_bytes: up to this length a vector is in memory.
        writing: says for a folder what a fault of the disk is.
    """

    def __init__(
        self,
        folder: Path,
        small_bytes: int = SMALL_BYTES,
        writing: Callable[[Path], AbstractContextManager[None]] = _no_words,
    ) -> None:
        self._folder, self._small_bytes, self._writing = folder, small_bytes, writing

    def begin(self, length: int, width: np.dtype[np.floating]) -> VectorWriter:
        """Begin a vector of so many numbers.

        Raises:
            OSError: there is no room; or what `writing` makes of it.
        """
        if length * width.itemsize <= self._small_bytes:
            return IN_MEMORY.begin(length, width)
        with self._writing(self._folder):
            return _SpilledWriter(self._folder, width, self._writing)

    def houses(self, vector: NDArray[np.floating]) -> bool:
        """Return whether a vector is in a file, or takes next to no memory."""
        return vector.nbytes <= self._small_bytes or not any(vector.strides) or mapping_of(vector) is not None

    def forget(self, vector: NDArray[np.floating], place: slice) -> None:
        """Give back the memory of what was read of a vector, if it was spilled."""
        mapping = mapping_of(vector)
        if mapping is not None and len(mapping) == vector.nbytes:
            start, stop = (number * vector.itemsize for number in (place.start, place.stop))
            mapping.madvise(mmap.MADV_DONTNEED, start, stop - start)


class _SpilledWriter:
    """Writes a vector to a file without a name, and hashes it on the way."""

    def __init__(
        self,
        folder: Path,
        width: np.dtype[np.floating],
        writing: Callable[[Path], AbstractContextManager[None]],
    ) -> None:
        self._folder, self._width, self._writing = folder, width, writing
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".spilled-", buffering=0)  # noqa: SIM115 - `close`
        self._digest = hashlib.sha256()

    def append(self, block: NDArray[np.floating]) -> None:
        """Write the next numbers."""
        native = np.ascontiguousarray(block, self._width)
        self._digest.update(np.ascontiguousarray(native, self._width.newbyteorder("<")).data)
        with self._writing(self._folder):
            write_whole_part(self._file, native.data)

    def finished(self) -> tuple[NDArray[np.floating], bytes]:
        """Return the vector, mapped, and its SHA-256."""
        with self._writing(self._folder):
            return np.frombuffer(mapped(self._file), self._width), self._digest.digest()

    def close(self) -> None:
        """Close the file; a vector that is finished stays."""
        self._file.close()
