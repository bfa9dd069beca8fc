"""A table looked over once, column by column, before anybody has said what it means.

Decides how a file of unknown form is read: its separator, comment lines, and whether its first line names the
columns. Nothing here interprets a value; `csv_draft.py` does, from the counts.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedfair.data.reading import BLOCK_ROWS, READ_ERRORS, SEPARATORS, counted, open_binary
from fedfair.errors import DataError

MAX_DISTINCT = 100_000
"""Different texts of a column that are counted one by one; a column of more is known by its kind alone."""

SNIFFED_LINES = 200
MARKS_OF_COMMENTS = ("#", "|", "%")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
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
        others: whether, beyond the counted part, a text was neither a number nor a missing one.
    """

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    is_wide: bool = False
    others: bool = False

    def add(self, texts: Sequence[str]) -> None:
        """Count the texts of some records."""
        self.rows += len(texts)
        if not self.is_wide:
            self.counts.update(texts)
            self.is_wide = len(self.counts) > MAX_DISTINCT
        elif not self.others:
            self.others = any(text not in MISSING and NUMBER.fullmatch(text) is None for text in texts)

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
        separator: between two fields.
        comment: what a line begins with that is no record; None where no line does.
        has_header: whether the first line names the columns.
        columns: in the file's order.
        records: how many there are.
    """

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
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline="") as file:
            first = list(itertools.islice(file, SNIFFED_LINES))
            if not any(line.strip() for line in first):
                raise DataError(f"{path} is empty", "name a file with a header and records")
            comment = _comment(first)
            separator = _separator(path, [line for line in first if not _is_comment(line, comment)])
            lines = (line for line in itertools.chain(first, file) if not _is_comment(line, comment))
            reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
            rows = ([text.strip() for text in row] for row in reader if row)
            return _surveyed(path, separator, comment, rows)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}", "name a CSV file, plain or gzip"
        ) from error
    except (*READ_ERRORS, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as a table: {error}", "write it as UTF-8 text, one record on each line"
        ) from error


def _is_comment(line: str, comment: str | None) -> bool:
    return comment is not None and line.startswith(comment)


def _comment(lines: Sequence[str]) -> str | None:
    """Return the mark of a first line that is no record: it has other fields than the line after it."""
    mark = lines[0][:1]
    if mark not in MARKS_OF_COMMENTS or len(lines) < 2 or lines[1].startswith(mark):
        return None
    alike = any(lines[0].count(one) == lines[1].count(one) > 0 for one in SEPARATORS if one != mark)
    return None if alike else mark


def _separator(path: Path, lines: Sequence[str]) -> str:
    """Return the mark that divides the first lines into the most fields, equally many in each."""
    found: dict[str, int] = {}
    for mark in SEPARATORS:
        # The last line may be cut within a quoted field.
        try:
            rows = [row for row in csv.reader(lines, delimiter=mark, skipinitialspace=True) if row]
        except csv.Error:
            continue
        widths = Counter(len(row) for row in rows)
        width, times = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and times >= 0.9 * len(rows):
            found[mark] = width
    if not found:
        marks = ", ".join(SEPARATORS.values())
        raise DataError(
            f"{path} has one column", f"name a table with a label and a feature, and a {marks} between fields"
        )
    return max(found, key=lambda mark: found[mark])


def _surveyed(path: Path, separator: str, comment: str | None, rows: Iterator[list[str]]) -> CsvSurvey:
    first = next(rows)
    columns = tuple(SurveyedColumn(name) for name in first)
    records = 0
    while block := list(itertools.islice(rows, BLOCK_ROWS)):
        for place, row in enumerate(block, records + 2):
            if len(row) != len(first):
                raise DataError(
                    f"{path} record {place} has {counted(len(row), 'field')}, the first line has {len(first)}",
                    f"put a field that holds a {SEPARATORS[separator]} in double quotes",
                )
        for column, texts in zip(columns, zip(*block, strict=True), strict=True):
            column.add(texts)
        records += len(block)
    has_header = not _is_record(columns)
    if has_header:
        _check_header(path, first)
    else:
        for number, (column, text) in enumerate(zip(columns, first, strict=True), 1):
            column.name = f"column_{number}"
            column.add((text,))
        records += 1
    if not records:
        raise DataError(f"{path} has a header but no records", "name a file with at least one record")
    return CsvSurvey(separator, comment, has_header, columns, records)


def _is_record(columns: Sequence[SurveyedColumn]) -> bool:
    """Return whether the first line looks like a record: it has numbers, or texts that come again below it.

    What is taken for names goes into the plan, so a doubt counts as a record.
    """
    again = sum(column.name != "" and column.name in column.counts for column in columns)
    return any(NUMBER.fullmatch(column.name) for column in columns) or 2 * again >= len(columns)


def _check_header(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has two columns called {twice[0]!r}", "give every column its own name")
