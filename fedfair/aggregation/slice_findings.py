"""The meaning of the last total of slices: which lie highest, each with its interval, in the units of the data.

Slices are ordered by the lower ends of intervals that hold for all of them together: what comes first is high
beyond doubt, and not by chance among few people. Numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.slice_columns import Cut, SliceColumn
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.slice_sums import LEVELS, STEPS, SliceLayout
from fedfair.fairness.slice_interval import slice_interval

SHOWN = 10
"""So many slices are named, the highest first."""


@dataclass(frozen=True, slots=True)
class SliceCell:
    """One cell of one column.

    Attributes:
        column: its name.
        lowest: the least number in it; None of the lowest cell, and of a category.
        below: the number that it ends before; None of the highest cell, and of a category.
        values: of a category, as the plan writes them; other stands for any other value.
    """

    column: str
    lowest: float | None = None
    below: float | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundSlice:
    """The people of a cell, or of two cells at once.

    Attributes:
        cells: one or two.
        count: how many people.
        mean: of their measures.
        interval: that holds the true mean, for all slices that were looked at together.
    """

    cells: tuple[SliceCell, ...]
    count: int
    mean: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class SliceFindings:
    """The outcome of a search.

    Attributes:
        split: whose records were looked at.
        records: how many there are.
        mean: of the measures of all.
        greatest: no measure counts for more.
        looked_at: how many slices there were.
        slices: those that lie highest, the highest first.
        columns: the columns that were looked at.
        untold: columns of which nothing may be told, because it would be of too few people.
    """

    split: str
    records: int
    mean: float
    greatest: float
    looked_at: int
    slices: tuple[FoundSlice, ...]
    columns: tuple[str, ...]
    untold: tuple[str, ...]


def slice_findings(
    search: SliceSearch, layout: SliceLayout, greatest: float, scaling: FeatureScaling | None
) -> SliceFindings | None:
    """Return what a search has found; None before its end, and where it was given up.

    Args:
        search: the search.
        layout: of the plan.
        greatest: what the last level of a measure stands for (`slice_sums.greatest_measure`).
        scaling: of the features; None where the plan makes none.
    """
    if search.fault or search.number <= STEPS:
        return None
    found, unit = layout.header.read(search.header), greatest / LEVELS
    counts, sums, squares = (layout.tables_of(found[name]) for name in ("counts", "sums", "squares"))
    kept = [at for at in range(len(layout.columns)) if search.asked[at]]
    first, records = kept[0], int(found["records"])
    total, square = float(sums[first].sum()), float(squares[first].sum())
    variance = (square - total * total / records) / max(records - 1, 1)
    asked = [at for at, wanted in enumerate(search.asked) if wanted]
    looked_at = sum(int(np.count_nonzero(counts[at])) for at in asked)
    slices = [
        FoundSlice(
            cells,
            int(count),
            unit * float(sums[at][place]) / float(count),
            _bounded(
                slice_interval(int(count), float(sums[at][place]), float(squares[at][place]), variance, looked_at),
                unit,
            ),
        )
        for at in asked
        for place, cells, count in _cells(at, counts[at], search, layout, scaling)
    ]
    names = [column.name for column in layout.columns]
    return SliceFindings(
        SPLITS[search.split],
        records,
        unit * total / records,
        greatest,
        looked_at,
        tuple(sorted(slices, key=lambda one: -one.interval[0])[:SHOWN]),
        tuple(names[at] for at in kept),
        tuple(name for at, name in enumerate(names) if at not in kept),
    )


def _bounded(interval: tuple[float, float], unit: float) -> tuple[float, float]:
    """Return an interval in units of the measure, within what a measure may be."""
    low, high = interval
    return max(low, 0.0) * unit, min(high, float(LEVELS)) * unit


def _cells(
    at: int,
    counts: NDArray[np.float64],
    search: SliceSearch,
    layout: SliceLayout,
    scaling: FeatureScaling | None,
) -> Iterator[tuple[tuple[int, ...], tuple[SliceCell, ...], float]]:
    """Yield the place, the cells and the people of every slice of a table."""
    single = len(layout.columns)
    places = (at,) if at < single else layout.pairs[at - single]
    named = [_named(layout.columns[place], search.cuts[place], scaling) for place in places]
    for place in zip(*np.nonzero(counts), strict=True):
        index = tuple(map(int, place))
        yield index, tuple(cells[one] for cells, one in zip(named, index, strict=True)), float(counts[index])


def _named(column: SliceColumn, cut: Cut, scaling: FeatureScaling | None) -> list[SliceCell]:
    """Return the cells of a column in its own unit."""
    if column.values:
        coded = [*zip(column.values, cut, strict=True)]
        held = (tuple(value for value, cell in coded if cell == one) for one in range(max(cut) + 1))
        return [SliceCell(column.name, values=values) for values in held]
    edges = column.grid(scaling).edges
    borders = [None, *(float(edges[start - 1]) for start in cut[1:]), None]
    return [SliceCell(column.name, borders[at], borders[at + 1]) for at in range(len(cut))]
