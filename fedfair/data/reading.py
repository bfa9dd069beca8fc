"""Tables in text files, read so that every fault has a place.

Decides how a file is opened (plain or gzip, UTF-8 with or without a byte-order mark), which lines are records,
that every row has a field for every column, which columns must be there, and how faults are collected: line and
column by name, the first twenty of each kind and the count of all. What the columns mean is the business of the
sources.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import json
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
BLOCK_ROWS = 1 << 16
SHOWN_COLUMNS = 40

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}

GZIP_MAGIC = b"\x1f\x8b"
READ_ERRORS = (OSError, EOFError, zlib.error)
"""Exceptions that a missing, unreadable or damaged file raises while it is read, plain or gzip."""

FOLDER_REMEDY = "name the folder of the data set: data.root in collaborator.yaml, --data in a simulation"


class CsvReader(Protocol):
    """The type that `csv.reader` returns, for which the library has no public name."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class TableForm:
    """The form of a file's rows.

    Attributes:
        columns: names of all columns, in a file without a header line; None: the first line names them.
        separator: the character between two fields; blanks after it are ignored.
        comment: what a line begins with that is no row; None: every line is one, or blank.
        fixed: whether the form is that of a saved model, which nobody can change any more.
    """

    columns: Sequence[str] | None = None
    separator: str = ","
    comment: str | None = None
    fixed: bool = False


COMMA_SEPARATED = TableForm()


@dataclass(frozen=True, slots=True)
class TextTable:
    """The rows of one file, as text without surrounding blanks.

    Attributes:
        path: the file.
        columns: texts (n,) by the column's name, in the file's order.
        lines: for every row the line of the file where it begins, from 1; int64 array (n,).
        place: what such a number counts: line, or row where there is no file.
    """

    path: Path
    columns: Mapping[str, NDArray[np.str_]]
    lines: NDArray[np.int64]
    place: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> TextTable:
        """Return the rows where `rows` (n,) is true, or those of these numbers; they keep their lines."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return TextTable(self.path, columns, self.lines[rows], self.place)


class Faults:
    """The faults of one table, kind by kind.

    Args:
        table: the table, for places and values.
    """

    def __init__(self, table: TextTable) -> None:
        self._table = table
        self._kinds: list[str] = []

    def add(self, column: str, fault: str, wrong: NDArray[np.bool_], remedy: str) -> None:
        """Note every row where `wrong` (n,) is true; nothing where it never is."""
        rows = np.flatnonzero(wrong)
        if not len(rows):
            return
        values = self._table.columns[column]
        place = self._table.place
        shown = [f"{place} {self._table.lines[row]}: '{values[row]}'" for row in rows[:SHOWN_FAULTS]]
        more = f" and {len(rows) - SHOWN_FAULTS} more" if len(rows) > SHOWN_FAULTS else ""
        self._kinds.append(
            f"column '{column}': {fault} in {counted(len(rows), 'row')} ({', '.join(shown)}{more}); {remedy}"
        )

    def refuse(self) -> None:
        """Raise one DataError with everything that was noted; return where there is nothing."""
        if self._kinds:
            raise DataError("\n  ".join([f"{self._table.path} cannot be used as it is:", *self._kinds]))


def read_table(path: Path, wanted: Collection[str] | None = None, form: TableForm = COMMA_SEPARATED) -> TextTable:
    """Return the rows of a table; blank lines are omitted.

    Args:
        path: the file, plain or gzip.
        wanted: columns that must be there, the only ones to keep; None keeps all.
        form: how the file writes its rows.

    Raises:
        DataError: the file is missing, damaged, not such a table, empty, or lacks a column.
    """
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline="") as file:
            lines = file if form.comment is None else _without_comments(file, form.comment)
            reader = csv.reader(lines, delimiter=form.separator, skipinitialspace=True, strict=True)
            return _table(path, reader, form, wanted)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", "check the path in the plan or in collaborator.yaml"
        ) from error
    except (*READ_ERRORS, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as a {SEPARATORS[form.separator]}-separated table: {error}",
            f"write it as UTF-8 text, one record on each line, with a {SEPARATORS[form.separator]} between fields",
        ) from error


def numbers(
    table: TextTable,
    column: str,
    missing: NDArray[np.bool_],
    faults: Faults,
    remedy: str = "correct or declare as missing",
) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where `missing` (n,) is true; what is not a finite number is a fault."""
    texts = np.where(missing, "nan", table.columns[column])
    try:
        values = texts.astype(np.float64)
    except ValueError:
        values = np.array([_number(text) for text in texts])
    faults.add(column, "not a finite number", ~np.isfinite(values) & ~missing, remedy)
    return values


