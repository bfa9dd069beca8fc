"""The write-ahead log of secure aggregation on this site's disk: one file, its owner's alone.

Decides how bytes become durable: a record is on the disk when `append` returns, and `replace` leaves either the
old log or the new one, whenever the power fails. What is in the records is `fedfair.secagg.log`'s business. The
file is locked, because two processes that wrote one log could send two different things for one round.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from fedfair.errors import FedfairError

OWNER_ONLY = 0o600


class WriteAheadLog:
    """One open log; call `close` at the end.

    Args:
        path: the file; made if there is none.

    Raises:
        FedfairError: it cannot be opened, or another process has it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file = self._open()
        except OSError as error:
            if self._lock >= 0:
                os.close(self._lock)
            raise FedfairError(
                f"{path} cannot be used as this site's write-ahead log: {error.strerror}",
                "run one process per collaborator, with a folder that it may write to",
            ) from error

    def read(self) -> bytes:
        """Return everything that was logged."""
        return self._path.read_bytes()

    def append(self, parts: Iterable[bytes | bytearray]) -> None:
        """Write these parts at the end; they are on the disk when this returns."""
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[os.write(self._file, view) :]
        os.fsync(self._file)

    def replace(self, parts: Iterable[bytes | bytearray]) -> None:
        """Replace the whole log by these parts, in one step."""
        temporary = self._path.with_suffix(".part")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as target:
            target.writelines(parts)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(folder)
        os.close(folder)
        os.close(self._file)
        self._file = self._open()

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)
        os.close(self._lock)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)
