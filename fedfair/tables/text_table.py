"""One block of a table as every source gives it: columns of texts and numbers, and the place of each row.

Decides how the faults of a table are collected over its blocks, row and column by name, the first twenty of each
kind and the count of all, and which texts are numbers that can be used. A source makes a text only when somebody
asks for it. What the columns mean is the business of `table_reader.py`.
"""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.likeness import meant
from fedfair.tables.number_texts import EXACT, IN_A_PLAN, NumberForm, what_was_seen

SHOWN_FAULTS = 20
SHOWN_OF_ONE = 3
LOOKED_AT = 1000
"""Of each kind of fault so many places are shown, of one wrong text so many, among the first so many rows."""

SHOWN_CHARACTERS = 60
SHOWN_COLUMNS = 40

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "blank"}
BLANKS = " "
"""The separator that stands for any run of blanks and tabs."""

PLAIN_NUMBERS = NumberForm()


_UNMADE = np.empty(0, np.str_)


class Columns(UserDict[str, NDArray[np.str_]]):
    """The columns of a block as texts (n,), each made when somebody first asks for it.

    Args:
        names: of the columns, in their order.
        text: returns the texts of the column of a name.
    """

    def __init__(self, names: Collection[str], text: Callable[[str], NDArray[np.str_]]) -> None:
        super().__init__(dict.fromkeys(names, _UNMADE))
        self._text = text

    def __getitem__(self, name: str) -> NDArray[np.str_]:
        if self.data[name] is _UNMADE:
            self.data[name] = self._text(name)
        return self.data[name]


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of one source: columns of texts without surrounding blanks, and what it gives as numbers.

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
        columns = Columns(self.columns, lambda name: self.columns[name][rows])
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
        kinds: what was found in earlier parts of the same table, to continue with.
        fixed: whether the table is for a saved model, whose form and classes nobody can change any more.
    """

    def __init__(
        self, table: TextTable, kinds: dict[tuple[str, str], FaultKind] | None = None, *, fixed: bool = False
    ) -> None:
        self._table, self.fixed = table, fixed
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
        fault = faults_of(self._table.path, self._kinds)
        if fault is not None:
            raise fault


def _in_quotes(value: str) -> str:
    """Return a value on one line; a long one is cut, and its length told."""
    line = value.replace("\r", "\\r").replace("\n", "\\n")
    if len(line) <= SHOWN_CHARACTERS:
        return f"'{line}'"
    return f"'{line[:SHOWN_CHARACTERS]}...' ({counted(len(value), 'character')})"


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


def numbers(
    table: TextTable,
    column: str,
    missing: NDArray[np.bool_],
    faults: Faults,
    remedy: str = "correct or declare as missing",
    form: NumberForm = PLAIN_NUMBERS,
) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where `missing` (n,) is true; what is not a finite number is a fault.

    Args:
        table: the table.
        column: one of its columns.
        missing: whether a row has no value, (n,).
        faults: takes every row with a text that is no number.
        remedy: what to do about such texts if they look like nothing that is known.
        form: how the numbers are written.
    """
    if column in table.numbers:
        values = np.where(missing, np.nan, table.numbers[column])
        faults.add(column, "not a finite number", ~np.isfinite(values) & ~missing, remedy)
        return values
    texts = table.columns[column]
    values = np.where(missing, np.nan, form.numbers(np.where(missing, "0", texts)))
    wrong = ~np.isfinite(values) & ~missing
    if wrong.any():
        remedy = what_was_seen(texts[wrong][:SHOWN_FAULTS].tolist(), column, form, fixed=faults.fixed) or remedy
    rounded = np.zeros(len(values), np.bool_)
    for row in np.flatnonzero(np.isfinite(values) & (np.abs(values) >= EXACT)):
        rounded[row] = form.rounds(str(texts[row]), float(values[row]))
    faults.add(column, "a whole number beyond 2^53, which would be rounded", rounded, _NO_MEASUREMENT)
    what = "not a finite number" if form.date is None else f"not a date of the form {form.date}"
    faults.add(column, what, wrong, remedy)
    return values


def refuse_twice(found: str, names: Sequence[str], remedy: str = "give every column its own name") -> None:
    """Refuse a table in which two columns share a name.

    Args:
        found: which table has them, the beginning of the fault.
        names: of its columns.
        remedy: what is to be done.
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{found} two columns called '{twice[0]}'", remedy)


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


def _header_remedy(header: Sequence[str], *, fixed: bool) -> str:
    separator = other_separator(header, fixed=fixed)
    if separator:
        return separator
    return f"its columns are {listed(header, SHOWN_COLUMNS)}"


def other_separator(fields: Sequence[str], *, fixed: bool) -> str:
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


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as 1 row or 2 rows."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(texts: Sequence[str], most: int) -> str:
    """Return texts in one line, and how many there are beyond `most`: "a, b and 3 more"."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
