"""The survey before round 1: what the training records of all sites look like, column by column, from one sum.

Decides the layout of the header, and what a total says. Of a numeric column that is
how many values are there, their mean, spread and quartiles; of a categorical one, how many records have each
declared value, another one or none. It is also how many records each class has. Everything follows from the plan
and the schema, so that a length tells nothing. The bins and their bound are `survey_grid.py`'s. Numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.feature_moments import unit_of, units_of
from fedfair.aggregation.header import Bits, Everything, Field, Header, Number, one_of
from fedfair.aggregation.survey_grid import ColumnGrid, quantile
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.plan.sources import BUILT_IN, CsvSource

QUARTILES = (0.25, 0.5, 0.75)

MAX_SOLVED = 3
"""Of so many values a column's mean, spread and number of values tell how often each occurs."""


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """A numeric column of a survey.

    Attributes:
        name: the column.
        place: its place among the features.
        grid: its bins.
        unit: what its sums are counted in.
    """

    name: str
    place: int
    grid: ColumnGrid
    unit: float


@dataclass(frozen=True, slots=True)
class SurveyedCategory:
    """A categorical column of a survey.

    Attributes:
        name: the column.
        values: its values as the plan writes them, and then other, and missing where that is a value of its own.
        features: the features that they are, in the same order.
    """

    name: str
    values: tuple[str, ...]
    features: tuple[int, ...]


_COLUMNS = Everything(
    "column by column, the sums tell the values of a lone record: policy.reveals must name survey-sums, "
    "policy.min_collaborators"
)


