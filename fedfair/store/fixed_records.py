"""A file of a header and of records of one length, that one process appends to and that outlives a kill.

A process that is killed leaves whole records and perhaps the beginning of one, which the next start cuts off.
Bytes are with the operating system when `append` returns, and on the disk after `sync`. What is in them, and which
records count, is their owner's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedfair.store.atomic_file import replace_file

_READ_AT_ONCE = 1 << 12
"""Records that are read together."""


def read_records(path: Path, header_bytes: int, record_bytes: int) -> Iterator[bytes]:
    """Yield every whole record of a file.

    Args:
        path: the file.
        header_bytes: length of its header.
        record_bytes: length of a record.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as source:
        source.seek(header_bytes)
        while piece := source.read(record_bytes * _READ_AT_ONCE):
            for at in range(0, len(piece) - record_bytes + 1, record_bytes):
                yield piece[at : at + record_bytes]


class FixedRecords:
    """One file that is appended to; it is open only while something is written.

    Args:
        path: where it is.
        record_bytes: length of a record, at least 1.
        header_bytes: length of the header that it begins with.
        count: the records that it keeps; whatever comes after them is cut off.

    Attributes:
        count: records so far.

    Raises:
        OSError: it cannot be used.
    """

    def __init__(self, path: Path, record_bytes: int, header_bytes: int, count: int) -> None:
        self._path, self._record_bytes, self._header_bytes = path, record_bytes, header_bytes
        self.count = count
        self.append([])

    @classmethod
    def begun(cls, path: Path, record_bytes: int, header: bytes) -> FixedRecords:
        """Return the file with a header and nothing else; an older one is replaced in one step.

        Raises:
            OSError: it cannot be written.
        """
        replace_file(path, [header])
        return cls(path, record_bytes, len(header), 0)

    def append(self, records: Sequence[bytes]) -> None:
        """Append records after those that count; what a failed attempt has left there is written over.

        Raises:
            OSError: they were not written whole, and do not count.
        """
        rest = memoryview(b"".join(records))
        with self._path.open("r+b", buffering=0) as target:
            target.truncate(self._header_bytes + self.count * self._record_bytes)
            target.seek(0, os.SEEK_END)
            # After a part of the bytes the next write says why, or writes the rest.
            while rest:
                rest = rest[target.write(rest) :]
        self.count += len(records)

    def sync(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            OSError: the disk fails.
        """
        with self._path.open("r+b") as target:
            os.fsync(target.fileno())
