"""Tables in text files, read so that every fault has a place.

Decides how a file is opened (plain or gzip, UTF-8 with or without a byte-order mark), that every row has the
header's length, which columns must be there, and how faults are collected: line and column by name, the first
twenty of each kind and the count of all. What the columns mean is the business of the sources.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError

SHOWN_FAULTS = 20
SHOWN_COLUMNS = 40

GZIP_MAGIC = b"\x1f\x8b"
READ_ERRORS = (OSError, EOFError, zlib.error)
"""What a missing, unreadable or damaged file raises while it is read, plain or gzip."""

FOLDER_REMEDY = "name the folder of the data set: data.root in collaborator.yaml, --data in a simulation"


class CsvReader(Protocol):
    """What `csv.reader` returns, for which the library has no public name."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of one file, as text without surrounding blanks.

    Attributes:
        path: the file.
        columns: texts (n,) by the column's name, in the file's order.
        lines: for every row the line of the file where it begins, from 1; int64 array (n,).
    """

    path: Path
    columns: Mapping[str, NDArray[np.str_]]
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)


class Faults:
    """What is wrong with one table, kind by kind.

    Args:
        table: the table, for places and values.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._kinds: list[str] = []

    def add(self, column: str, fault: str, wrong: NDArray[np.bool_], remedy: str) -> None:
        """Note every row where `wrong` (n,) is true; nothing where it never is."""
        rows = np.flatnonzero(wrong)
        if not len(rows):
            return
        values = self._table.columns[column]
        shown = [f"line {self._table.lines[row]}: '{values[row]}'" for row in rows[:SHOWN_FAULTS]]
        more = f" and {len(rows) - SHOWN_FAULTS} more" if len(rows) > SHOWN_FAULTS else ""
        self._kinds.append(f"column '{column}': {fault} in {len(rows)} rows ({', '.join(shown)}{more}); {remedy}")

    def refuse(self) -> None:
        """Raise one DataError with everything that was noted; return where there is nothing."""
        if self._kinds:
            raise DataError("\n  ".join([f"{self._table.path} cannot be used as it is:", *self._kinds]))


def read_table(path: Path, wanted: Collection[str] | None = None) -> Table:
    """Return the rows of a comma-separated file with a header; blank lines are left out.

    Args:
        path: the file, plain or gzip.
        wanted: columns that must be there, the only ones to keep; None keeps all.

    Raises:
        DataError: the file is missing, damaged, not such a table, empty, or lacks a column.
    """
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline="") as file:
            return _table(path, csv.reader(file, skipinitialspace=True, strict=True), wanted)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", "check the path in the plan or in collaborator.yaml"
        ) from error
    except (*READ_ERRORS, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as a comma-separated table: {error}",
            "write it as UTF-8 text with one header line, separated by commas",
        ) from error


def read_words(path: Path, header: Sequence[str] | None = None) -> Table:
    """Return the rows of a text whose fields are separated by blanks, as CelebA writes its tables.

    Args:
        path: the file, plain or gzip.
        header: names of all columns, in a file of rows only. None: the first line counts the rows and the second
            names every column but the first, which is called `image`.

    Raises:
        DataError: the file is missing, damaged, empty or ragged.
    """
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig") as file:
            lines = [line.split() for line in file]
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a text of fields separated by blanks: {error}") from error
    skipped = 0 if header is not None else 2
    names = list(header) if header is not None else ["image", *(lines[1] if len(lines) > 1 else [])]
    rows = [(number, fields) for number, fields in enumerate(lines[skipped:], start=skipped + 1) if fields]
    ragged = [number for number, fields in rows if len(fields) != len(names)]
    if ragged or not rows:
        place = f"line {ragged[0]} has another number of fields than the header's" if ragged else "has no records:"
        raise DataError(f"{path} {place} {len(names)}", "copy the file again; it may have been cut")
    columns = zip(*(fields for _, fields in rows), strict=True)
    texts = {name: np.array(column, np.str_) for name, column in zip(names, columns, strict=True)}
    return Table(path, texts, np.array([number for number, _ in rows]))


def numbers(table: Table, column: str, missing: NDArray[np.bool_], faults: Faults) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where `missing` (n,) is true; what is not a finite number is a fault."""
    texts = np.where(missing, "nan", table.columns[column])
    try:
        values = texts.astype(np.float64)
    except ValueError:
        values = np.array([_number(text) for text in texts])
    faults.add(column, "not a finite number", ~np.isfinite(values) & ~missing, "correct or declare as missing")
    return values


def require_columns(path: Path, header: Collection[str], wanted: Iterable[str]) -> None:
    """Raise a DataError that names every column that is not there, with the one that was probably meant."""
    missing = [name for name in wanted if name not in header]
    if not missing:
        return
    close = {name: difflib.get_close_matches(name, header, 1) for name in missing}
    named = ", ".join(
        f"'{name}'" + (f" (did you mean '{close[name][0]}'?)" if close[name] else "") for name in missing
    )
    raise DataError(f"{path} has no column {named}", _header_remedy(list(header)))


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of these files that is in a folder, plain or with .gz.

    Raises:
        DataError: none is.
    """
    for name in names:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise DataError(f"{folder} holds no {' or '.join(names)} (plain or .gz)", FOLDER_REMEDY)


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking gzip, known by its first two bytes; raises one of READ_ERRORS."""
    with path.open("rb") as file:
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path, "rb")) if packed else path.open("rb")


def _table(path: Path, reader: CsvReader, wanted: Collection[str] | None) -> Table:
    header = _header(path, next(reader, []))
    if wanted is not None:
        require_columns(path, header, wanted)
    places = {name: place for place, name in enumerate(header) if wanted is None or name in wanted}
    texts: dict[str, list[str]] = {name: [] for name in places}
    lines = []
    line = reader.line_num + 1
    for row in reader:
        if row and len(row) != len(header):
            raise DataError(
                f"{path} line {line} has {len(row)} fields, the header has {len(header)}",
                _other_separator(header)
                or "put a field that holds a comma in double quotes, and nothing between two commas for no value",
            )
        if row:
            lines.append(line)
            for name, place in places.items():
                texts[name].append(row[place].strip())
        line = reader.line_num + 1
    if not lines:
        raise DataError(f"{path} has a header but no records", "name a file with at least one record")
    return Table(path, {name: np.array(column, np.str_) for name, column in texts.items()}, np.array(lines))


def _header(path: Path, row: Sequence[str]) -> list[str]:
    names = [name.strip() for name in row]
    if not any(names):
        raise DataError(f"{path} has no header in its first line", "name the columns in the first line")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns called '{twice[0]}'", "give every column its own name")
    return names


def _header_remedy(header: Sequence[str]) -> str:
    separator = _other_separator(header)
    if separator:
        return separator
    more = f" and {len(header) - SHOWN_COLUMNS} more" if len(header) > SHOWN_COLUMNS else ""
    return f"its columns are {', '.join(header[:SHOWN_COLUMNS])}{more}"


def _other_separator(header: Sequence[str]) -> str:
    """Return what to do about a table that another mark than the comma separates; nothing where none does."""
    mark = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
    if mark is None:
        return ""
    return f"its header has {mark!r} and no comma: separate the columns by commas, and write decimals with a point"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf
