"""Storage of the features of many records: in memory while they are few, and else in files without a name.

Decides from which size on features are mapped from a file, and where that file is. It has no name, so nobody can
open or cut it, and it is gone with the last array in it, or with the process. Whatever is made from features in a
file is in a file of the same folder. Nothing that is computed depends on where features are.

The room for a file is reserved before it is written to, so that a full disk is one clear fault.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedfair.errors import DataError
from fedfair.store.mapped_array import mapping_of

Array: TypeAlias = NDArray[Any]
Held = TypeVar("Held", bound=Array)

MAX_IN_MEMORY = 256 << 20
"""So many bytes of features a site, or a simulation, reads into memory; what comes after them is in files."""

BLOCK_BYTES = 4 << 20
"""How much of features in a file is in memory at a time while all of them are gone through."""

BLOCKS_AT_ONCE = 16
"""So many blocks of records are put into another order in memory at a time."""

CHUNK_BYTES = 64 << 20
"""Arrays of less than a quarter of it share a file: a process has only so many of them."""

ALIGNMENT = 64

_NOT_KNOWN = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""The words of a file system that reserves nothing."""


class _Mapping(mmap.mmap):
    """A file of a storage, mapped into memory."""

    storage: FeatureStorage


class FeatureStorage:
    """Storage of features in one folder.

    Args:
        folder: where the files are; it is made where it is not there.
        most_in_memory: up to how many bytes of all that is read stays in memory.
    """

    def __init__(self, folder: Path, most_in_memory: int = MAX_IN_MEMORY) -> None:
        self._folder, self._left = folder, most_in_memory
        self._chunk: Callable[[], _Mapping | None] = lambda: None
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array to be filled with features that are read, and then `kept`.

        Raises:
            DataError: there is no room for it.
        """
        fits = self.fits(math.prod(shape) * np.dtype(dtype).itemsize)
        return np.empty(shape, dtype) if fits else self.mapped(shape, dtype)

    def mapped(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array to be filled that is in a file, whatever its size.

        Raises:
            DataError: there is no room for it.
        """
        count, width = math.prod(shape), np.dtype(dtype)
        if not count:
            return np.empty(shape, width)
        mapping, start = self._place(count * width.itemsize)
        return np.frombuffer(mapping, width, count, start).reshape(shape)

    def kept(self, features: Held) -> Held:
        """Return features that somebody has read: themselves while there are few, else a copy in a file.

        Raises:
            DataError: there is no room for it.
        """
        if storage_of(features) is not None:
            return features
        if self.fits(features.nbytes):
            self._left -= features.nbytes
            return features
        held = self.mapped(features.shape, features.dtype)
        return cast("Held", _filled(held, features, features.__getitem__))

    def fits(self, needed: int) -> bool:
        """Return whether so many bytes more stay in memory."""
        return needed <= self._left

    def opened(self, file: IO[bytes]) -> _Mapping:
        """Return a file of this storage, mapped."""
        with self.writing(os.fstat(file.fileno()).st_size):
            mapping = _Mapping(file.fileno(), 0, access=mmap.ACCESS_WRITE)
        mapping.storage = self
        return mapping

    def file(self) -> IO[bytes]:
        """Return a new file without a name; call it within `writing`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._folder, prefix=".records-", buffering=0)

    @contextmanager
    def writing(self, needed: int) -> Iterator[None]:
        """Say what a fault of the disk is about, for so many bytes."""
        try:
            yield
        except OSError as error:
            size = f"{needed / 1e9:.1f} GB" if needed >= 1e8 else f"{needed / 1e6:.1f} MB"
            raise DataError(
                f"{size} of records cannot be held in {self._folder}: {error.strerror or error}",
                "free so much space there, and let this user write to it",
            ) from error

    def _new(self, needed: int) -> _Mapping:
        """Return a new file of so many bytes, mapped."""
        with self.writing(needed), self.file() as file:
            _reserve(file.fileno(), needed)
            return self.opened(file)

    def _place(self, needed: int) -> tuple[_Mapping, int]:
        """Return a file and where in it so many bytes are free."""
        if needed >= CHUNK_BYTES // 4:
            return self._new(needed), 0
        chunk = self._chunk()
        if chunk is None or self._used + needed > len(chunk):
            chunk, self._used = self._new(CHUNK_BYTES), 0
            # Whoever has an array in it keeps it; the storage itself does not.
            self._chunk = weakref.ref(chunk)
        start = self._used
        self._used += -(-needed // ALIGNMENT) * ALIGNMENT
        return chunk, start


class RecordStore:
    """Features of a number of records that nobody knows yet: in memory until they are too many.

    Args:
        storage: where they will be; None for memory, however many they are.
        dtype: of the numbers.
    """

    def __init__(self, storage: FeatureStorage | None, dtype: DTypeLike = np.float64) -> None:
        self._storage, self._dtype = storage, np.dtype(dtype)
        self._blocks: list[Array] = []
        self._file: IO[bytes] | None = None
        self._shape: tuple[int, ...] = ()
        self._bytes = 0

    def add(self, block: Array) -> None:
        """Take the features of the next records, (m, *record_shape).

        Raises:
            DataError: there is no room for them.
        """
        self._shape = block.shape[1:]
        self._blocks.append(np.ascontiguousarray(block, self._dtype))
        self._bytes += self._blocks[-1].nbytes
        if self._storage is None or self._storage.fits(self._bytes):
            return
        with self._storage.writing(self._bytes):
            if self._file is None:
                self._file = self._storage.file()
                weakref.finalize(self, self._file.close)  # also where the reading ends in a fault
            for held in self._blocks:
                left = held.reshape(-1).view(np.uint8).data
                while left:
                    left = left[self._file.write(left) :]
        self._blocks.clear()

    def features(self) -> Array:
        """Return the features of all records, (n, *record_shape), to be `kept`; at least one block was added.

        Raises:
            DataError: there is no room for them.
        """
        if self._file is None or self._storage is None:
            count, left = sum(map(len, self._blocks)), self._blocks[::-1]
            whole, start = np.empty((count, *self._shape), self._dtype), 0
            self._blocks = [whole]
            while left:  # each block is let go as soon as it is copied
                block = left.pop()
                whole[start : start + len(block)] = block
                start += len(block)
            return whole
        with self._file as file:
            return np.frombuffer(self._storage.opened(file), self._dtype).reshape(-1, *self._shape)


def simulation_storage(folder: Path) -> FeatureStorage:
    """Return the storage of a simulation: in its own folder, or where the system has temporary files."""
    return FeatureStorage(folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir()))


def storage_of(features: Array) -> FeatureStorage | None:
    """Return the storage that features are in; None where they are in memory, or in somebody's own file."""
    mapping = mapping_of(features)
    return mapping.storage if isinstance(mapping, _Mapping) else None


def empty_beside(shape: tuple[int, ...], dtype: DTypeLike, *held: Array) -> Array:
    """Return an array to be filled: in the storage that one of the held arrays is in, or in memory.

    Raises:
        DataError: there is no room for it.
    """
    storage = next((storage for storage in map(storage_of, held) if storage is not None), None)
    return np.empty(shape, dtype) if storage is None else storage.mapped(shape, dtype)


def forget(features: Array) -> None:
    """Give back the memory of what was read or written of features in a file; do nothing with any other."""
    mapping = mapping_of(features)
    # Of somebody's own file, only what cannot have been changed is sure to be there again.
    if isinstance(mapping, _Mapping) or (mapping is not None and not features.flags.writeable):
        mapping.madvise(mmap.MADV_DONTNEED)


def row_blocks(features: Array) -> Iterator[slice]:
    """Yield places of consecutive records that take a few megabytes together; of none, nothing."""
    size = _rows_of_a_block(features)
    for start in range(0, len(features), size):
        yield slice(start, min(start + size, len(features)))


def blocks_of(features: Held) -> Iterator[Held]:
    """Yield the records of features a block at a time; of features in memory, all of them at once.

    Each block in a file is good until the next one is asked for.
    """
    if mapping_of(features) is None:
        yield features
        return
    for rows in row_blocks(features):
        yield cast("Held", features[rows])
        forget(features)


def first_of(
    features: Held, are_wrong: Callable[[Held], NDArray[np.bool_]]
) -> tuple[int, tuple[int, ...], int] | None:
    """Return record and place in it of the first wrong value, and how many are wrong; None where none is."""
    first, count, before = None, 0, 0
    for block in blocks_of(features):
        wrong = np.argwhere(are_wrong(block))
        if len(wrong) and first is None:
            record, *place = wrong[0].tolist()
            first = before + record, tuple(place)
        count, before = count + len(wrong), before + len(block)
    return None if first is None else (*first, count)


def column_of(features: Array, place: int) -> Array:
    """Return one column of features (n, columns), as a copy in memory: (n,)."""
    found = np.empty(len(features), features.dtype)
    for rows in row_blocks(features):
        found[rows] = features[rows, place]
        forget(features)
    return found


def taken(features: Held, indices: NDArray[np.integer]) -> Held:
    """Return the records at `indices` (m,), in that order, as a copy beside the others.

    Raises:
        DataError: there is no room for it.
    """
    if storage_of(features) is None:
        return cast("Held", features[indices])
    places = np.flatnonzero(indices) if indices.dtype == np.bool_ else indices
    found = empty_beside((len(places), *features.shape[1:]), features.dtype, features)
    if np.any(places[1:] < places[:-1]):
        _take_in_order(features, places, found)
        return cast("Held", found)
    return cast("Held", _filled(found, features, lambda rows: features[places[rows]]))


def changed(features: Held, change: Callable[[Held], Held]) -> Held:
    """Return features of the same shape and width, each block of records as `change` makes it.

    Raises:
        DataError: there is no room for it.
    """
    if storage_of(features) is None:
        return change(features)
    found = empty_beside(features.shape, features.dtype, features)
    return cast("Held", _filled(found, features, lambda rows: change(cast("Held", features[rows]))))


def joined(parts: Sequence[Held]) -> Held:
    """Return the records of several, one after the other, as a copy beside them.

    Raises:
        DataError: there is no room for it.
    """
    if all(storage_of(part) is None for part in parts):
        return cast("Held", np.concatenate(parts))
    count = sum(len(part) for part in parts)
    found = empty_beside((count, *parts[0].shape[1:]), np.result_type(*parts), *parts)
    start = 0
    for part in parts:
        _filled(found[start : start + len(part)], part, part.__getitem__)
        start += len(part)
    return cast("Held", found)


def _filled(found: Array, source: Array, part: Callable[[slice], Array]) -> Array:
    """Return an array after its blocks of rows were made from a source, one after the other."""
    for rows in row_blocks(found):
        found[rows] = part(rows)
        forget(source)
        forget(found)
    return found


def _take_in_order(features: Array, places: NDArray[np.integer], found: Array) -> None:
    """Write the records at `places` into `found`, in that order, reading and writing both files from end to end.

    Record by record, each one would be a search on a disk. So the records are read in the order that they have,
    and each goes to the part of the file where it will be. Then each part is put in order in memory.
    """
    places = np.where(places < 0, places + len(features), places)
    size = BLOCKS_AT_ONCE * _rows_of_a_block(found)
    free = np.arange(0, len(places), size)
    by_source = np.argsort(places, kind="stable")
    for rows in row_blocks(found):
        part = by_source[rows] // size
        by_part = np.argsort(part, kind="stable")
        block = features[places[by_source[rows][by_part]]]
        for one, first, count in zip(
            *np.unique(part[by_part], return_index=True, return_counts=True), strict=True
        ):
            found[free[one] : free[one] + count] = block[first : first + count]
            free[one] += count
        forget(features)
        forget(found)
    for start in range(0, len(places), size):
        rows = slice(start, start + size)
        arrived = found[rows].copy()
        found[rows][np.argsort(places[rows], kind="stable")] = arrived
        forget(found)


def _rows_of_a_block(features: Array) -> int:
    return max(1, BLOCK_BYTES // max(1, math.prod(features.shape[1:]) * features.dtype.itemsize))


def _reserve(file: int, needed: int) -> None:
    """Have the disk keep so many bytes for a file that is empty."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, needed)
        except OSError as error:
            if error.errno not in _NOT_KNOWN:
                raise
        else:
            return
    zeros = memoryview(bytes(BLOCK_BYTES))
    while needed:
        needed -= os.write(file, zeros[: min(needed, BLOCK_BYTES)])
