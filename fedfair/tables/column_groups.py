"""Groups of records by the values of one raw column: one for each value, or parts of equal size of its numbers.

Decides how a person asks for them (sex, or age:4 for quarters), what a group is called, and in which order they
stand. A number is one value however it is written. Records without a value are a group of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.tables.number_texts import NumberForm

MAX_VALUES = 50
"""More groups are no table that anybody reads, and are mostly numbers."""

MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class AskedColumn:
    """A column that somebody asks to be divided by.

    Attributes:
        name: of the column.
        parts: into how many parts of equal size its numbers are divided; None for a group of each value.
    """

    name: str
    parts: int | None = None

    def __str__(self) -> str:
        return self.name if self.parts is None else f"{self.name}:{self.parts}"


@dataclass(frozen=True, slots=True)
class ColumnGroups:
    """The groups of one column.

    Attributes:
        asked: the column.
        names: of the groups, in order.
        place: for each record the number of its group, int64 array (n,).
    """

    asked: AskedColumn
    names: tuple[str, ...]
    place: NDArray[np.int64] = field(repr=False)


def asked_columns(words: Sequence[str]) -> tuple[AskedColumn, ...]:
    """Return the columns that words ask for, such as sex or age:4.

    Raises:
        DataError: a word names no column, asks for one part or too many, or a column is asked for twice.
    """
    found: list[AskedColumn] = []
    for word in words:
        name, mark, parts = word.rpartition(":")
        asked = AskedColumn(name, _parts(word, parts)) if mark else AskedColumn(word)
        if not asked.name.strip():
            raise DataError(
                f"--by {word!r} names no column", "write --by sex, or --by age:4 for quarters of a number"
            )
        if asked.name in (one.name for one in found):
            raise DataError(f"--by names the column {asked.name!r} twice", "name each column once")
        found.append(asked)
    return tuple(found)


def _parts(word: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 2 <= int(text) <= MAX_VALUES:
        raise DataError(
            f"--by {word}: {text!r} is no number of parts",
            f"write --by age:4 for quarters; 2 to {MAX_VALUES} parts are possible",
        )
    return int(text)


def column_groups(
    asked: AskedColumn, texts: NDArray[np.generic], form: NumberForm, missing: Collection[str]
) -> ColumnGroups:
    """Return the groups of a column.

    Args:
        asked: which, and into how many parts.
        texts: array (n,) of its values as they are written, n >= 1.
        form: how its numbers are written.
        missing: texts that mean a missing value.

    Raises:
        DataError: it has too many values, parts are asked of what is no number, or the numbers are all alike.
    """
    written, index = np.unique(np.asarray(texts).astype(str), return_inverse=True)
    values = [None if text.strip() in {"", *missing} else text.strip() for text in written.tolist()]
    numbers = [None if value is None else _finite(form.number(value)) for value in values]
    if asked.parts is not None:
        return _divided(asked, asked.parts, _numbers(asked, values, numbers)[index])
    names = [
        MISSING if value is None else value if number is None or form.date is not None else f"{number:.15g}"
        for value, number in zip(values, numbers, strict=True)
    ]
    if len(set(names) - {MISSING}) > MAX_VALUES:
        remedy = (
            f"write --by {asked.name}:4 for quarters" if None not in numbers else "name a column with fewer values"
        )
        raise DataError(f"--by {asked.name}: the column has {len(set(names))} values", remedy)
    rank = dict(zip(names, numbers, strict=True))
    ordered = sorted(set(names), key=lambda name: (name == MISSING, rank[name] is None, rank[name] or 0.0, name))
    places = np.array([ordered.index(name) for name in names], np.int64)
    return ColumnGroups(asked, tuple(ordered), places[index])


def _finite(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else number


def _numbers(
    asked: AskedColumn, values: Sequence[str | None], numbers: Sequence[float | None]
) -> NDArray[np.float64]:
    """Return the number of each distinct text, NaN for a missing one."""
    wrong = [value for value, number in zip(values, numbers, strict=True) if value is not None and number is None]
    if wrong:
        raise DataError(
            f"--by {asked}: the column holds {wrong[0]!r}, which is no number",
            f"write --by {asked.name} for a group of each value",
        )
    return np.array([math.nan if number is None else number for number in numbers], np.float64)


def _divided(asked: AskedColumn, parts: int, numbers: NDArray[np.float64]) -> ColumnGroups:
    """Return groups of about as many records each; equal numbers are in one group, and an empty part is none."""
    known = numbers[~np.isnan(numbers)]
    cuts = (
        np.unique(np.quantile(known, np.arange(1, parts) / parts, method="inverted_cdf")) if known.size else known
    )
    cuts = cuts[cuts < known.max(initial=-math.inf)]
    if not cuts.size:
        raise DataError(f"--by {asked}: all numbers of the column are alike", "name another column")
    # A cut is the greatest number of the part below it.
    place = np.searchsorted(cuts, numbers, side="left")
    names = [_span(known[np.searchsorted(cuts, known, side="left") == part]) for part in range(len(cuts) + 1)]
    place[np.isnan(numbers)] = len(names)
    if known.size < numbers.size:
        names.append(MISSING)
    return ColumnGroups(asked, tuple(names), place.astype(np.int64))


def _span(held: NDArray[np.float64]) -> str:
    low, high = float(held.min()), float(held.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
