"""Text files that appear whole: a reader, or a crash, meets the older content or the new one, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

READABLE_BY_ALL = 0o644


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path`, by way of a temporary file beside it; a pipe or a device is written to.

    Raises:
        OSError: the file cannot be written; it names `path`, and what was there before is as it was.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            # A pipe or a device holds no older content, and a file must not take its place.
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        # Nobody asked for the temporary file, and its name would not tell what to mend.
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as target:
            target.write(text)
            target.flush()
            os.fsync(target.fileno())
            os.fchmod(target.fileno(), READABLE_BY_ALL)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
