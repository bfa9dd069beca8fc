"""Says whether the last line of a log was cut: by a full disk, or with the process that wrote it.

A writer that appends lines ends such a line first. So a reader loses that line alone, and no record after it.
"""

from __future__ import annotations

import os
from pathlib import Path


def is_cut(path: Path) -> bool:
    """Return whether a file has content that no line end follows; one that is not there has none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as source:
            if not source.seek(0, os.SEEK_END):
                return False
            source.seek(-1, os.SEEK_END)
            return source.read(1) != b"\n"
    except FileNotFoundError:
        return False
