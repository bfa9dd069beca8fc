"""Tables in text files, read so that every fault has a place.

Decides how a file is opened (plain or gzip, UTF-8 with or without a byte-order mark), which lines are records,
that every row has a field for every column, which columns must be there, and how faults are collected: line and
column by name, the first twenty of each kind and the count of all. What the columns mean is the business of the
sources.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.likeness import meant
from fedfair.tables.file_kinds import NUL, READ_ERRORS, encoding_fault, nul_fault, open_binary, refuse_workbook
from fedfair.tables.number_texts import EXACT, IN_A_PLAN, NumberForm, what_was_seen

SHOWN_FAULTS = 20
SHOWN_OF_ONE = 3
LOOKED_AT = 1000
"""Of each kind of fault so many places are shown, of one wrong text so many, among the first so many rows."""

SHOWN_CHARACTERS = 60
BLOCK_ROWS = 1 << 16
SHOWN_COLUMNS = 40

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "blank"}
BLANKS = " "
"""The separator that stands for any run of blanks and tabs."""

_BLANKS, _SOME_BLANKS = re.compile(r"[ \t]+"), re.compile(r"[ \t]*")
_QUOTED, _WORD = re.compile(r'"(?:[^"]|"")*"(?=[ \t]|$)'), re.compile(r"[^ \t]+")

PLAIN_NUMBERS = NumberForm()

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
        separator: the character between two fields, blanks after it being ignored; or BLANKS.
        comment: what a line begins with that is no row; None: every line is one, or blank.
        fixed: whether the form is that of a saved model, which nobody can change any more.
        encoding: of its characters; a byte-order mark may precede those of UTF-8.
    """

    columns: Sequence[str] | None = None
    separator: str = ","
    comment: str | None = None
    fixed: bool = False
    encoding: str = "utf-8"

    @property
    def codec(self) -> str:
        """Python's name of the encoding; of UTF-8, the one that takes a byte-order mark."""
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding


COMMA_SEPARATED = TableForm()


@dataclass(frozen=True, slots=True)
class TextTable:
    """The rows of one file, as text without surrounding blanks.

    Attributes:
        path: the file, or the words for another source.
        columns: texts (n,) by the column's name, in the file's order.
        lines: for every row the line of the file where it begins, from 1; int64 array (n,).
        place: what such a number counts: line, or row where there is no file.
        numbers: columns that the source itself gives as numbers, float64 (n,), NaN where there is none.
        has_nulls: whether the source tells a missing value from a text, so that one without is missing whatever
            texts the plan lists; its text is empty.
    """

    path: Path | str
    columns: Mapping[str, NDArray[np.str_]] = field(repr=False)
    lines: NDArray[np.int64] = field(repr=False)
    place: str = "line"
    numbers: Mapping[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    has_nulls: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> TextTable:
        """Return the rows where `rows` (n,) is true, or those of these numbers; they keep their lines."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        numbers = {name: column[rows] for name, column in self.numbers.items()}
        return TextTable(self.path, columns, self.lines[rows], self.place, numbers, self.has_nulls)


@dataclass
class FaultKind:
    """One kind of fault in one column.

    Attributes:
        remedy: what to do about it.
        shown: place and value of the first rows that have it.
        count: of all of them.
        times: how often a value is among those that are shown.
    """

    remedy: str
    shown: list[str] = field(default_factory=list)
    count: int = 0
    times: dict[str, int] = field(default_factory=dict)


_NO_MEASUREMENT = (
    "it is probably a code and no measurement: leave the column out or declare it under categorical; a real "
    "measurement in smaller units is exact"
)


class Faults:
    """The faults of one table, kind by kind.

    Args:
        table: the table, for places and values.
        kinds: what was found in earlier parts of the same table, to go on with.
    """

    def __init__(self, table: TextTable, kinds: dict[tuple[str, str], FaultKind] | None = None) -> None:
        self._table = table
        self._kinds = {} if kinds is None else kinds

    def add(self, column: str, fault: str, wrong: NDArray[np.bool_], remedy: str) -> None:
        """Note every row where `wrong` (n,) is true; nothing where it never is."""
        rows = np.flatnonzero(wrong)
        if not len(rows):
            return
        kind = self._kinds.setdefault((column, fault), FaultKind(remedy))
        values, place = self._table.columns[column], self._table.place
        for row in rows[:LOOKED_AT]:
            value = str(values[row])
            # The places of a gap are looked for one by one; a wrong text is the same everywhere.
            if len(kind.shown) < SHOWN_FAULTS and (not value or kind.times.get(value, 0) < SHOWN_OF_ONE):
                kind.times[value] = kind.times.get(value, 0) + 1
                kind.shown.append(f"{place} {self._table.lines[row]}: {_in_quotes(value)}")
        kind.count += len(rows)

    def refuse(self) -> None:
        """Raise one DataError with everything that was noted; return where there is nothing."""
        refuse_kinds(self._table.path, self._kinds)


def _in_quotes(value: str) -> str:
    """Return a value on one line; a long one is cut, and its length told."""
    line = value.replace("\r", "\\r").replace("\n", "\\n")
    if len(line) <= SHOWN_CHARACTERS:
        return f"'{line}'"
    return f"'{line[:SHOWN_CHARACTERS]}...' ({counted(len(value), 'character')})"


def refuse_kinds(path: Path | str, kinds: Mapping[tuple[str, str], FaultKind]) -> None:
    """Raise one DataError with every fault that was found in a table; return where there is none."""
    fault = faults_of(path, kinds)
    if fault is not None:
        raise fault


def faults_of(path: Path | str, kinds: Mapping[tuple[str, str], FaultKind]) -> DataError | None:
    """Return one DataError with every fault that was found in a table; None where there is none."""
    if not kinds:
        return None
    told = []
    for (column, fault), kind in kinds.items():
        more = f" and {kind.count - len(kind.shown)} more" if kind.count > len(kind.shown) else ""
        told.append(
            f"column '{column}': {fault} in {counted(kind.count, 'row')} ({', '.join(kind.shown)}{more}); "
            f"{kind.remedy}"
        )
    return DataError("\n  ".join([f"{path} cannot be used as it is:", *told]))


def read_table(path: Path, wanted: Collection[str] | None = None, form: TableForm = COMMA_SEPARATED) -> TextTable:
    """Return the rows of a table; blank lines are omitted.

    Args:
        path: the file, plain or gzip.
        wanted: columns that must be there, the only ones to keep; None keeps all.
        form: how the file writes its rows.

    Raises:
        DataError: the file is missing, damaged, not such a table, empty, or lacks a column.
    """
    blocks = list(table_blocks(path, wanted, form))
    names = blocks[0].columns
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in names}
    return TextTable(path, columns, np.concatenate([block.lines for block in blocks]))


def table_blocks(
    path: Path, wanted: Collection[str] | None = None, form: TableForm = COMMA_SEPARATED
) -> Iterator[TextTable]:
    """Yield the rows of a table in blocks of at most BLOCK_ROWS, at least one block, each of at least one row.

    Args:
        path: the file, plain or gzip.
        wanted: columns that must be there, the only ones to keep; None keeps all.
        form: how the file writes its rows.

    Raises:
        DataError: as for `read_table`.
    """
    refuse_workbook(path)
    try:
        with io.TextIOWrapper(open_binary(path), encoding=form.codec, newline="") as file:
            lines = _numbered(path, file, form)
            reader = BlankReader(lines) if form.separator == BLANKS else _csv_reader(lines, form)
            yield from _blocks(path, reader, form, wanted)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", "check the path in the plan or in collaborator.yaml"
        ) from error
    except UnicodeError as error:
        raise encoding_fault(path, form.encoding, fixed=form.fixed) from error
    except (*READ_ERRORS, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as a {SEPARATORS[form.separator]}-separated table: {error}",
            f"write it as {form.encoding.upper()} text, one record on each line, with a "
            f"{SEPARATORS[form.separator]} between fields",
        ) from error


def numbers(
    table: TextTable,
    column: str,
    missing: NDArray[np.bool_],
    faults: Faults,
    remedy: str = "correct or declare as missing",
    form: NumberForm = PLAIN_NUMBERS,
    *,
    fixed: bool = False,
) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where `missing` (n,) is true; what is not a finite number is a fault.

    Args:
        table: the table.
        column: one of its columns.
        missing: whether a row has no value, (n,).
        faults: takes every row with a text that is no number.
        remedy: what to do about such texts if they look like nothing that is known.
        form: how the numbers are written.
        fixed: whether the form is that of a saved model, which nobody can change any more.
    """
    if column in table.numbers:
        values = np.where(missing, np.nan, table.numbers[column])
        faults.add(column, "not a finite number", ~np.isfinite(values) & ~missing, remedy)
        return values
    texts = table.columns[column]
    values = np.where(missing, np.nan, form.numbers(np.where(missing, "0", texts)))
    wrong = ~np.isfinite(values) & ~missing
    if wrong.any():
        remedy = what_was_seen(texts[wrong][:SHOWN_FAULTS].tolist(), column, form, fixed=fixed) or remedy
    rounded = np.zeros(len(values), np.bool_)
    for row in np.flatnonzero(np.isfinite(values) & (np.abs(values) >= EXACT)):
        rounded[row] = form.rounds(str(texts[row]), float(values[row]))
    faults.add(column, "a whole number beyond 2^53, which would be rounded", rounded, _NO_MEASUREMENT)
    what = "not a finite number" if form.date is None else f"not a date of the form {form.date}"
    faults.add(column, what, wrong, remedy)
    return values


def require_columns(
    path: Path | str, header: Collection[str], wanted: Iterable[str], *, fixed: bool = False
) -> None:
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
    close = {name: meant(name, header) for name in missing}
    named = ", ".join(
        f"'{name}'" + (f" (did you mean '{close[name]}'?)" if close[name] else "") for name in missing
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


def _numbered(path: Path, lines: Iterable[str], form: TableForm) -> Iterator[str]:
    """Yield every line, a blank one for a comment, so that the lines after it keep their numbers.

    Raises:
        DataError: a line holds a NUL character, which is in no text.
    """
    for number, line in enumerate(lines, 1):
        if NUL in line:
            raise nul_fault(path, number, line.index(NUL) + 1, form.encoding)
        yield "\n" if form.comment is not None and line.startswith(form.comment) else line


def _csv_reader(lines: Iterator[str], form: TableForm) -> CsvReader:
    return csv.reader(lines, delimiter=form.separator, skipinitialspace=True, strict=True)


class BlankReader:
    """Reads rows whose fields any run of blanks and tabs separates; a field with blanks is in double quotes.

    Args:
        lines: of the file.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.line_num = 0

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        """Return the fields of the next line, none of a blank line; raises csv.Error where quotes do not match."""
        line = next(self._lines).strip(" \t\r\n")
        self.line_num += 1
        if '"' not in line:
            return _BLANKS.split(line) if line else []
        fields, place = [], 0
        while place < len(line):
            found = _QUOTED.match(line, place) if line[place] == '"' else _WORD.match(line, place)
            if found is None:
                raise csv.Error(f"line {self.line_num}: a quote is not closed, or no blank follows it")
            field = found[0]
            fields.append(field[1:-1].replace('""', '"') if field.startswith('"') else field)
            place = found.end() + len(cast("re.Match[str]", _SOME_BLANKS.match(line, found.end()))[0])
        return fields


def _blocks(path: Path, reader: CsvReader, form: TableForm, wanted: Collection[str] | None) -> Iterator[TextTable]:
    header = _header(path, reader) if form.columns is None else list(form.columns)
    if wanted is not None:
        require_columns(path, header, wanted, fixed=form.fixed)
    places = {name: place for place, name in enumerate(header) if wanted is None or name in wanted}
    lines: list[int] = []
    rows: list[list[str]] = []
    is_empty, line = True, reader.line_num + 1
    for row in reader:
        if row:
            _check_row(path, line, row, header, form)
            lines.append(line)
            rows.append(row)
        if len(rows) == BLOCK_ROWS:
            yield _block(path, places, rows, lines)
            is_empty, rows, lines = False, [], []
        line = reader.line_num + 1
    if rows:
        yield _block(path, places, rows, lines)
    elif is_empty:
        found = "is empty" if form.columns is not None else "has a header but no records"
        raise DataError(f"{path} {found}", "name a file with at least one record")


def _block(path: Path, places: Mapping[str, int], rows: list[list[str]], lines: list[int]) -> TextTable:
    """Return rows as arrays, which take a fraction of their memory."""
    fields = list(zip(*rows, strict=True))
    columns = {name: np.strings.strip(np.array(fields[place], np.str_)) for name, place in places.items()}
    return TextTable(path, columns, np.array(lines))


def _check_row(path: Path, line: int, row: Sequence[str], header: Sequence[str], form: TableForm) -> None:
    if len(row) != len(header):
        expected = "the header has" if form.columns is None else "the columns that the plan lists are"
        raise DataError(
            f"{path} line {line} has {counted(len(row), 'field')}, {expected} {len(header)}",
            _other_separator(header if form.columns is None else row, fixed=form.fixed)
            or _decimal_commas(row, header, form)
            or f"put a field that holds a {SEPARATORS[form.separator]} in double quotes, and "
            + (
                "a mark such as NA for no value"
                if form.separator == BLANKS
                else f"nothing between two {SEPARATORS[form.separator]}s for no value"
            ),
        )
    if form.columns is not None and [field.strip() for field in row] == list(form.columns):
        raise DataError(
            f"{path} line {line} names the columns, as the plan does",
            "remove `columns` from the plan where the files have a header line",
        )


def _header(path: Path, reader: CsvReader) -> list[str]:
    """Return the names in the first line that is no comment."""
    row = next((row for row in reader if row), None)
    if row is None:
        raise DataError(f"{path} is empty", "name a file with a header and at least one record")
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
    seen = "blanks separate" if mark == BLANKS else f"{mark!r} separates"
    if fixed:
        return f"{seen} its fields: give --format '{{separator: {json.dumps(mark)}}}'"
    commas = "" if mark == "," else "separate the columns by commas, or "
    decimal = ', and decimal: "," if its numbers have decimal commas' if mark in {";", "\t", BLANKS} else ""
    return f"{seen} its fields: {commas}state separator: {json.dumps(mark)} {IN_A_PLAN}{decimal}"


def _decimal_commas(row: Sequence[str], header: Sequence[str], form: TableForm) -> str:
    """Return what to do about a row with more fields than columns, if decimal commas make them; else nothing."""
    if form.separator != "," or len(row) <= len(header):
        return ""
    whole = sum(text.strip().lstrip("+-").isdigit() for text in row)
    if whole < 2 * (len(row) - len(header)):
        return ""
    return (
        'where commas are its decimal marks, separate fields by semicolons, and state separator: ";" and decimal: '
        f'"," {IN_A_PLAN}; otherwise put a field that holds a comma in double quotes'
    )


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as 1 row or 2 rows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
