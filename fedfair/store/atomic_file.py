"""Files that appear whole: a reader, or a crash, meets the older content or the new one, never half of it.

Decides how a file is replaced: it is written beside its place, waited for on the disk, and renamed. Its mode
is what the caller states, less what the user's umask takes away. The operating system does that when it creates
the file, so nothing here reads the umask, which belongs to the whole process and not to a thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

MODE = 0o666
"""Permissions of an ordinary file, before the umask."""

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""How the temporary file is opened; Windows knows no O_CLOEXEC, and writes other bytes without O_BINARY."""

OWNER_ONLY = 0o600
READABLE = 0o644


def write_whole(path: Path, text: str, mode: int = MODE) -> None:
    """Write `text` to `path` as UTF-8, by way of a temporary file beside it; a pipe or a device is written to.

    Args:
        path: the file; its folder exists.
        text: the content.
        mode: the permissions of the file before the umask, such as 0o600 for a secret.

    Raises:
        OSError: the file cannot be written; it names `path`, and what was there before is as it was.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        # A pipe or a device holds no older content, and a file must not take its place.
        path.write_text(text, encoding="utf-8")
    else:
        replace_file(path, [text.encode("utf-8")], mode)


def replace_file(
    path: Path, parts: Iterable[bytes | bytearray | memoryview], mode: int = MODE, *, durable: bool = True
) -> None:
    """Write `parts`, one after the other, to `path`, by way of a temporary file beside it.

    Args:
        path: the file; its folder exists.
        parts: the content.
        mode: the permissions of the file before the umask.
        durable: whether to wait for the disk; without, a power failure may leave an empty file.

    Raises:
        OSError: the file cannot be written; it names `path`, and what was there before is as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            handle = os.open(temporary, NEW_FILE, mode)
            with os.fdopen(handle, "wb") as target:
                target.writelines(parts)
                target.flush()
                if durable:
                    os.fsync(target.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        # Nobody asked for the temporary file, and its name would not tell what to mend.
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_folder(folder: Path) -> None:
    """Wait until what was made, renamed or removed in a folder is on the disk.

    Raises:
        OSError: the disk fails.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folder; a rename is in its file system's own log.
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
