"""A table looked over once, column by column, before anybody has said what it means.

Decides how a file of unknown form is read: its separator, comment lines, and whether its first line names the
columns. Nothing here interprets a value; `csv_draft.py` does, from the counts.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedfair.errors import DataError
from fedfair.tables.file_kinds import NUL, READ_ERRORS, guessed_encoding, is_parquet, open_binary, refuse_workbook
from fedfair.tables.number_texts import FORMS, NumberForm
from fedfair.tables.text_file import BlankReader, TableForm, TextFile
from fedfair.tables.text_table import BLANKS, SEPARATORS

MAX_DISTINCT = 100_000
"""Different texts of a column that are counted one by one; a column of more is known by its kind alone."""

SNIFFED_LINES = 200
MARKS_OF_COMMENTS = ("#", "|", "%")
PLAIN = FORMS[0]
MISSING = frozenset(
    ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", ".", "-", "--", "#N/A")
)
"""Texts that usually mean that there is no value."""


@dataclass
class SurveyedColumn:
    """The counts of one column.

    Attributes:
        name: from the first line, or made up.
        counts: how often each text occurs; of a wide column, those of its first part.
        rows: records that were counted.
        is_wide: whether there are more texts than are counted.
        forms: of a wide column, the forms of numbers that all its texts have, the missing ones aside.
    """

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    is_wide: bool = False
    forms: tuple[NumberForm, ...] = FORMS

    def add(self, texts: Sequence[str]) -> None:
        """Count the texts of some records."""
        self.rows += len(texts)
        if not self.is_wide:
            self.counts.update(texts)
            self.is_wide = len(self.counts) > MAX_DISTINCT
            if self.is_wide:
                self._narrow(self.present)
        else:
            self._narrow([text for text in texts if text not in MISSING])

    def _narrow(self, texts: Sequence[str]) -> None:
        self.forms = tuple(form for form in self.forms if all(map(form.fits, texts)))

    def has_numbers(self, form: NumberForm) -> bool:
        """Return whether all texts but the missing ones are numbers of a form."""
        return form in self.forms if self.is_wide else all(map(form.fits, self.present))

    @property
    def present(self) -> list[str]:
        """Return the counted texts that are values."""
        return [text for text in self.counts if text not in MISSING]

    @property
    def missing(self) -> list[str]:
        """Return the texts that mean a missing value, as they occur."""
        return [text for text in self.counts if text in MISSING]

    @property
    def is_distinct(self) -> bool:
        """Return whether no two records have one value; of a wide column, as far as it was counted."""
        return all(self.counts[text] == 1 for text in self.present)


@dataclass(frozen=True, slots=True)
class CsvSurvey:
    """A table, looked over.

    Attributes:
        encoding: of the text; utf-8 where there is none.
        separator: between two fields; a comma where the file is no text.
        comment: what a line begins with that is no record; None where no line does.
        has_header: whether the first line names the columns.
        columns: in the file's order.
        records: how many there are.
    """

    encoding: str
    separator: str
    comment: str | None
    has_header: bool
    columns: tuple[SurveyedColumn, ...]
    records: int


def survey_csv(path: Path) -> CsvSurvey:
    """Look a table over.

    Raises:
        DataError: the file cannot be read, is empty, or is no table of at least two columns.
    """
    if is_parquet(path):
        return _surveyed_parquet(path)
    refuse_workbook(path)
    encoding = guessed_encoding(path) or "utf-8"
    first = _first_lines(path, "utf-8-sig" if encoding == "utf-8" else encoding)
    comment = _comment(first)
    lines = [line for line in first if comment is None or not line.startswith(comment)]
    separator = _separator(path, lines)
    width = next(len(row) for row in _rows(lines, separator) if row)
    # Whether line 1 names the columns is known at the end, so it is read as a record.
    form = TableForm(
        [f"{NUL}{place}" for place in range(width)], separator, comment, encoding=encoding, drafted=True
    )
    columns, has_header, records = _surveyed(path, TextFile(path, form))
    return CsvSurvey(encoding, separator, comment, has_header, columns, records)


def _first_lines(path: Path, codec: str) -> list[str]:
    try:
        with io.TextIOWrapper(open_binary(path), encoding=codec, newline="") as file:
            first = list(itertools.islice(file, SNIFFED_LINES))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}", "name a CSV file, plain or gzip"
        ) from error
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read as a table: {error}", "write it as UTF-8 text, one record on each line"
        ) from error
    if not any(line.strip() for line in first):
        raise DataError(f"{path} is empty", "name a file with a header and records")
    return first


def _rows(lines: Sequence[str], separator: str) -> Iterator[list[str]]:
    """Return the rows of the first lines, of which the last may be cut within a quoted field."""
    if separator == BLANKS:
        return BlankReader(iter(lines))
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)


def _comment(lines: Sequence[str]) -> str | None:
    """Return the mark of a first line that is no record: it has other fields than the line after it."""
    mark = lines[0][:1]
    if mark not in MARKS_OF_COMMENTS or len(lines) < 2 or lines[1].startswith(mark):
        return None
    alike = any(lines[0].count(one) == lines[1].count(one) > 0 for one in SEPARATORS if one != mark)
    return None if alike else mark


def _separator(path: Path, lines: Sequence[str]) -> str:
    """Return the mark that divides the first lines into the most fields, equally many in each."""
    # A mark that divides every line alike, the header too, goes before one that stands in most of them.
    found: dict[str, tuple[bool, int]] = {}
    for mark in (mark for mark in SEPARATORS if mark != BLANKS):
        try:
            rows = [row for row in _rows(lines, mark) if row]
        except csv.Error:
            continue
        widths = Counter(len(row) for row in rows)
        width, times = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and times >= 0.9 * len(rows):
            found[mark] = (times == len(rows), width)
    if not any(is_even for is_even, _ in found.values()) and _are_between_blanks(lines):
        return BLANKS
    if not found:
        marks = ", ".join(SEPARATORS.values())
        raise DataError(
            f"{path} has one column", f"name a table with a label and a feature, and a {marks} between fields"
        )
    return max(found, key=lambda mark: found[mark])


def _are_between_blanks(lines: Sequence[str]) -> bool:
    """Return whether runs of blanks divide all lines into equally many fields."""
    try:
        widths = {len(row) for row in _rows(lines, BLANKS) if row}
    except csv.Error:
        return False
    return len(widths) == 1 and widths != {1}


def _surveyed_parquet(path: Path) -> CsvSurvey:
    """Look a table of typed columns over, by the plain texts of its values; lists and records are left out."""
    from fedfair.tables.parquet_file import ParquetTable
    from fedfair.tables.typed_values import texts_of

    table = ParquetTable(path)
    columns = {name: SurveyedColumn(name) for name in table.flat}
    for frame in table.frames(table.flat):
        for name, column in columns.items():
            column.add(texts_of(frame[name], where=f"{path}, column '{name}'").tolist())
    if not table.rows:
        raise DataError(f"{path} has no records", "name a file with at least one record")
    return CsvSurvey("utf-8", ",", None, True, tuple(columns.values()), table.rows)


def _surveyed(path: Path, file: TextFile) -> tuple[tuple[SurveyedColumn, ...], bool, int]:
    first: list[str] = []
    columns: tuple[SurveyedColumn, ...] = ()
    for block in file.blocks(file.header):
        texts = [block.columns[name].tolist() for name in file.header]
        if not columns:
            first = [column.pop(0) for column in texts]
            columns = tuple(map(SurveyedColumn, first))
        for column, found in zip(columns, texts, strict=True):
            column.add(found)
    has_header = not _is_record(columns)
    if has_header:
        _check_header(path, first)
    else:
        for number, (column, text) in enumerate(zip(columns, first, strict=True), 1):
            column.name = f"column_{number}"
            column.add((text,))
    records = columns[0].rows
    if not records:
        raise DataError(f"{path} has a header but no records", "name a file with at least one record")
    return columns, has_header, records


def _is_record(columns: Sequence[SurveyedColumn]) -> bool:
    """Return whether the first line looks like a record: it has numbers, or texts that come again below it.

    What is taken for names goes into the plan, so a doubt counts as a record.
    """
    again = sum(column.name != "" and column.name in column.counts for column in columns)
    return any(map(_is_number, (column.name for column in columns))) or 2 * again >= len(columns)


def _is_number(text: str) -> bool:
    return any(form.fits(text) for form in FORMS)


def _check_header(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns called {twice[0]!r}", "give every column its own name")