def require_columns(path: Path, header: Collection[str], wanted: Iterable[str], *, fixed: bool = False) -> None:
    """Raise a DataError that names every column that is not there, with the one that was probably meant.

    Args:
        path: the file.
        header: its columns.
        wanted: those that must be there.
        fixed: whether the form of the file is that of a saved model.
    """
    missing = [name for name in wanted if name not in header]
    if not missing:
        return
    close = {name: difflib.get_close_matches(name, header, 1) for name in missing}
    named = ", ".join(
        f"'{name}'" + (f" (did you mean '{close[name][0]}'?)" if close[name] else "") for name in missing
    )
    raise DataError(f"{path} has no column {named}", _header_remedy(list(header), fixed=fixed))


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


def _without_comments(lines: Iterable[str], comment: str) -> Iterator[str]:
    """Yield every line, a blank one for a comment, so that the lines after it keep their numbers."""
    return ("\n" if line.startswith(comment) else line for line in lines)


def _table(path: Path, reader: CsvReader, form: TableForm, wanted: Collection[str] | None) -> TextTable:
    header = _header(path, reader) if form.columns is None else list(form.columns)
    if wanted is not None:
        require_columns(path, header, wanted, fixed=form.fixed)
    places = {name: place for place, name in enumerate(header) if wanted is None or name in wanted}
    blocks: dict[str, list[NDArray[np.str_]]] = {name: [] for name in places}
    lines: list[int] = []
    rows: list[list[str]] = []
    line = reader.line_num + 1
    for row in reader:
        if row:
            _check_row(path, line, row, header, form)
            lines.append(line)
            rows.append(row)
        if len(rows) == BLOCK_ROWS:
            _add_block(blocks, places, rows)
        line = reader.line_num + 1
    if not lines:
        found = "is empty" if form.columns is not None else "has a header but no records"
        raise DataError(f"{path} {found}", "name a file with at least one record")
    _add_block(blocks, places, rows)
    return TextTable(path, {name: np.concatenate(column) for name, column in blocks.items()}, np.array(lines))


def _add_block(
    blocks: Mapping[str, list[NDArray[np.str_]]], places: Mapping[str, int], rows: list[list[str]]
) -> None:
    """Move rows into arrays, which take a fraction of their memory."""
    fields = list(zip(*rows, strict=True))
    for name, place in places.items():
        blocks[name].append(np.strings.strip(np.array(fields[place] if fields else (), np.str_)))
    rows.clear()


def _check_row(path: Path, line: int, row: Sequence[str], header: Sequence[str], form: TableForm) -> None:
    if len(row) != len(header):
        expected = "the header has" if form.columns is None else "the columns that the plan lists are"
        raise DataError(
            f"{path} line {line} has {counted(len(row), 'field')}, {expected} {len(header)}",
            _other_separator(header if form.columns is None else row, fixed=form.fixed)
            or f"put a field that holds a {SEPARATORS[form.separator]} in double quotes, and nothing between two "
            f"{SEPARATORS[form.separator]}s for no value",
        )
    if form.columns is not None and [field.strip() for field in row] == list(form.columns):
        raise DataError(
            f"{path} line {line} names the columns, as the plan does",
            "remove `columns` from the plan where the files have a header line",
        )


def _header(path: Path, reader: CsvReader) -> list[str]:
    """Return the names in the first line that is no comment."""
    row = next((row for row in reader if row), [])
    names = [name.strip() for name in row]
    if not any(names):
        raise DataError(f"{path} has no header in its first line", "name the columns in the first line")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns called '{twice[0]}'", "give every column its own name")
    return names


def _header_remedy(header: Sequence[str], *, fixed: bool) -> str:
    separator = _other_separator(header, fixed=fixed)
    if separator:
        return separator
    more = f" and {len(header) - SHOWN_COLUMNS} more" if len(header) > SHOWN_COLUMNS else ""
    return f"its columns are {', '.join(header[:SHOWN_COLUMNS])}{more}"


def _other_separator(fields: Sequence[str], *, fixed: bool) -> str:
    """Return what to do about a line that another mark separates than was expected; nothing where none does."""
    mark = next((mark for mark in SEPARATORS if len(fields) == 1 and mark in fields[0]), None)
    if mark is None:
        return ""
    if fixed:
        return f"{mark!r} separates its fields: write the file as the model's plan has it, with points in decimals"
    commas = "" if mark == "," else "separate the columns by commas, or "
    return (
        f"{mark!r} separates its fields: {commas}state separator: {json.dumps(mark)} under csv in the plan, and "
        "write decimals with a point"
    )


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as 1 row or 2 rows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf
