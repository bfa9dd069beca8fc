"""Tables in text files, read in blocks so that every fault has a place.

Decides how a file is opened (plain or gzip, UTF-8 with or without a byte-order mark), which lines are records, and
that every row has a field for every column. Rows are parsed by pandas as long as they are plain
(`plain_blocks.py`), where that is asked for; from the first block on that is not, field by field, which finds the
same fields or says where the fault is. What the columns mean is the business of the sources.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.file_kinds import NUL, READ_ERRORS, encoding_fault, nul_fault, open_binary, refuse_workbook
from fedfair.tables.number_texts import IN_A_PLAN
from fedfair.tables.text_table import (
    BLANKS,
    SEPARATORS,
    TextTable,
    counted,
    other_separator,
    refuse_twice,
    require_columns,
)

BLOCK_ROWS = 1 << 16

_BLANKS, _SOME_BLANKS = re.compile(r"[ \t]+"), re.compile(r"[ \t]*")
_QUOTED, _WORD = re.compile(r'"(?:[^"]|"")*"(?=[ \t]|$)'), re.compile(r"[^ \t]+")

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
        drafted: whether nobody has stated the form, so that `columns` are as many as the first line has fields.
    """

    columns: Sequence[str] | None = None
    separator: str = ","
    comment: str | None = None
    fixed: bool = False
    encoding: str = "utf-8"
    drafted: bool = False

    @property
    def codec(self) -> str:
        """Python's name of the encoding; of UTF-8, the one that takes a byte-order mark."""
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding


COMMA_SEPARATED = TableForm()


def form_of_file(spec: CsvData, *, fixed: bool = False) -> TableForm:
    """Return how the files of a plan's table write their rows; `fixed` as of a `TableForm`."""
    return TableForm(spec.columns, spec.separator, spec.comment, fixed, spec.encoding)


class TextFile:
    """A table in a text file, whose columns are known.

    Args:
        path: the file, plain or gzip.
        form: how it writes its rows.

    Raises:
        DataError: the file is missing, damaged, not such a table, or empty.
    """

    def __init__(self, path: Path, form: TableForm = COMMA_SEPARATED) -> None:
        refuse_workbook(path)
        self._path, self._form = path, form
        self._header_lines = 0
        if form.columns is not None:
            self.header = tuple(form.columns)
            return
        with _rows(path, form) as rows:
            self.header = _header(path, rows)
            self._header_lines = rows.line_num

    def blocks(
        self, wanted: Collection[str], spec: CsvData | None = None, numeric: Collection[str] = ()
    ) -> Iterator[TextTable]:
        """Yield its rows in blocks, at least one, each of at least one row; blank lines are omitted.

        Args:
            wanted: the columns to keep.
            spec: the plan's description of the table; None leaves all numbers as texts.
            numeric: columns that are used as numbers.

        Raises:
            DataError: the file is damaged, has no record, or a row has another number of fields than the header.
        """
        count = 0
        if spec is not None:
            from fedfair.tables.plain_blocks import NotPlain, plain_blocks

            try:
                for block in plain_blocks(self._path, self.header, self._header_lines, spec, wanted, numeric):
                    count += len(block)
                    yield block
                if count:
                    return
            except NotPlain:
                pass  # from here on, the rows are read field by field
        with _rows(self._path, self._form) as rows:
            for block in self._by_field(rows, wanted, count):
                count += len(block)
                yield block
        if not count:
            found = "has a header but no records" if self._header_lines else "is empty"
            raise DataError(f"{self._path} {found}", "name a file with at least one record")

    def _by_field(self, reader: CsvReader, wanted: Collection[str], skipped: int) -> Iterator[TextTable]:
        """Yield the rows after the header and the first `skipped` ones."""
        places = {name: place for place, name in enumerate(self.header) if name in wanted}
        left = skipped + (self._header_lines > 0)
        lines: list[int] = []
        rows: list[list[str]] = []
        line = 1
        for row in reader:
            if row and left:
                left -= 1
            elif row:
                _check_row(self._path, line, row, self.header, self._form)
                lines.append(line)
                rows.append(row)
            if len(rows) == BLOCK_ROWS:
                yield _block(self._path, places, rows, lines)
                rows, lines = [], []
            line = reader.line_num + 1
        if rows:
            yield _block(self._path, places, rows, lines)


def read_table(path: Path, wanted: Collection[str] | None = None, form: TableForm = COMMA_SEPARATED) -> TextTable:
    """Return the rows of a table; blank lines are omitted.

    Args:
        path: the file, plain or gzip.
        wanted: columns that must be there, the only ones to keep; None keeps all.
        form: how the file writes its rows.

    Raises:
        DataError: the file is missing, damaged, not such a table, empty, or lacks a column.
    """
    file = TextFile(path, form)
    if wanted is not None:
        require_columns(path, file.header, wanted, fixed=form.fixed)
    blocks = list(file.blocks(file.header if wanted is None else wanted))
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return TextTable(path, columns, np.concatenate([block.lines for block in blocks]))


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


@contextmanager
def _rows(path: Path, form: TableForm) -> Iterator[CsvReader]:
    """Open a file and give its rows, an empty one for a blank line; say what a fault of it is about."""
    try:
        with io.TextIOWrapper(open_binary(path), encoding=form.codec, newline="") as file:
            lines = _numbered(path, file, form)
            yield BlankReader(lines) if form.separator == BLANKS else _csv_reader(lines, form)
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


def _block(path: Path, places: Mapping[str, int], rows: list[list[str]], lines: list[int]) -> TextTable:
    """Return rows as arrays, which take a fraction of their memory."""
    fields = list(zip(*rows, strict=True))
    columns = {name: np.strings.strip(np.array(fields[place], np.str_)) for name, place in places.items()}
    return TextTable(path, columns, np.array(lines))


def _check_row(path: Path, line: int, row: Sequence[str], header: Sequence[str], form: TableForm) -> None:
    if len(row) != len(header):
        listed = "the first line has" if form.drafted else "the columns that the plan lists are"
        expected = "the header has" if form.columns is None else listed
        raise DataError(
            f"{path} line {line} has {counted(len(row), 'field')}, {expected} {len(header)}",
            other_separator(header if form.columns is None else row, fixed=form.fixed)
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


def _header(path: Path, reader: CsvReader) -> tuple[str, ...]:
    """Return the names in the first line that is no comment."""
    row = next((row for row in reader if row), None)
    if row is None:
        raise DataError(f"{path} is empty", "name a file with a header and at least one record")
    names = [name.strip() for name in row]
    if not any(names):
        raise DataError(f"{path} has no header in its first line", "name the columns in the first line")
    refuse_twice(f"{path} has", names)
    return tuple(names)


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
