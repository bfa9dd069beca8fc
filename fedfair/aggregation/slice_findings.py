"""The meaning of the last total of slices: which lie highest, each with its interval, in the units of the data.

Slices are ordered by the lower ends of intervals that hold for all of them together: what comes first is high
beyond doubt, and not by chance among few people. Numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.slice_columns import Cut, SliceColumn
from fedfair.aggregation.slice_outcomes import (
    CheckedSlice,
    Counts,
    DecidedSlice,
    checked_slice,
    decided_slice,
    may_be_told,
)
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.slice_sums import LEVELS, STEPS, SliceLayout
from fedfair.fairness.slice_interval import slice_interval

SHOWN = 10
"""So many slices are named, the highest first."""

_DIGITS = 9
"""Of an interval's end, as a share of the greatest measure: all platforms agree on more."""

COUNTED = ("counts", "outcomes", "flagged", "found")
"""The fields that count people, in the order of `Counts`."""


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
class SliceCheck:
    """How right the references are about slices.

    Attributes:
        within: about no slice they are further off than this, on average over its people.
        furthest: of the slices that may be told of, the one about which they are furthest off, those about which
            they are so beyond doubt before all others; None where there is none.
        cells: whose it is; none where there is none.
    """

    within: float
    furthest: CheckedSlice | None
    cells: tuple[SliceCell, ...]


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
        decided: how the model decides about the first slice, where that lies above everybody beyond doubt and may
            be told; None elsewhere, and where the plan does not count it.
        checked: how right the references are; None where the plan does not sum it.
    """

    split: str
    records: int
    mean: float
    greatest: float
    looked_at: int
    slices: tuple[FoundSlice, ...]
    columns: tuple[str, ...]
    untold: tuple[str, ...]
    decided: DecidedSlice | None = None
    checked: SliceCheck | None = None


def slice_findings(
    search: SliceSearch, layout: SliceLayout, greatest: float, scaling: FeatureScaling | None, fewest: int
) -> SliceFindings | None:
    """Return what a search has found; None before its end, and where it was given up.

    Args:
        search: the search.
        layout: of the plan.
        greatest: what the last level of a measure stands for (`slice_sums.greatest_measure`).
        scaling: of the features; None where the plan makes none.
        fewest: `evaluation.min_group`.
    """
    if search.fault or search.number <= STEPS:
        return None
    found, unit = layout.header.read(search.header), greatest / LEVELS
    totals = _Totals({each.name: layout.tables_of(found[each.name]) for each in layout.header.fields[1:]})
    asked = [at for at, wanted in enumerate(search.asked) if wanted]
    kept, records = [at for at in asked if at < len(layout.columns)], int(found["records"])
    total = float(totals.tables["sums"][kept[0]].sum())
    slices = _ordered(search, totals, layout, records, unit, scaling)
    looked_at, placed = len(slices), ((at, place, one.cells) for one, at, place in slices)
    places = sorted(placed, key=lambda one: one[:2])
    mean, everybody = unit * total / records, totals.everybody(kept[0])
    names = [column.name for column in layout.columns]
    (first, at, place), decided = slices[0], None
    if layout.decides and first.interval[0] > mean:
        held = totals.counts_of(at, place)
        decided = decided_slice(held, looked_at) if may_be_told(held, everybody, fewest) else None
    return SliceFindings(
        SPLITS[search.split],
        records,
        mean,
        greatest,
        looked_at,
        tuple(one for one, _, _ in slices[:SHOWN]),
        tuple(names[at] for at in kept),
        tuple(name for at, name in enumerate(names) if at not in kept),
        decided,
        _reference_check(totals, places, everybody, fewest) if layout.checks else None,
    )


@dataclass(frozen=True, slots=True)
class _Totals:
    """The tables of step 3 by their fields; none where a plan does not sum a field."""

    tables: Mapping[str, Sequence[NDArray[np.float64]]]

    def of(self, name: str, at: int, place: tuple[int, ...]) -> float:
        """Return a number of a cell; 0 where there is none."""
        tables = self.tables[name]
        return float(tables[at][place]) if tables else 0.0

    def counts_of(self, at: int, place: tuple[int, ...]) -> Counts:
        """Return who is in a cell."""
        people, outcomes, flagged, found = (int(self.of(name, at, place)) for name in COUNTED)
        return people, outcomes, flagged, found

    def everybody(self, at: int) -> Counts:
        """Return who is in any cell of a column."""
        sums = (sum(float(table.sum()) for table in self.tables[name][at : at + 1]) for name in COUNTED)
        people, outcomes, flagged, found = map(int, sums)
        return people, outcomes, flagged, found


_Placed = tuple[FoundSlice, int, tuple[int, ...]]
"""A slice, its table, and its place in the table."""


def _ordered(
    search: SliceSearch,
    totals: _Totals,
    layout: SliceLayout,
    records: int,
    unit: float,
    scaling: FeatureScaling | None,
) -> list[_Placed]:
    """Return every slice that was looked at, the highest first by the lower ends of their intervals."""
    asked = [at for at, wanted in enumerate(search.asked) if wanted]
    first = next(at for at in asked if at < len(layout.columns))
    total, square = (float(totals.tables[name][first].sum()) for name in ("sums", "squares"))
    variance = (square - total * total / records) / max(records - 1, 1)
    places = [
        (at, place, cells)
        for at in asked
        for place, cells in _cells(at, totals.tables["counts"][at], search, layout, scaling)
    ]
    slices = []
    for at, place, cells in places:
        count, summed, squares = (totals.of(name, at, place) for name in ("counts", "sums", "squares"))
        ends = _bounded(slice_interval(int(count), summed, squares, variance, len(places)), unit)
        slices.append((FoundSlice(cells, int(count), unit * summed / count, ends), at, place))
    return sorted(slices, key=lambda one: -one[0].interval[0])


def worst_cells(
    search: SliceSearch, layout: SliceLayout, greatest: float, scaling: FeatureScaling | None, most: int
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the slices that lie highest by the places of their columns and cells; none before the search's end.

    Args:
        search: the search.
        layout: of the plan.
        greatest: as of `slice_findings`.
        scaling: likewise.
        most: so many slices at most.
    """
    if search.fault or search.number <= STEPS or not most:
        return ()
    found = layout.header.read(search.header)
    totals = _Totals({name: layout.tables_of(found[name]) for name in ("counts", "sums", "squares")})
    slices = _ordered(search, totals, layout, int(found["records"]), greatest / LEVELS, scaling)
    # Sites ask one question on every platform: what differs by less than rounding is ordered by its place.
    order = sorted((-round(one.interval[0] / greatest, _DIGITS), at, place) for one, at, place in slices)
    columns = [(at,) for at in range(len(layout.columns))] + [*layout.pairs]
    return tuple(tuple(zip(columns[at], place, strict=True)) for _, at, place in order[:most])


def named_cells(
    cells: Sequence[tuple[int, int]], cuts: Sequence[Cut], layout: SliceLayout, scaling: FeatureScaling | None
) -> tuple[SliceCell, ...]:
    """Return the cells of a slice in the units of their columns.

    Args:
        cells: of each the place of its column, and its own.
        cuts: the cells of each column.
        layout: of the plan.
        scaling: of the features; None where the plan makes none.
    """
    return tuple(_named(layout.columns[at], cuts[at], scaling)[cell] for at, cell in cells)


def _reference_check(
    totals: _Totals,
    places: Sequence[tuple[int, tuple[int, ...], tuple[SliceCell, ...]]],
    everybody: Counts,
    fewest: int,
) -> SliceCheck:
    """Return how right the references are about slices: about which they are furthest off, and how far at most."""
    checked = []
    for at, place, cells in places:
        held = totals.counts_of(at, place)
        one = checked_slice(held[0], held[1], totals.of("chances", at, place), len(places))
        checked.append((one, cells, may_be_told((*held[:2], 0, 0), (*everybody[:2], 0, 0), fewest)))
    told = [(one, cells) for one, cells, is_told in checked if is_told]
    furthest = max(told, key=lambda each: (each[0].is_off, abs(each[0].found - each[0].said)), default=None)
    within = max(max(map(abs, one.interval)) for one, _, _ in checked)
    return SliceCheck(min(within, 1.0), *((None, ()) if furthest is None else furthest))


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
) -> Iterator[tuple[tuple[int, ...], tuple[SliceCell, ...]]]:
    """Yield the place and the cells of every slice of a table."""
    single = len(layout.columns)
    places = (at,) if at < single else layout.pairs[at - single]
    named = [_named(layout.columns[place], search.cuts[place], scaling) for place in places]
    for place in zip(*np.nonzero(counts), strict=True):
        index = tuple(map(int, place))
        yield index, tuple(cells[one] for cells, one in zip(named, index, strict=True))


def _named(column: SliceColumn, cut: Cut, scaling: FeatureScaling | None) -> list[SliceCell]:
    """Return the cells of a column in its own unit."""
    if column.values:
        coded = [*zip(column.values, cut, strict=True)]
        held = (tuple(value for value, cell in coded if cell == one) for one in range(max(cut) + 1))
        return [SliceCell(column.name, values=values) for values in held]
    edges = column.grid(scaling).edges
    borders = [None, *(float(edges[start - 1]) for start in cut[1:]), None]
    return [SliceCell(column.name, borders[at], borders[at + 1]) for at in range(len(cut))]
