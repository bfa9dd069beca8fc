"""The slices of people whom a model serves worst, in a result and in words: three at a terminal, all on a page.

A slice has enough people to be told of, because no other has been asked for. Part of the model in `document.py`;
what the figures mean is `aggregation.slice_findings`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fedfair.aggregation.slice_findings import SliceCell, SliceFindings
from fedfair.plan.csv_table import MISSING, OTHER
from fedfair.results.frozen import FrozenPart, given
from fedfair.results.loss_text import loss_text

TOLD = 3
"""So many slices are named at a terminal."""

_ALONE = {OTHER: "any other value", MISSING: "no value"}
_AMONG = {**_ALONE, OTHER: "a rare value"}


class SliceCellFields(FrozenPart):
    """A cell of one column: of a number an interval of it, of a category some of its values."""

    column: str
    """the column"""

    at_least: float | None = None
    """the least number in the cell; omitted for the lowest cell, and for a category"""

    below: float | None = None
    """the number that the cell ends before; omitted for the highest cell, and for a category"""

    values: tuple[str, ...] | None = None
    """of a category; other is any other value; omitted for a number"""


class ToldSlice(FrozenPart):
    """The people of a cell, or of two cells at once."""

    cells: tuple[SliceCellFields, ...]
    """one or two"""

    n: int
    """how many people"""

    mean: float
    """of their measures"""

    interval: tuple[float, float]
    """that holds the true mean, with about 95 % for all slices together"""


class SliceFigures(FrozenPart):
    """The slices whose mean measure lies highest, by the lower ends of their intervals."""

    measure: Literal["loss", "excess"]
    """what is measured of each person"""

    split: str
    """whose records: test, or validation, or train where there are no others"""

    n: int
    """how many records there are"""

    mean: float
    """of the measures of all of them"""

    counted_up_to: float
    """no measure counts for more"""

    looked_at: int
    """how many slices there were"""

    slices: tuple[ToldSlice, ...]
    """the highest first, ten at most"""

    columns: tuple[str, ...]
    """the columns that were looked at"""

    untold: tuple[str, ...]
    """columns of which nothing could be asked without telling of too few people"""

    given_up: str | None = None
    """why there are none; omitted where there are"""


def slice_figures(
    found: SliceFindings | None, fault: str, measure: Literal["loss", "excess"]
) -> SliceFigures | None:
    """Return what a result tells of slices; None where a run has looked for none, or has not come to it.

    Args:
        found: the findings; None without any.
        fault: why the search was given up; empty where it was not.
        measure: what is measured.
    """
    if found is None:
        nothing = {
            "split": "",
            "n": 0,
            "mean": 0.0,
            "counted_up_to": 0.0,
            "looked_at": 0,
            "slices": (),
            "columns": (),
            "untold": (),
        }
        return SliceFigures.model_validate({"measure": measure, **nothing, "given_up": fault}) if fault else None
    return SliceFigures(
        measure=measure,
        split=found.split,
        n=found.records,
        mean=found.mean,
        counted_up_to=found.greatest,
        looked_at=found.looked_at,
        slices=tuple(
            ToldSlice(cells=tuple(map(_cell, one.cells)), n=one.count, mean=one.mean, interval=one.interval)
            for one in found.slices
        ),
        columns=found.columns,
        untold=found.untold,
    )


def _cell(cell: SliceCell) -> SliceCellFields:
    values = cell.values or None
    return SliceCellFields(column=cell.column, **given(at_least=cell.lowest, below=cell.below, values=values))


# ------------------------------------------------------------------ words


def slice_words(one: ToldSlice) -> str:
    """Return who is in a slice, such as "sex f, age 61 to 77"."""
    return ", ".join(map(_cell_words, one.cells))


def _cell_words(cell: SliceCellFields) -> str:
    if cell.values is not None:
        words = _ALONE if len(cell.values) == 1 else _AMONG
        return f"{cell.column} {' or '.join(words.get(value, value) for value in cell.values)}"
    if cell.at_least is None or cell.below is None:
        if cell.below is not None:
            return f"{cell.column} below {cell.below:.4g}"
        return (
            f"{cell.column} of any value"
            if cell.at_least is None
            else f"{cell.column} from {cell.at_least:.4g} on"
        )
    return f"{cell.column} {cell.at_least:.4g} to {cell.below:.4g}"


def is_higher(one: ToldSlice, fields: SliceFigures) -> bool:
    """Return whether a slice lies above everybody beyond doubt: its whole interval does."""
    return one.interval[0] > fields.mean


def slice_sentences(fields: SliceFigures | None) -> Iterator[str]:
    """Yield what a terminal says about slices; nothing where none were looked for."""
    if fields is None:
        return
    if fields.given_up is not None:
        yield f"No slices are told of: {fields.given_up}."
        return
    higher = [one for one in fields.slices if is_higher(one, fields)]
    if not higher:
        yield (
            f"Of {fields.looked_at} slices none has a mean {fields.measure} above that of everybody, "
            f"{loss_text(fields.mean)}, beyond doubt."
        )
        return
    told = "; ".join(f"{slice_words(one)}: {figures_of(one, fields)}" for one in higher[:TOLD])
    yield f"Of {fields.looked_at} slices these are served worst: {told}. Everybody: {loss_text(fields.mean)}."


def figures_of(one: ToldSlice, fields: SliceFigures) -> str:
    """Return how many people a slice has, and its mean with the interval."""
    low, high = (loss_text(end, beside=fields.mean) for end in one.interval)
    mean = loss_text(one.mean, beside=fields.mean)
    return f"{one.n} people, {fields.measure} {mean} ({low} to {high})"
