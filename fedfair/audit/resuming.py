"""Where a writer resumes: the end of the present file of a record, read at a start without its whole history.

Of a short file everything is read. Of a long one, what stands behind the first signature in its end: that is the
keeper's own, and states how many entries and messages stand before it. Earlier files are not read; the present one
says how long the one before it is, and that is compared. So a start costs the same after a day and after a year.
What an audit finds beyond this is `segments.read_record`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedfair.audit.append_file import AppendFile
from fedfair.audit.entry import Beginning, Opened, RecordContinued, RecordLine, parse_line
from fedfair.audit.head import Head
from fedfair.audit.reader import CutOffError, RecordReader
from fedfair.audit.segments import earlier_files, lines_of
from fedfair.errors import AuditError

WHOLE_BYTES = 1 << 16
"""A file of at most this length is read whole at a start, and so much of the end of a longer one at first."""

LinesFrom = Callable[[int], Iterator[bytes]]
"""Yields the lines of a file from a place on."""

_KEEP = "keep the files as evidence, and copy the whole record back from a backup"
_SIGNED = (b'"kind":"signed"', b'"kind":"continued"')


@dataclass(frozen=True, slots=True)
class Present:
    """The end of a record, where its writer resumes.

    Attributes:
        found: what was read.
        number: of the newest file that has entries; 1 where none has.
        length: bytes of that file.
        is_missing: whether that file was put aside already, and no other one was begun.
    """

    found: RecordReader
    number: int
    length: int
    is_missing: bool


def read_present(file: AppendFile, head: Head | None) -> Present:
    """Return where a record ends.

    Args:
        file: its present file.
        head: the note of how far the record has come; None for none.

    Raises:
        AuditError: it was changed or cut off, or a file of it is missing.
    """
    try:
        return _read_present(file, None if head is None else head.expected)
    except CutOffError as fault:
        note = "" if head is None else f"; if you moved the record on purpose, remove {head.path}"
        raise AuditError(
            f"{file.path}: {fault.message}; nothing is sent without it",
            f"{fault.remedy}, or copy the whole record back{note}",
        ) from fault
    except AuditError as fault:
        raise AuditError(f"{file.path}: {fault.message}; nothing is sent without it", fault.remedy) from fault
    except OSError as error:
        raise AuditError(
            f"{file.path}: an earlier file of the record cannot be read: {error.strerror or error}; "
            "nothing is sent without it",
            "let this user read the files beside it",
        ) from error


def _read_present(file: AppendFile, expected: tuple[int, bytes] | None) -> Present:
    earlier = earlier_files(file.path)
    if file.length == 0 and earlier:
        # A writer was interrupted after it had put the file aside and before it had begun the next.
        number, path = list(earlier.items())[-1]
        length = path.stat().st_size
        found = _read_end(length, lambda start: lines_of(path, start), expected)
        begun = found.begun
        if found.unsigned or found.tail or begun is None or begun.segment != number:
            raise CutOffError(f"{path.name} does not end with a signature: its end was cut off", _KEEP)
        return Present(found, number, length, is_missing=True)
    found = _read_end(file.length, file.lines, expected)
    begun = found.begun
    number = 1 if begun is None else begun.segment
    if earlier:
        _check_before(begun, number, *list(earlier.items())[-1])
    return Present(found, number, file.length, is_missing=False)


def _check_before(begun: Beginning | None, number: int, last: int, path: Path) -> None:
    """Refuse a present file that does not continue the newest of the earlier ones."""
    if last != number - 1 or not isinstance(begun, RecordContinued):
        raise AuditError(
            f"it is file {number} of the record, and {path.name} beside it is file {last}: one is missing, or is "
            "of another record",
            _KEEP,
        )
    length = path.stat().st_size
    if length != begun.before_bytes:
        raise AuditError(f"{path.name} has {length} bytes, it was closed with {begun.before_bytes}", _KEEP)


def _read_end(length: int, lines: LinesFrom, expected: tuple[int, bytes] | None) -> RecordReader:
    """Read the end of one file, from the last signature that its writer may believe."""
    found = RecordReader(expected, by_sum=False, by_message=False)
    base = _base(length, lines)
    if base is None:
        found.read(lines(0))
        return found
    begun, signed, start = base
    found.resume(begun, signed, start)
    found.read(lines(start))
    return found


def _base(length: int, lines: LinesFrom) -> tuple[Beginning, RecordLine, int] | None:
    """Return the first entry of a file, a signed one in its end, and where that ends; None to read all of it."""
    line = next(lines(0), b"")
    first = _parsed(line)
    if first is None or not isinstance(first.entry, Opened | RecordContinued):
        return None
    entry, size = first.entry, len(line)
    window = WHOLE_BYTES
    while window < length:
        start = length - window
        for number, line in enumerate(lines(start)):
            start += len(line)
            # The first of them may be the end of a line.
            if number and any(word in line for word in _SIGNED):
                found = _parsed(line)
                if found is not None and found.signature is not None:
                    return entry, found, start
        window *= 4
    return (entry, first, size) if isinstance(entry, RecordContinued) else None


def _parsed(line: bytes) -> RecordLine | None:
    """Return a line taken apart; None where it is no entry, which the reader says in its place."""
    try:
        return parse_line(line)
    except AuditError:
        return None
