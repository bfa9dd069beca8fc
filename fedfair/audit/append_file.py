"""A file that one process alone appends to, and that tells when anybody else has touched it.

Bytes are with the operating system when `append` returns, so a process that is killed loses none of them; they
are on the disk after `sync`. Bytes that could not be written whole make the file useless for this process: it no
longer knows what the end looks like. What the bytes mean is `keeper.py`'s business.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedfair.audit.reader import bounded_lines
from fedfair.errors import AuditError
from fedfair.process.lock import HeldError, ProcessLock, runs_already

OWNER_ONLY = 0o600


class AppendFile:
    """One open file, locked; made if there is none. Call `close` at the end.

    The lock is a file beside it, `<its name>.lock`, which names the process that writes.

    Args:
        path: where it is.
        writer: who writes it, such as "this site", for the message to a second process.

    Raises:
        AuditError: it cannot be used, it is no regular file, or another process has it.

    Attributes:
        path: where it is.
        usable: whether everything so far was written whole.
    """

    def __init__(self, path: Path, writer: str) -> None:
        self.path = path
        self.usable = True
        self._handle = _open(path)
        try:
            self._lock = _lock(self._handle, path, writer)
        except BaseException:
            os.close(self._handle)
            raise
        self._length = os.fstat(self._handle).st_size

    def lines(self) -> Iterator[bytes]:
        """Yield what is in the file, line by line."""
        with os.fdopen(os.dup(self._handle), "rb") as source:
            source.seek(0)
            yield from bounded_lines(source)

    def append(self, content: bytes) -> None:
        """Write at the end.

        Raises:
            AuditError: not all of it was written, or another program has touched the file.
        """
        if not self.usable:
            raise self._unwritable("an earlier entry could not be written")
        self.usable = False
        try:
            state = os.fstat(self._handle)
            if state.st_nlink == 0 or state.st_size != self._length:
                raise self._unwritable("another program removed it or changed its length")
            written = os.write(self._handle, content)
        except OSError as error:
            raise self._unwritable(_words(error)) from error
        if written != len(content):
            raise self._unwritable("the disk took only a part of an entry")
        self._length += written
        self.usable = True

    def sync(self) -> None:
        """Wait until everything written so far is on the disk; any thread may call this.

        Raises:
            AuditError: the disk fails.
        """
        try:
            os.fsync(self._handle)
        except OSError as error:
            self.usable = False
            raise self._unwritable(_words(error)) from error

    def close(self) -> None:
        """Let the file go."""
        os.close(self._handle)
        self._lock.close()

    def _unwritable(self, reason: str) -> AuditError:
        return AuditError(
            f"the record {self.path} cannot be written: {reason}; nothing is sent without it",
            "make room on the disk, or let no other program touch the file, then start again",
        )


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Nothing is waited for: a pipe is opened only to be refused.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(path, flags, OWNER_ONLY)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        raise _unusable(path, _words(error)) from error
    return handle


def _lock(handle: int, path: Path, writer: str) -> ProcessLock:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        # /dev/null, say, would take every entry and keep none.
        raise _unusable(path, "it is no file that keeps what is written")
    # Beside the file itself: a link to it is another name, and not another record.
    real = path.resolve()
    try:
        return ProcessLock(real.with_name(f"{real.name}.lock"))
    except HeldError as error:
        raise AuditError(*runs_already(writer, error.process, path)) from error
    except OSError as error:
        raise _unusable(path, _words(error)) from error


def _unusable(path: Path, reason: str) -> AuditError:
    return AuditError(
        f"the record {path} cannot be used: {reason}; nothing is sent without it",
        "run one process per folder, and let it write there",
    )


def _words(error: OSError) -> str:
    return error.strerror or str(error)
