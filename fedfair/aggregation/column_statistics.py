"""Statistics of columns: the numbers of one sum, and what a total says of counts, bins and means.

Decides the layout of the header, what one record adds to it, and which estimates follow. Every number is whole, in
steps of which a record is s: a record adds s to the number of records, s to one cell of every histogram, and to a
mean s and its value on the way from the least (-s) to the greatest (s) number, rounded to a whole step. Where the
plan tells groups apart, all of that is once for each group. Everything follows from the plan. Numpy only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Everything, Field, Header, Number
from fedfair.aggregation.survey import SurveyedRecords
from fedfair.errors import LocalProtocolError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.derived import quorum
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.plan.statistics_section import StatisticsSection
from fedfair.privacy.shared_noise import SharedNoise, shared_noise

EXACT_SCALE = 1 << 20
"""Steps of a record without noise: a value of a mean is off by at most 2^-21 of half its range."""

MISSING = "missing"

_COLUMNS = Everything(
    "column by column, the numbers tell what a lone record has: policy.reveals must name column-statistics, whose "
    "noise covers it (statistics.epsilon), or exact-statistics"
)


@dataclass(frozen=True, slots=True)
class ColumnCells:
    """A column of which records are counted by cell; every record is in one cell.

    Attributes:
        column: its name.
        cells: what each cell is called.
        features: of a category, the place of each cell among the features; empty for a column of numbers.
        place: of a column of numbers, its place among the features.
        edges: of a column of numbers, the rising edges of its bins.
    """

    column: str
    cells: tuple[str, ...]
    features: tuple[int, ...] = ()
    place: int = 0
    edges: tuple[float, ...] = ()

    def cell_of(self, features: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the cell of every record: int64 array (n,) of features (n, columns), NaN where missing."""
        if self.features:
            chosen: NDArray[np.int64] = np.argmax(features[:, list(self.features)] > 0, axis=1)
            return chosen
        values = features[:, self.place]
        # Below the first edge, in a bin that holds its lower edge, from the last edge on, or missing.
        found = np.searchsorted(np.array(self.edges), values, side="right")
        cells: NDArray[np.int64] = np.where(np.isnan(values), len(self.cells) - 1, found)
        return cells