@dataclass(frozen=True, slots=True)
class SurveyLayout:
    """The columns of a survey, in the order of its header."""

    numeric: tuple[NumericColumn, ...]
    categories: tuple[SurveyedCategory, ...]
    classes: int

    @property
    def header(self) -> Header:
        """Return the fields of a contribution."""
        columns, values = len(self.numeric), sum(len(column.values) for column in self.categories)
        return Header(
            Field("records", Number.PUBLIC_COUNT, lone=Bits(0)),
            Field("labels", Number.COUNT, (self.classes,), lone=one_of(max(self.classes, 1))),
            Field("present", Number.COUNT, (columns,), lone=Bits(columns)),
            Field("bins", Number.COUNT, (sum(column.grid.bins for column in self.numeric),), lone=_COLUMNS),
            Field("values", Number.COUNT, (values,), lone=_COLUMNS),
            Field("unknown", Number.COUNT, (len(self.categories),), lone=Bits(len(self.categories))),
            Field("sums", Number.REAL, (columns,), lone=_COLUMNS),
            Field("squares", Number.REAL, (columns,), lone=_COLUMNS),
        )

    @property
    def units(self) -> NDArray[np.float64]:
        """Return what the sums of each numeric column are counted in: float64 array (columns,)."""
        return units_of(tuple(column.unit for column in self.numeric), len(self.numeric))

    def bins_of(self, bins: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the counts of each numeric column, from those of all."""
        ends = np.cumsum([column.grid.bins for column in self.numeric])
        return np.split(bins, ends[:-1]) if len(ends) else []

    def values_of(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the counts of each categorical column's values, from those of all."""
        ends = np.cumsum([len(column.values) for column in self.categories])
        return np.split(values, ends[:-1]) if len(ends) else []


def survey_layout(plan: Plan, schema: FeatureSchema) -> SurveyLayout:
    """Return the columns of a plan's survey.

    Nothing counts that a site learns from its own files, such as the names of columns under `numeric: all`.

    Args:
        plan: the plan.
        schema: of its features, from the plan or from records.
    """
    source, categories = plan.task.data, tuple[SurveyedCategory, ...]()
    if isinstance(source, CsvSource):
        table = source.csv
        count = schema.input_shape[0] - table.category_columns
        named = not isinstance(table.numeric, str)
        names = table.numeric if named else [f"feature {place}" for place in range(count)]
        columns = [(name, place, table.ranges.get(name) if named else None) for place, name in enumerate(names)]
        categories = tuple(_categories(table, count))
    elif isinstance(source, str) and source not in BUILT_IN:
        # Records come from a function, so that only their shape is known.
        flat = len(schema.input_shape) == 1
        columns = [(f"feature {place}", place, None) for place in range(schema.input_shape[0] if flat else 0)]
    else:
        declared = schema.ranges or (None,) * len(schema.numeric)
        columns = [
            (schema.names[place] if schema.names else f"feature {place}", place, known)
            for place, known in zip(schema.numeric, declared, strict=True)
        ]
    numeric = tuple(
        NumericColumn(name, place, ColumnGrid(known), 1.0 if known is None else unit_of(*known))
        for name, place, known in columns
    )
    # A record's answer that is no class is not counted.
    return SurveyLayout(numeric, categories, 0 if schema.targets else schema.classes)


@dataclass(frozen=True, slots=True)
class SurveyedRecords:
    """One site's training records before anything of them is filled in or scaled.

    Attributes:
        features: float array (n, features), NaN where a number is missing, whatever the plan fills in.
        labels: the records' answers: int64 array (n,), or others that are not counted.
        unknown: for each categorical column how many of its values are missing and are counted as other.
    """

    features: NDArray[np.floating] = field(repr=False)
    labels: NDArray[Any] = field(repr=False)
    unknown: tuple[int, ...] = ()


def numeric_values(features: NDArray[np.floating], layout: SurveyLayout) -> NDArray[np.float64]:
    """Return the numeric columns of features (n, ...): float64 array (n, numeric columns), NaN where missing."""
    if not layout.numeric:
        return np.zeros((len(features), 0))
    return features[:, [column.place for column in layout.numeric]].astype(np.float64, copy=False)


def survey_counts(records: SurveyedRecords, layout: SurveyLayout) -> NDArray[np.float64]:
    """Return the header of one site's contribution: float64 array.

    Args:
        records: the records.
        layout: the columns of the plan's survey.
    """
    features = records.features
    values = numeric_values(features, layout)
    known = ~np.isnan(values)
    scaled = np.where(known, values, 0.0) / layout.units
    bins = [column.grid.counts(values[:, place]) for place, column in enumerate(layout.numeric)]
    indicators = [place for column in layout.categories for place in column.features]
    return layout.header.built(
        records=len(features),
        labels=np.bincount(records.labels, minlength=layout.classes) if layout.classes else np.zeros(0),
        present=known.sum(axis=0),
        bins=np.concatenate(bins) if bins else np.zeros(0),
        values=(features[:, indicators] > 0).sum(axis=0) if indicators else np.zeros(0),
        unknown=np.array(records.unknown or (0,) * len(layout.categories)),
        sums=scaled.sum(axis=0),
        squares=np.einsum("ij,ij->j", scaled, scaled),
    )


@dataclass(frozen=True, slots=True)
class NumericSummary:
    """A numeric column of all sites, or of all but one.

    Attributes:
        name: the column.
        present: how many values there are.
        missing: how many records have none.
        mean: of the values; None without values.
        spread: their standard deviation, divisor n; None without values.
        quartiles: estimates of the value at a quarter, a half and three quarters; None without values.
        bound: by how much each estimate may be off.
        held: how many values each bin has that has any, in the order of the bins.
    """

    name: str
    present: int
    missing: int
    mean: float | None
    spread: float | None
    quartiles: tuple[float, float, float] | None
    bound: tuple[float, float, float] | None
    held: tuple[int, ...] = ()

    def discloses_few(self, fewest: int) -> bool:
        """Return whether mean and spread tell how many people have one value, where those are fewer than this.

        Two equations and the number of values tell the counts of three values, which have at most three bins.
        """
        return len(self.held) <= MAX_SOLVED and any(count < fewest for count in self.held)


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """A categorical column of all sites, or of all but one.

    Attributes:
        name: the column.
        counts: how many records have each value, by the value as the plan writes it; `other` is any other value.
        missing: how many records have none; they are counted as other unless missing is a value of its own.
    """

    name: str
    counts: dict[str, int]
    missing: int


@dataclass(frozen=True, slots=True)
class SurveySummary:
    """The meaning of a total.

    Attributes:
        records: how many there are.
        labels: how many each class has.
        numeric: the numeric columns.
        categories: the categorical ones.
    """

    records: int
    labels: tuple[int, ...]
    numeric: tuple[NumericSummary, ...]
    categories: tuple[CategorySummary, ...]


def summarised(header: NDArray[np.float64], layout: SurveyLayout) -> SurveySummary:
    """Return what a total says, in the columns' own units.

    Args:
        header: of all sites, or of all but one; of numbers that records can have.
        layout: the columns of the plan's survey.
    """
    found = layout.header.read(header)
    records, present = int(found["records"]), np.maximum(found["present"], 1.0)
    mean = found["sums"] / present
    spread = np.sqrt(np.maximum(found["squares"] / present - mean**2, 0.0))
    bins, values = layout.bins_of(found["bins"]), layout.values_of(found["values"])
    return SurveySummary(
        records,
        tuple(int(count) for count in found["labels"]),
        tuple(
            _numeric(column, records, bins[place], float(mean[place]), float(spread[place]))
            for place, column in enumerate(layout.numeric)
        ),
        tuple(
            _category(column, values[place], int(found["unknown"][place]))
            for place, column in enumerate(layout.categories)
        ),
    )


def without(total: NDArray[np.float64], own: NDArray[np.float64], layout: SurveyLayout) -> NDArray[np.float64]:
    """Return the survey of all sites but one, which takes its own part out.

    Args:
        total: of all sites, as opened.
        own: what the site has added.
        layout: the columns of the plan's survey.

    Raises:
        RemoteProtocolError: the total does not have this site's part in it.
    """
    others = total - own
    found = layout.header.read(others)
    if (others[layout.header.counts(noised=False)] < 0).any():
        raise RemoteProtocolError(
            "the survey has fewer records in some count than this site alone has added",
            "the sum is not of what the sites added; compare the versions of fedfair on both sides",
        )
    # What rounding leaves of a column that nobody else has.
    for name in ("sums", "squares"):
        found[name] = np.where(found["present"] > 0, found[name], 0.0)
    found["squares"] = np.maximum(found["squares"], 0.0)
    return others


def _numeric(
    column: NumericColumn, records: int, bins: NDArray[np.float64], mean: float, spread: float
) -> NumericSummary:
    present = int(bins.sum())
    if not present:
        return NumericSummary(column.name, 0, records, None, None, None, None)
    low, middle, high = (quantile(bins, column.grid, share) for share in QUARTILES)
    if low is None or middle is None or high is None:
        raise LocalProtocolError(f"{column.name} has values and no quartiles")
    bound = column.grid.bound(low), column.grid.bound(middle), column.grid.bound(high)
    spread_here, mean_here = spread * column.unit, mean * column.unit
    held = tuple(int(count) for count in bins if count)
    return NumericSummary(
        column.name, present, records - present, mean_here, spread_here, (low, middle, high), bound, held
    )


def _category(column: SurveyedCategory, counts: NDArray[np.float64], unknown: int) -> CategorySummary:
    held = dict(zip(column.values, (int(count) for count in counts), strict=True))
    return CategorySummary(column.name, held, held.get("missing", 0) + unknown)


def _categories(table: CsvData, place: int) -> Iterator[SurveyedCategory]:
    """Yield the categorical columns, whose features begin at `place`."""
    for name in table.categorical:
        values = tuple(value.removeprefix(f"{name}=") for value in table.coding_of(name))
        yield SurveyedCategory(name, values, tuple(range(place, place + len(values))))
        place += len(values)
