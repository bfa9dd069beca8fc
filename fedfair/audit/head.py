"""Notes the last entry of a record apart from it, so that a cut-off end is noticed.

One small file in the keeper's folder of state: number and chain value of the last entry, and of the last entry
known to be on disk; the machine's boot; and the record's place as seen from the note, so that both may move with
the folder that holds them. It is written after an entry and before the message of that entry is sent, so it is
never ahead of the record. A machine that lost its power may have lost entries that were not flushed; after another
boot, only the others are required.

What it cannot notice is that both files were put back together.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedfair.audit.chain import START
from fedfair.errors import AuditError
from fedfair.store.atomic_file import OWNER_ONLY

End = tuple[int, bytes]
"""The number and the chain value of an entry."""

BOOT = Path("/proc/sys/kernel/random/boot_id")
_END = "{:019d}:{}\n"
_END_BYTES = len(_END.format(0, START.hex()))
_FORM = re.compile(r"(\d{19}):([0-9a-f]{64})\n(\d{19}):([0-9a-f]{64})\n(.*)\n(.*)\n")


@dataclass(frozen=True, slots=True)
class Noted:
    """The content of a note.

    Attributes:
        written: the last entry.
        on_disk: the last entry that the disk was waited for.
        boot: of the machine that wrote it.
        record: where the record is, from the root of the file system.
    """

    written: End
    on_disk: End
    boot: str
    record: str

    def expected(self, boot: str) -> End | None:
        """Return the entry that the record must still have; None where it may be empty."""
        number, chain = self.written if self.boot == boot else self.on_disk
        return (number, chain) if number else None


class Head:
    """The note of one record; `close` it at the end.

    Args:
        path: its file; made if there is none, with its folder.
        record: where the record is; another record gets a new note.
        boot: names the machine's boot; empty where that is not known.

    Raises:
        AuditError: it cannot be used.

    Attributes:
        expected: the entry that the record must still have; None where nothing is known.
    """

    def __init__(self, path: Path, record: Path, boot: str) -> None:
        self.path = path
        place = str(record.resolve())
        self._record, self._boot = os.path.relpath(place, path.parent.resolve()), boot
        noted = read_head(path)
        self.expected = noted.expected(boot) if noted is not None and noted.record == place else None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        except OSError as error:
            raise self._unwritable(error) from error

    def begin(self, end: End) -> None:
        """Write the whole note; the record was read, and ends like this.

        Raises:
            AuditError: it cannot be written.
        """
        text = 2 * _END.format(end[0], end[1].hex()) + f"{self._boot}\n{self._record}\n"
        self._write(text, 0)
        try:
            os.ftruncate(self._handle, len(text.encode()))
        except OSError as error:
            raise self._unwritable(error) from error

    def written(self, end: End) -> None:
        """Note the last entry.

        Raises:
            AuditError: it cannot be written, so the message must not be sent.
        """
        self._write(_END.format(end[0], end[1].hex()), 0)

    def on_disk(self, end: End) -> None:
        """Note that the disk was waited for, up to this entry; any thread may call this.

        Raises:
            AuditError: it cannot be written.
        """
        self._write(_END.format(end[0], end[1].hex()), _END_BYTES)

    def close(self) -> None:
        """Let the file go."""
        os.close(self._handle)

    def _write(self, text: str, at: int) -> None:
        try:
            os.pwrite(self._handle, text.encode(), at)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> AuditError:
        return AuditError(
            f"the note {self.path} of the record cannot be written: {error.strerror}; nothing is sent without it",
            "make room on the disk, or let this user write there, then start again",
        )


def read_head(path: Path) -> Noted | None:
    """Return what a note says; None where there is none, or an empty one.

    Raises:
        AuditError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path) from error
    match = _FORM.fullmatch(text)
    if match is None and text:
        raise _unreadable(path)
    if match is None:
        return None
    ends = [(int(match[group]), bytes.fromhex(match[group + 1])) for group in (1, 3)]
    # Both folders are free of links, so that the steps between them are those of their names.
    return Noted(ends[0], ends[1], match[5], os.path.normpath(path.parent.resolve() / match[6]))


def head_path(state: Path, participant: str) -> Path:
    """Return where the note of a participant's record is, in its folder of state."""
    return state / f"{participant}.egress-head"


def present_boot() -> str:
    """Return the name of this machine's boot; empty where the system does not tell."""
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _unreadable(path: Path) -> AuditError:
    return AuditError(
        f"{path} is not the note of a record, or was damaged",
        "remove it if you are sure that the record is whole; without it that cannot be checked",
    )
