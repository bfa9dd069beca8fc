"""A file of records, one a line, that several processes append to; each record is on the disk before it counts.

A writer holds a lock beside the file, ends nothing and waits for the disk. A line that was cut, by a full disk or
with the process, is no record: the next writer drops it, and a reader does not see it. What a line means, and
whether the lines before it are sound, is its user's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfair.store.atomic_file import OWNER_ONLY, sync_folder
from fedfair.store.line_end import is_cut


class LineFile:
    """The lines of one file.

    Args:
        path: where it is, or will be; its folder is made by the first writer.
        most_bytes: of one line without its end.

    Attributes:
        path: the same.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path, self._most = path, most_bytes

    def lines(self, after: int = 0) -> Iterator[bytes]:
        """Yield the whole lines after a number, without their ends; none where there is no file.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as source:
            number = 0
            while line := source.readline(self._most + 2):
                number += 1
                if line.endswith(b"\n") and number > after:
                    yield line[:-1]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out until the block ends, after waiting for one that is at it.

        Raises:
            OSError: the lock cannot be made.
        """
        # Imported here, because no system but Unix has it, and a simulation runs on others too.
        import fcntl

        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def append(self, *lines: bytes) -> None:
        """Write lines, under the lock; they are on the disk when this returns. A fault leaves none of them.

        Raises:
            OSError: they cannot be written.
        """
        self._drop_cut_line()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            _append_whole(handle, b"".join(line + b"\n" for line in lines))
        finally:
            os.close(handle)
        sync_folder(self.path.parent)

    def _drop_cut_line(self) -> None:
        if not is_cut(self.path):
            return
        with self.path.open("rb+") as source:
            content = source.read()
            source.truncate(content.rfind(b"\n") + 1)


def _append_whole(handle: int, content: bytes) -> None:
    length = os.fstat(handle).st_size
    try:
        while content:
            content = content[os.write(handle, content) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, length)
        raise
