"""Values that a source gives with their types: numbers, booleans, dates, texts, and nothing.

Decides what such a value means beside the texts and numbers that a plan declares. A value means what its plain
text would mean in a CSV file: 1, 2.5 (a whole number has no point), text as it is, 2020-01-31. Null and NaN are
missing, and so is an empty text. A boolean is `true` or `false` where the plan names either for its column, in any
case of letters, and otherwise 1 or 0. A column of numbers never becomes text on its way to a feature.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.fields import Scalar
from fedfair.tables.number_texts import EXACT, year_of
from fedfair.tables.text_table import PLAIN_NUMBERS, Columns, TextTable

if TYPE_CHECKING:
    import pandas as pd

MISSING = ""
"""The text of a value that is not there."""

_NUMBERS = frozenset({"integer", "floating", "mixed-integer-float", "decimal"})
_NONE_OF_THEM = "empty"


@dataclass(frozen=True, slots=True)
class TypedSource:
    """A table whose source gives frames of typed columns.

    Attributes:
        header: the names of all its columns.
        frames: returns its rows in frames with the columns of these names.
        where: the file, or words for another source, for faults.
    """

    header: Sequence[str]
    frames: Callable[[Collection[str]], Iterable[pd.DataFrame]]
    where: Path | str

    def blocks(self, wanted: Collection[str], spec: CsvData, numeric: Collection[str]) -> Iterator[TextTable]:
        """Yield its rows in blocks; arguments as of `table_reader.TableSource`.

        Raises:
            DataError: a column holds what has no text, such as lists.
        """
        first = 1
        for frame in self.frames(wanted):
            if len(frame):
                yield typed_table(frame, spec, self.where, first, numeric)
            first += len(frame)


def typed_table(
    frame: pd.DataFrame, spec: CsvData | None, where: Path | str, first: int = 1, numeric: Collection[str] = ()
) -> TextTable:
    """Return a frame as a table, whose rows count from `first`.

    Args:
        frame: rows (n,), its columns named by texts.
        spec: the plan's description of the table; None where there is none.
        where: what the frame is from, for faults.
        first: the number of its first row.
        numeric: columns that are used as numbers.

    Raises:
        DataError: a column of numbers holds neither numbers nor what has a text.
    """

    def text(name: str) -> NDArray[np.str_]:
        truths = ("False", "True") if spec is None else truth_words(spec, name)
        return texts_of(frame[name], truths, f"{where}, column '{name}'", "." if spec is None else spec.decimal)

    numbers = {} if spec is None else typed_numbers(frame, numeric, spec, where)
    lines = np.arange(first, first + len(frame))
    return TextTable(where, Columns(list(frame.columns), text), lines, "row", numbers, has_nulls=True)


def truth_words(spec: CsvData, column: str) -> tuple[str, str]:
    """Return what false and true are called in a column: as the plan writes them, otherwise 0 and 1."""
    words = {False: "0", True: "1"}
    for value in reversed(tuple(_declared(spec, column))):
        if isinstance(value, bool):
            words[value] = str(value).lower()
        elif isinstance(value, str) and value.lower() in {"true", "false"}:
            words[value.lower() == "true"] = value
    return words[False], words[True]


def _declared(spec: CsvData, column: str) -> Iterator[Scalar]:
    """Yield every value that the plan names for a column."""
    if column == spec.label:
        for values in spec.label_classes or ():
            yield from values
    for named in (spec.categorical, spec.rows, spec.missing_values_of):
        yield from named.get(column, ())


def typed_numbers(
    frame: pd.DataFrame, columns: Collection[str], spec: CsvData, where: object
) -> dict[str, NDArray[np.float64]]:
    """Return those of the columns that hold numbers, or the dates that the plan declares, float64 (n,) each.

    Args:
        frame: the block.
        columns: that are used as numbers; each is in the frame.
        spec: the plan's description of the table.
        where: what the block is from, for faults.

    Raises:
        DataError: a column holds neither numbers nor what has a text.
    """
    found = {}
    for name in columns:
        column = frame[name]
        numbers = years_of(column) if name in spec.dates else numbers_of(column, f"{where}, column '{name}'")
        if numbers is not None:
            found[name] = numbers
    return found


def numbers_of(values: pd.Series, where: str) -> NDArray[np.float64] | None:
    """Return a column of numbers or booleans, float64 (n,), NaN where there is none; None where it has texts.

    Args:
        values: the column.
        where: what it is, for faults.

    Raises:
        DataError: it holds dates, bytes, or values that are neither numbers nor texts.
    """
    import pandas as pd  # only who reads a table waits for it

    kind = values.dtype
    if pd.api.types.is_complex_dtype(kind):
        raise DataError(f"{where} holds complex numbers", "write numbers, texts or dates")
    if pd.api.types.is_bool_dtype(kind) or pd.api.types.is_numeric_dtype(kind):
        found = values.to_numpy(np.float64, na_value=np.nan)
        # As texts they are still exact, and looked at one by one.
        return None if pd.api.types.is_integer_dtype(kind) and _exceeds_exact(found) else found
    if pd.api.types.is_string_dtype(kind) and kind != np.object_:
        return None
    held = pd.api.types.infer_dtype(values, skipna=True)
    if held in _NUMBERS or held in {"boolean", _NONE_OF_THEM}:
        missing = values.isna().to_numpy(np.bool_)
        found = np.full(len(values), np.nan)
        found[~missing] = [float(value) for value in values[~missing]]
        return None if held == "integer" and _exceeds_exact(found) else found
    return None


def _exceeds_exact(numbers: NDArray[np.float64]) -> bool:
    """Return whether a number is so large that a whole one near it is no 64-bit float."""
    return bool(np.any(np.abs(numbers) >= EXACT))


def years_of(values: pd.Series) -> NDArray[np.float64] | None:
    """Return a column of dates as years, float64 (n,), NaN where there is none; None where it has others.

    A number is no date by itself: its text is read by the form that the plan declares, as 1958 by "%Y".
    """
    import pandas as pd  # only who reads a table waits for it

    places, distinct = pd.factorize(values.astype(np.object_))
    if not len(distinct) or not all(isinstance(value, dt.date) for value in distinct):
        return None
    return np.array([*(year_of(value) for value in distinct), np.nan])[places]


def texts_of(
    values: pd.Series, truths: Sequence[str] = ("false", "true"), where: str = "", decimal: str = "."
) -> NDArray[np.str_]:
    """Return a column as plain texts (n,) without surrounding blanks, empty where there is no value.

    Args:
        values: the column.
        truths: the texts of false and true.
        where: what the column is, for faults.
        decimal: the mark before the decimals of a number, as the plan's files write it.

    Raises:
        DataError: a value is of no type that has a text, such as bytes or a list.
    """
    import pandas as pd  # only who reads a table waits for it

    if values.dtype == np.object_ and pd.api.types.infer_dtype(values, skipna=True).startswith("mixed"):
        # Each by itself: to Python, 1 equals True.
        missing = values.isna().to_numpy(np.bool_)
        each = [plain_text(value, truths, where, decimal) for value in values[~missing]]
        found = np.full(len(values), MISSING, np.array([*each, MISSING]).dtype)
        found[~missing] = each
        return np.strings.strip(found)
    try:
        places, distinct = pd.factorize(values)
    except TypeError as error:
        raise _no_value(where, next((value for value in values if not _is_hashable(value)), error)) from error
    # The last text is that of the place -1, which a missing value has.
    texts = [plain_text(value, truths, where, decimal) for value in distinct]
    return np.strings.strip(np.array([*texts, MISSING], np.str_))[places]


def plain_text(  # noqa: PLR0911 - one return for each type
    value: object, truths: Sequence[str] = ("false", "true"), where: str = "", decimal: str = "."
) -> str:
    """Return the text that a value would have in a CSV file.

    Raises:
        DataError: it is of no type that has a text.
    """
    match value:
        case str():
            return value
        case bool() | np.bool_():
            return truths[bool(value)]
        case int() | np.integer() | uuid.UUID():
            return str(value)
        case float() | np.floating():
            # Through 64 bits, whose shortest text reads back exactly.
            return str(float(value)).removesuffix(".0").replace(".", decimal)
        case Decimal():
            return _decimal_text(value).replace(".", decimal)
        case dt.datetime():  # a time stamp of pandas too
            return _moment_text(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case np.datetime64():
            return str(value)
    raise _no_value(where, value)


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        return str(float(value))
    text = format(value, "f")
    return text.rstrip("0").removesuffix(".") if "." in text else text


def _moment_text(value: dt.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    # A date that a source keeps as a moment has no time of its own.
    return value.date().isoformat() if value.time() == dt.time() else value.isoformat(" ")


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _no_value(where: str, value: object) -> DataError:
    kinds = {"ndarray": "lists", "list": "lists", "dict": "records", "bytes": "bytes", "tuple": "lists"}
    name = type(value).__name__
    return DataError(
        f"{where} holds {kinds.get(name, f'values of type {name}')}, not one value in each row",
        "name columns of numbers, texts, booleans or dates; write the parts of others as columns of their own",
    )


def marks_as_numbers(marks: Collection[object]) -> tuple[float, ...]:
    """Return those of the values that mean a missing one which are numbers, as numbers; NaN is none."""
    numbers = (PLAIN_NUMBERS.number(str(mark)) for mark in marks if not isinstance(mark, bool))
    return tuple(number for number in numbers if number is not None and not math.isnan(number))
