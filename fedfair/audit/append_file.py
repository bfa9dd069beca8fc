"""A file that one process alone appends to, and that tells when anybody else has touched it.

Bytes are with the operating system when `append` returns, so a process that is killed loses none of them; they
are on the disk after `sync`. Bytes that could not be written whole make the file useless for this process: it no
longer knows what the end looks like. `begin_anew` puts the file aside and another one in its place: that one is
written whole first, so a killed process leaves both, or the older one under its new name, or the older one alone.
What the bytes mean is `keeper.py`'s business.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from fedfair.audit.reader import bounded_lines
from fedfair.errors import AuditError
from fedfair.store.atomic_file import OWNER_ONLY, replace_file, sync_folder
from fedfair.store.lock import HeldError, ProcessLock, runs_already

_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


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
        length: of the present file, in bytes.
    """

    def __init__(self, path: Path, writer: str) -> None:
        self.path = path
        self.usable = True
        # Whoever waits for the disk does so in another thread, and must not meet a handle that was closed.
        self._swapping = Lock()
        self._handle = _open(path)
        try:
            self._lock = _lock(self._handle, path, writer)
        except BaseException:
            os.close(self._handle)
            raise
        self.length = os.fstat(self._handle).st_size

    def lines(self, start: int = 0) -> Iterator[bytes]:
        """Yield what is in the file, line by line, from a place on."""
        with os.fdopen(os.dup(self._handle), "rb") as source:
            source.seek(start)
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
            if state.st_nlink == 0 or state.st_size != self.length:
                raise self._unwritable("another program removed it or changed its length")
            written = os.write(self._handle, content)
        except OSError as error:
            raise self._unwritable(_words(error)) from error
        if written != len(content):
            raise self._unwritable("the disk took only a part of an entry")
        self.length += written
        self.usable = True

    def sync(self) -> None:
        """Wait until everything written so far is on the disk; any thread may call this.

        Raises:
            AuditError: the disk fails.
        """
        try:
            with self._swapping:
                os.fsync(self._handle)
        except OSError as error:
            self.usable = False
            raise self._unwritable(_words(error)) from error

    def begin_anew(self, content: bytes, earlier: Path | None) -> None:
        """Begin a new file under the same name; what both hold is on the disk when this returns.

        Args:
            content: what the new file begins with.
            earlier: the new name of the present file, where none is; None to replace it, because it is empty.

        Raises:
            AuditError: not all of it worked; the next start sees which file is the newest.
        """
        self.usable = False
        real = self.path.resolve()
        if earlier is not None and os.path.lexists(earlier):
            raise self._unwritable(f"{earlier} is there already")
        try:
            os.fsync(self._handle)
            fresh = _put_in_place(real, content, earlier)
        except OSError as error:
            raise self._unwritable(_words(error)) from error
        with self._swapping:
            self._handle, older = fresh, self._handle
            os.close(older)
        self.length = len(content)
        self.usable = True

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
        handle = os.open(path, _APPENDING | os.O_CREAT | os.O_NONBLOCK, OWNER_ONLY)
        sync_folder(path.parent)
    except OSError as error:
        raise _unusable(path, _words(error)) from error
    return handle


def _put_in_place(path: Path, content: bytes, earlier: Path | None) -> int:
    """Move what is there out of the way, put a whole file in its place, and return the handle of that one."""
    beside = path.with_name(f".{path.name}.next")
    replace_file(beside, [content], OWNER_ONLY)
    handle = os.open(beside, _APPENDING)
    try:
        if earlier is not None:
            path.rename(earlier)
        beside.replace(path)
        sync_folder(path.parent)
    except BaseException:
        os.close(handle)
        raise
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