@dataclass(frozen=True, slots=True)
class Mean:
    """A column of which the mean is told.

    Attributes:
        column: its name.
        place: its place among the features.
        least: the least number that counts as it is.
        greatest: the greatest; greater than `least`.
    """

    column: str
    place: int
    least: float
    greatest: float

    def steps_of(self, features: NDArray[np.floating], scale: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which records have a number, and each one's steps, from -scale to scale and 0 without one."""
        values = features[:, self.place].astype(np.float64)
        there = ~np.isnan(values)
        held = np.clip(np.where(there, values, self.least), self.least, self.greatest)
        share = (held - self.least) / (self.greatest - self.least)
        steps = np.clip(np.rint((2.0 * share - 1.0) * scale), -scale, scale).astype(np.int64)
        return there, np.where(there, steps, 0)

    def value_of(self, share: float) -> float:
        """Return the number that a share from -1 to 1 stands for."""
        return self.least + 0.5 * (min(max(share, -1.0), 1.0) + 1.0) * (self.greatest - self.least)


@dataclass(frozen=True, slots=True)
class StatisticsLayout:
    """The statistics of a plan, in the order of its header.

    Attributes:
        histograms: of categories and of bins.
        means: of columns of numbers.
        by: the column whose cells are the groups; None where all records are one group.
        noise: what every site adds; None where nothing is added.
    """

    histograms: tuple[ColumnCells, ...]
    means: tuple[Mean, ...]
    by: ColumnCells | None
    noise: SharedNoise | None

    @property
    def scale(self) -> int:
        """Return how many steps a record is."""
        return EXACT_SCALE if self.noise is None else self.noise.scale

    @property
    def groups(self) -> tuple[str, ...]:
        """Return what the groups are called: one without a name where there is no column of groups."""
        return ("",) if self.by is None else self.by.cells

    @property
    def header(self) -> Header:
        """Return the fields of a contribution; noise makes numbers of fewer than none, so none is a count."""
        groups, cells = len(self.groups), sum(len(each.cells) for each in self.histograms)
        return Header(
            Field("records", Number.REAL, (groups,), lone=_COLUMNS),
            Field("cells", Number.REAL, (groups, cells), lone=_COLUMNS),
            Field("present", Number.REAL, (groups, len(self.means)), lone=_COLUMNS),
            Field("sums", Number.REAL, (groups, len(self.means)), lone=_COLUMNS),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of all columns of which a total tells, each once."""
        by = () if self.by is None else (self.by.column,)
        told = (*(each.column for each in self.histograms), *(each.column for each in self.means))
        return tuple(dict.fromkeys((*by, *told)))

    def split(self, cells: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the cells of each histogram, arrays (groups, its cells), from those of all."""
        ends = np.cumsum([len(each.cells) for each in self.histograms])
        return np.split(cells, ends[:-1], axis=1) if len(ends) else []


def record_parts(stated: StatisticsSection, table: CsvData) -> int:
    """Return in how many parts of a sum a record has at most one number: m of `privacy.shared_noise`."""
    parts = 1
    for name, asked in stated.columns.items():
        parts += (asked.count and name in table.categorical) + (asked.bins is not None) + 2 * asked.mean
    return parts


def statistics_noise(plan: Plan) -> SharedNoise | None:
    """Return the noise that a plan's statistics carry; None where they carry none.

    Raises:
        LocalProtocolError: it has no statistics.
        PlanError: the noise cannot be drawn.
    """
    stated, table = _stated(plan)
    if stated.epsilon is None:
        return None
    shares = quorum(plan) - plan.secure_aggregation.colluders
    return shared_noise(record_parts(stated, table), stated.epsilon, stated.delta, shares)


def statistics_layout(plan: Plan) -> StatisticsLayout:
    """Return the statistics of a plan; raises as `statistics_noise`."""
    stated, table = _stated(plan)
    histograms: list[ColumnCells] = []
    means: list[Mean] = []
    # In the order of the table: the digest of a plan does not tell in which order its statistics are written.
    for name in (each for each in (*table.numeric, *table.categorical) if each in stated.columns):
        asked = stated.columns[name]
        if asked.count:
            histograms.append(_category(table, name))
        place = table.numeric.index(name) if name in table.numeric else 0
        if asked.bins is not None:
            histograms.append(ColumnCells(name, tuple(_bins(asked.bins)), place=place, edges=asked.bins))
        if asked.mean:
            least, greatest = asked.between or table.ranges[name]
            means.append(Mean(name, place, least, greatest))
    by = None if stated.by is None else _category(table, stated.by)
    return StatisticsLayout(tuple(histograms), tuple(means), by, statistics_noise(plan))


def statistics_question(plan: Plan, *, of_columns: bool = True) -> str:
    """Return in words what a plan asks of which rows: equal for plans whose sums are the same.

    Args:
        plan: the plan.
        of_columns: whether it tells what is asked of columns, or only whose number of records is.

    Raises:
        LocalProtocolError: it has no statistics.
    """
    stated, table = _stated(plan)
    asked = {name: one.model_dump(mode="json", exclude_defaults=True) for name, one in stated.columns.items()}
    words = {
        "columns": asked if of_columns else {},
        "by": stated.by,
        "rows": table.model_dump(mode="json", include={"rows"})["rows"],
    }
    return json.dumps(words, sort_keys=True)


def _stated(plan: Plan) -> tuple[StatisticsSection, CsvData]:
    if plan.statistics is None or not isinstance(plan.task.data, CsvSource):
        raise LocalProtocolError("this plan asks for no statistics of columns")
    return plan.statistics, plan.task.data.csv


def _category(table: CsvData, name: str) -> ColumnCells:
    first = len(table.numeric)
    for column in table.categorical:
        cells = tuple(cell.removeprefix(f"{column}=") for cell in table.coding_of(column))
        if column == name:
            return ColumnCells(name, cells, tuple(range(first, first + len(cells))))
        first += len(cells)
    raise LocalProtocolError(f"column {name!r} is no category of the plan")


def _bins(edges: tuple[float, ...]) -> Iterator[str]:
    yield f"below {edges[0]:g}"
    yield from (f"{edges[place]:g} to {edges[place + 1]:g}" for place in range(len(edges) - 1))
    yield f"{edges[-1]:g} or more"
    yield MISSING


def statistics_counts(records: SurveyedRecords, layout: StatisticsLayout) -> NDArray[np.float64]:
    """Return the header of one site's records, without noise: float64 array of whole numbers.

    Args:
        records: before anything of them is filled in.
        layout: of the plan's statistics.
    """
    features, scale, groups = records.features, layout.scale, len(layout.groups)
    group = np.zeros(len(features), np.int64) if layout.by is None else layout.by.cell_of(features)
    cells = [_counted(group, groups, each.cell_of(features), len(each.cells)) for each in layout.histograms]
    present, sums = np.zeros((groups, len(layout.means))), np.zeros((groups, len(layout.means)))
    for place, mean in enumerate(layout.means):
        there, steps = mean.steps_of(features, scale)
        present[:, place] = np.bincount(group[there], minlength=groups)
        np.add.at(sums[:, place], group, steps)
    return layout.header.built(
        records=scale * np.bincount(group, minlength=groups),
        cells=scale * np.concatenate(cells, axis=1) if cells else np.zeros((groups, 0)),
        present=scale * present,
        sums=sums,
    )


def _counted(group: NDArray[np.int64], groups: int, cell: NDArray[np.int64], cells: int) -> NDArray[np.float64]:
    return np.bincount(group * cells + cell, minlength=groups * cells).reshape(groups, cells).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number that a total tells.

    Attributes:
        column: of which; empty for the number of records.
        group: of which records; empty for all.
        statistic: records, count or mean.
        cell: of a histogram; empty for others.
        value: the estimate; noise may bring a number of records below 0. None for a mean of no records.
        error: the standard deviation of its noise; 0 without noise.
        records: about how many records it rests on.
    """

    column: str
    group: str
    statistic: Literal["records", "count", "mean"]
    cell: str
    value: float | None
    error: float
    records: float


@dataclass(frozen=True, slots=True)
class StatisticsSummary:
    """The meaning of a total.

    Attributes:
        estimates: group by group: its records, the cells of each histogram in their order, and its means.
        members: how many sites it is of.
        layout: of the plan's statistics.
    """

    estimates: tuple[Estimate, ...]
    members: int
    layout: StatisticsLayout


def statistics_summary(header: NDArray[np.float64], members: int, layout: StatisticsLayout) -> StatisticsSummary:
    """Return what a total says, in records and in the columns' own units.

    Args:
        header: of all sites.
        members: how many they are, each of whom added noise.
        layout: of the plan's statistics.
    """
    found, noise = layout.header.read(header), layout.noise
    deviation = 0.0 if noise is None else noise.deviation(members)
    estimates: list[Estimate] = []
    cells = layout.split(found["cells"])
    for place, group in enumerate(layout.groups):
        records = float(found["records"][place]) / layout.scale
        estimates.append(Estimate("", group, "records", "", records, deviation, records))
        for histogram, counts in zip(layout.histograms, cells, strict=True):
            held = (float(count) / layout.scale for count in counts[place])
            estimates += [
                Estimate(histogram.column, group, "count", cell, count, deviation, count)
                for cell, count in zip(histogram.cells, held, strict=True)
            ]
        for number, mean in enumerate(layout.means):
            present = float(found["present"][place][number]) / layout.scale
            total = float(found["sums"][place][number]) / layout.scale
            estimates.append(_mean(mean, group, present, total, deviation))
    return StatisticsSummary(tuple(estimates), members, layout)


def _mean(mean: Mean, group: str, present: float, total: float, deviation: float) -> Estimate:
    """Return the estimate of a mean; its error is that of a ratio of two noised numbers, to first order."""
    if present <= 0.0:
        return Estimate(mean.column, group, "mean", "", None, 0.0, present)
    share = min(max(total / present, -1.0), 1.0)
    half = 0.5 * (mean.greatest - mean.least)
    error = half * deviation * math.sqrt(1.0 + share**2) / present
    return Estimate(mean.column, group, "mean", "", mean.value_of(share), error, present)
