"""The files of one record: the present one, and the earlier ones beside it, which are closed.

    NAME.jsonl            the present file, with the newest entries
    NAME.jsonl.000001     the first file that was closed; then .000002, and so on

Decides how they are named, when a new one is begun, and in which order they are read. A record of one file is read
as it always was. Whoever reads while a writer begins a new file sees a whole record: the present file is opened
first, and is passed over where it has become an earlier one.

A writer resumes at the end of the present file, which is read at a start without its whole history. Of a short
file everything is read. Of a long one, what stands behind the first signature in its end: that is the keeper's
own, and states how many entries and messages stand before it. Earlier files are not read; the present one says how
long the one before it is, and that is compared. So a start costs the same after a day and after a year. What an
audit finds beyond this is `read_record`'s business.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fedfair.audit.append_file import AppendFile
from fedfair.audit.entry import Beginning, Opened, RecordContinued, RecordLine, parse_line
from fedfair.audit.head import Head
from fedfair.audit.reader import CutOffError, RecordReader, bounded_lines
from fedfair.errors import AuditError

_NUMBER = re.compile(r"\.([0-9]{6,12})\Z")


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a record begins a new file: where a sum is over, and one of these is reached.

    Attributes:
        max_bytes: length of the present file, at least 1.
        max_age: time since its first entry.
    """

    max_bytes: int = 64 << 20
    max_age: timedelta = timedelta(days=31)


USUAL = Rotation()
"""About twelve files a year, for a round a minute."""


def earlier_path(record: Path, number: int) -> Path:
    """Return where an earlier file of a record is.

    Args:
        record: the present file.
        number: from 1.
    """
    return record.with_name(f"{record.name}.{number:06d}")


def earlier_files(record: Path) -> dict[int, Path]:
    """Return the earlier files of a record that are there, by number, in order.

    Args:
        record: the present file; a link is followed.

    Raises:
        AuditError: one is missing in the middle.
    """
    real = record.resolve()
    found = dict[int, Path]()
    for path in real.parent.glob(f"{_escaped(real.name)}.*"):
        match = _NUMBER.fullmatch(path.name[len(real.name) :])
        if match is not None:
            found[int(match[1])] = path
    numbers = sorted(found)
    for before, after in itertools.pairwise(numbers):
        if after != before + 1:
            raise AuditError(
                f"{earlier_path(real, before + 1)} is missing, and files before and after it are there",
                "copy it back; only the oldest files of a record may be kept elsewhere, one after the other",
            )
    return {number: found[number] for number in numbers}


def read_record(record: Path, reader: RecordReader) -> None:
    """Read a record, all of its files in order.

    Args:
        record: the present file.
        reader: takes the lines.

    Raises:
        AuditError: the first entry that is wrong, or a file that is missing.
        OSError: a file cannot be read.
    """
    with ExitStack() as opened:
        try:
            present = opened.enter_context(record.open("rb"))
        except FileNotFoundError:
            # A writer was interrupted between closing a file and beginning the next.
            present = None
        earlier = earlier_files(record)
        if present is None and not earlier:
            raise FileNotFoundError(2, "No such file or directory", str(record))
        if present is not None:
            status = os.fstat(present.fileno())
            earlier = {number: path for number, path in earlier.items() if not _is_file(path, status)}
        if earlier and next(iter(earlier)) != 1:
            raise AuditError(
                f"the record begins with file {next(iter(earlier))}: the files before it are elsewhere",
                f"copy {earlier_path(record, 1).name} and those after it back beside {record.name}",
            )
        reader.read(*map(lines_of, earlier.values()), *([] if present is None else [bounded_lines(present)]))


def lines_of(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file from a place on, none longer than an entry may be."""
    with path.open("rb") as source:
        source.seek(start)
        yield from bounded_lines(source)


def _is_file(path: Path, status: os.stat_result) -> bool:
    found = path.stat()
    return (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


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
