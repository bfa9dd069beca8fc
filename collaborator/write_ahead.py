"""The write-ahead log of secure aggregation on this site's disk: one file, its owner's alone.

Decides how bytes become durable: a record is on the disk when `append` returns, and `replace` leaves either the
old log or the new one, whenever the power fails. What is in the records is `fedfair.secagg.log`'s business. The
file is locked, because two processes that wrote one log could send two different things for one round.

The key of the masks in the log has a file of its own, `.masks`, and each is written over the one before. SQLite
keeps older values in a log of its own, where a thief of the disk would find a key that the site has forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fedfair.errors import FedfairError
from fedfair.secagg.history import MASKS_KEY
from fedfair.secagg.keys import ENVELOPE_KEY_BYTES
from fedfair.store.atomic_file import OWNER_ONLY, replace_file
from fedfair.store.disk import writing
from fedfair.store.lock import HeldError, ProcessLock, runs_already
from fedfair.store.table_file import Content, TableFile

HISTORY = Content(
    "this site's history of masked sums",
    "make room on its disk, or copy it back from a backup together with the write-ahead log beside it; "
    "without it a site cannot know what it has sent",
)

# Where only `fsync` is, as on macOS, the dates of the file are waited for too.
_written = getattr(os, "fdatasync", os.fsync)


class SettledTable:
    """The rows that the log need not repeat, and the one row that is overwritten in place.

    Args:
        path: of the log; the rows are in `.history`, the key of the masks is in `.masks`.

    Raises:
        FedfairError: one of the files cannot be opened, or another process has them.
    """

    def __init__(self, path: Path) -> None:
        self._rows = TableFile(path.with_suffix(".history"), HISTORY)
        self._key_path = path.with_suffix(".masks")
        try:
            self._key = os.open(self._key_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        except OSError as error:
            self._rows.close()
            raise _unusable(self._key_path, error) from error

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of a key; None where there is none.

        Raises:
            FedfairError: the file cannot be read.
        """
        if key != MASKS_KEY:
            return self._rows.get(key)
        try:
            return os.pread(self._key, ENVELOPE_KEY_BYTES, 0) or None
        except OSError as error:
            raise _unusable(self._key_path, error) from error

    def write(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write rows, all or none, and then the key of the masks; they are on the disk when this returns.

        Raises:
            FedfairError: they cannot be written.
        """
        values = dict(rows)
        key = values.pop(MASKS_KEY, None)
        if values:
            self._rows.write(values.items())
        if key is not None:
            with writing(self._key_path):
                os.pwrite(self._key, key, 0)
                _written(self._key)

    def close(self) -> None:
        """Let the files go."""
        self._rows.close()
        os.close(self._key)


class WriteAheadLog:
    """One open log, and the table of what it need not repeat; call `close` at the end.

    Args:
        path: the file; made if there is none.

    Raises:
        FedfairError: one of the files cannot be opened, or another process has them.

    Attributes:
        path: the file.
        history: the table.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = ProcessLock(path.with_suffix(".lock"))
        except HeldError as error:
            raise FedfairError(*runs_already("this site", error.process, path)) from error
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            self._file = self._open()
        except OSError as error:
            self._lock.close()
            raise _unusable(path, error) from error
        try:
            self.history = SettledTable(path)
        except FedfairError:
            os.close(self._file)
            self._lock.close()
            raise

    def read(self) -> bytes:
        """Return everything that was logged."""
        return self.path.read_bytes()

    def keep(self, length: int) -> None:
        """Cut off what comes after the first `length` bytes: a record that a crash left unfinished.

        Without this, the next record would begin in the middle of the unfinished one.

        Raises:
            FedfairError: the file cannot be written.
        """
        with writing(self.path):
            if os.fstat(self._file).st_size > length:
                os.ftruncate(self._file, length)
                os.fsync(self._file)

    def append(self, parts: Iterable[bytes | bytearray]) -> None:
        """Write these parts at the end; they are on the disk when this returns.

        Raises:
            FedfairError: they cannot be written; the log is as it was.
        """
        with writing(self.path):
            length = os.fstat(self._file).st_size
            try:
                for part in parts:
                    view = memoryview(part)
                    while view:
                        view = view[os.write(self._file, view) :]
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, length)
                raise

    def replace(self, parts: Iterable[bytes | bytearray]) -> None:
        """Replace the whole log by these parts, in one step.

        Raises:
            FedfairError: they cannot be written; the log is as it was.
        """
        with writing(self.path):
            replace_file(self.path, parts, OWNER_ONLY)
            os.close(self._file)
            self._file = self._open()

    def close(self) -> None:
        """Let the files go."""
        self.history.close()
        os.close(self._file)
        self._lock.close()

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)


def _unusable(path: Path, error: OSError) -> FedfairError:
    return FedfairError(
        f"{path} cannot be used as this site's write-ahead log: {error.strerror}",
        "run one process per collaborator, with a folder that it may write to",
    )
