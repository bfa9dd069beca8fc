"""A log of lines that a peer can cause, and that must not fill the disk: it begins a new file in time.

`name`, then `name.1` (the one before), `name.2`, ...: at most `1 + kept` files of `max_bytes` each. The oldest
lines are lost then, so nothing that is evidence, or that a later start relies on, may be kept here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from fedfair.atomic_file import OWNER_ONLY

MAX_LOG_BYTES = 16 << 20
"""Of one file: months of an ordinary run."""

KEPT = 3
"""Files beside the present one: 64 MiB for one log in all."""


class RotatedLog:
    """One log; its file is made by the first line, or by `begin`.

    Args:
        path: of the present file.
        max_bytes: the most that one file holds, at least 1; one longer line has a file of its own.
        kept: how many earlier files stay, at least 0.
        owner_only: whether nobody but its owner may read the file.

    Attributes:
        path: of the present file.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_LOG_BYTES, kept: int = KEPT, owner_only: bool = False
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._owner_only = owner_only
        self._file: FileIO | None = None
        self._size = 0

    def begin(self, *, anew: bool = False) -> None:
        """Make the file now; `anew` forgets every line of an earlier run.

        Raises:
            OSError: the file cannot be made.
        """
        if anew:
            for path in self._files():
                path.unlink(missing_ok=True)
        self._open()

    def append(self, line: str) -> None:
        """Write one line; it is with the operating system when this returns.

        Raises:
            OSError: it cannot be written.
        """
        raw = line.encode("utf-8", "replace") + b"\n"
        file = self._file or self._open()
        if self._size and self._size + len(raw) > self._max_bytes:
            file = self._rotate(file)
        left = memoryview(raw)
        while left:
            left = left[file.write(left) :]
        self._size += len(raw)

    def lines(self) -> Iterator[str]:
        """Yield every line that is still there, the oldest first, without its end."""
        for path in reversed(self._files()):
            if path.exists():
                yield from path.read_text(encoding="utf-8", errors="replace").splitlines()

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> FileIO:
        # Without a buffer, a line that did not fit on the disk is not tried again when the file is closed.
        if self._owner_only:
            self.path.touch(OWNER_ONLY)
        self._file = self.path.open("ab", buffering=0)
        self._size = self.path.stat().st_size
        return self._file

    def _rotate(self, file: FileIO) -> FileIO:
        file.close()
        *_, oldest = files = self._files()
        oldest.unlink(missing_ok=True)
        for newer, older in reversed(list(itertools.pairwise(files))):
            if newer.exists():
                newer.replace(older)
        return self._open()

    def _files(self) -> list[Path]:
        names = (self.path.with_name(f"{self.path.name}.{age}") for age in range(1, self._kept + 1))
        return [self.path, *names]
