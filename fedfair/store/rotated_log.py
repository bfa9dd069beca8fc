"""A log of lines that a peer can cause, and that must not fill the disk: it begins a new file in time.

`name`, then `name.1` (the one before), `name.2`, ...: at most `1 + kept` files of `max_bytes` each, and
`max_total_bytes` in all. A file is also closed a month after its first line, so that an old one can be put away as
a whole. The oldest lines are lost in the end, so nothing that is evidence, or that a later start relies on, may be
kept here. A process that is killed while it begins a new file loses no line but those that were to go.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path

from fedfair.store.atomic_file import OWNER_ONLY
from fedfair.store.line_end import is_cut

MAX_LOG_BYTES = 16 << 20
"""Of one file: months of an ordinary run."""

KEPT = 12
"""Files beside the present one: a year of months."""

MAX_TOTAL_BYTES = 64 << 20
"""Of all files of one log together."""

MAX_METRICS_BYTES = 512 << 20
"""The same of a log of every sum: a year of a round a minute takes about a third of it."""

MAX_METRICS_FILES = 31
"""Files of it beside the present one."""

MAX_AGE = timedelta(days=31)
"""Of the first line of the present file."""

_TIME = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})")
_SHOWN_BYTES = 200
"""The time of a line is among its first characters."""


class RotatedLog:
    """One log; its file is made by the first line, or by `begin`.

    Args:
        path: of the present file.
        max_bytes: the most that one file holds, at least 1; one longer line has a file of its own.
        kept: how many earlier files stay, at least 0.
        owner_only: whether nobody but its owner may read the file.
        max_total_bytes: the most that all files hold; the present one and the one before it stay in any case.
        max_age: how old the first line of a file may be when the next one comes.
        clock: returns an aware time.

    Attributes:
        path: of the present file.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = MAX_LOG_BYTES,
        kept: int = KEPT,
        owner_only: bool = False,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        max_age: timedelta = MAX_AGE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._owner_only = owner_only
        self._max_total_bytes = max_total_bytes
        self._max_age = max_age
        self._clock = clock
        self._file: FileIO | None = None
        self._size = 0
        self._is_cut = False
        self._begun: datetime | None = None

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
        now = self._clock()
        if self._size and (self._size + len(raw) > self._max_bytes or self._is_old(now)):
            file = self._rotate(file)
        self._begun = self._begun or now
        left = memoryview(b"\n" + raw if self._is_cut else raw)
        self._is_cut = True
        self._size += len(left)
        while left:
            left = left[file.write(left) :]
        self._is_cut = False

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
        self._is_cut = is_cut(self.path)
        self._begun = _first_time(self.path) if self._size else None
        return self._file

    def _is_old(self, now: datetime) -> bool:
        return self._begun is not None and now - self._begun >= self._max_age

    def _rotate(self, file: FileIO) -> FileIO:
        file.close()
        *_, oldest = files = self._files()
        oldest.unlink(missing_ok=True)
        # The present file becomes an earlier one, and another one may grow to its full length beside them.
        left = self._max_total_bytes - self._max_bytes - self._size
        for earlier in files[1:]:
            left -= earlier.stat().st_size if earlier.exists() else 0
            if left < 0:
                earlier.unlink(missing_ok=True)
        for newer, older in reversed(list(itertools.pairwise(files))):
            if newer.exists():
                newer.replace(older)
        return self._open()

    def _files(self) -> list[Path]:
        names = (self.path.with_name(f"{self.path.name}.{age}") for age in range(1, self._kept + 1))
        return [self.path, *names]


def _first_time(path: Path) -> datetime:
    """Return when the first line of a file was written; where it does not say so, when the last one was."""
    with path.open("rb") as source:
        match = _TIME.search(source.read(_SHOWN_BYTES))
    if match is not None:
        try:
            return datetime.fromisoformat(f"{match[1].decode()}T{match[2].decode()}+00:00")
        except ValueError:
            pass  # Digits that are no time.
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
