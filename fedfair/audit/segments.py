"""The files of one record: the present one, and the earlier ones beside it, which are closed.

    NAME.jsonl            the present file, with the newest entries
    NAME.jsonl.000001     the first file that was closed; then .000002, and so on

Decides how they are named, when a new one is begun, and in which order they are read. A record of one file is read
as it always was. Whoever reads while a writer begins a new file sees a whole record: the present file is opened
first, and is passed over where it has become an earlier one.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fedfair.audit.reader import RecordReader, bounded_lines
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
