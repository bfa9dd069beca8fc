"""The columns whose cells a plan looks at, and the fine places that records have in them. Numpy only.

A number has the place of its bin: over its declared range, otherwise over four deviations to both sides of the
mean of all sites, otherwise on the logarithmic grid of a survey. A number beyond the grid is in its last bin, and
one that is missing counts as what the plan fills in. A category has the place of its value. What becomes a cell is
`slice_search`'s decision; a cell ends where a bin does, so that everybody names the same people.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.survey import NumericColumn, SurveyedCategory, survey_layout
from fedfair.aggregation.survey_grid import ColumnGrid
from fedfair.errors import LocalProtocolError, PlanError
from fedfair.plan.derived import scales_by_ranges, slices_of, standardises
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan

DEVIATIONS = 4.0
"""How far the bins of a standardised column reach to both sides of its mean."""

Cut = tuple[int, ...]
"""The cells of a column: of a number the first bin of each, rising; of a category the cell of each value."""


@dataclass(frozen=True, slots=True)
class SliceColumn:
    """A column whose cells are looked at.

    Attributes:
        name: the column.
        features: the place of a number among the features; of a category that of each of its values.
        values: of a category, as the plan writes them, then other, and missing where that is one; else none.
        range: the least and the greatest number that are declared; None where they are not.
        scaled_at: the place of a number in the scaling of the features; None of any other column.
        fine: how many fine places there are.
        most: how many cells there are at most.
    """

    name: str
    features: tuple[int, ...]
    values: tuple[str, ...]
    range: tuple[float, float] | None
    scaled_at: int | None
    fine: int
    most: int

    def grid(self, scaling: FeatureScaling | None) -> ColumnGrid:
        """Return the bins of a number.

        Args:
            scaling: of the features; None where the plan makes none.
        """
        if self.range is not None or scaling is None or self.scaled_at is None:
            return ColumnGrid(self.range)
        mean, reach = float(scaling.mean[self.scaled_at]), DEVIATIONS * float(scaling.scale[self.scaled_at])
        return ColumnGrid((mean - reach, mean + reach))

    def cells(self, cut: Cut) -> int:
        """Return how many cells a cut makes."""
        return max(cut) + 1 if self.values else len(cut)

    def cells_of(self, places: NDArray[np.int64], cut: Cut) -> NDArray[np.int64]:
        """Return the cell of each record, from 0: int64 array of the same shape.

        Args:
            places: fine places.
            cut: the cells.
        """
        if self.values:
            return np.array(cut, np.int64)[places]
        return np.searchsorted(np.array(cut), places, side="right").astype(np.int64) - 1

    def may_be(self, cut: Cut) -> bool:
        """Return whether a cut is one of this column."""
        if not cut or not self.values:
            rising = all(left < right for left, right in itertools.pairwise(cut))
            return bool(cut) and rising and cut[0] == 0 and cut[-1] < self.fine and len(cut) <= self.most
        return len(cut) == self.fine and set(cut) == set(range(max(cut) + 1))


def slice_columns(plan: Plan, schema: FeatureSchema) -> tuple[SliceColumn, ...]:
    """Return the columns that a plan looks at, numbers first.

    Raises:
        PlanError: it names one that there is not.
    """
    stated, surveyed = slices_of(plan), survey_layout(plan, schema)
    scaled = standardises(plan, len(schema.numeric))
    known: tuple[NumericColumn | SurveyedCategory, ...] = (*surveyed.numeric, *surveyed.categories)
    names = [column.name for column in known]
    for name in stated.columns or ():
        if name not in names:
            raise PlanError(
                f"evaluation.slices.columns: column {name!r} is no feature", f"the features are {', '.join(names)}"
            )
    wanted = [column for column in known if stated.columns is None or column.name in stated.columns]
    return tuple(_column(column, schema, stated.bins, scaled=scaled) for column in wanted)


def _column(
    column: NumericColumn | SurveyedCategory, schema: FeatureSchema, bins: int, *, scaled: bool
) -> SliceColumn:
    if isinstance(column, SurveyedCategory):
        count = len(column.values)
        return SliceColumn(column.name, column.features, column.values, None, None, count, count)
    at = schema.numeric.index(column.place) if scaled else None
    # Over the mean and its deviations there are as many bins as over a range.
    grid = ColumnGrid((0.0, 1.0)) if scaled else column.grid
    fine = column.grid.bins if column.grid.range is not None else grid.bins
    return SliceColumn(column.name, (column.place,), (), column.grid.range, at, fine, min(bins, fine))


class FinePlaces:
    """How the records of a plan get their fine places.

    Args:
        plan: the plan.
        columns: from `slice_columns`.
    """

    def __init__(self, plan: Plan, columns: tuple[SliceColumn, ...]) -> None:
        self._columns, self._by_ranges = columns, scales_by_ranges(plan)

    def of(
        self, feature: Callable[[int], NDArray[np.floating]], count: int, scaling: FeatureScaling | None
    ) -> NDArray[np.int64]:
        """Return the fine place of each record in each column: int64 array (n, columns).

        Args:
            feature: returns the values (n,) of a feature by its place, before the sites' scaling of it.
            count: n.
            scaling: of the features; None where the plan makes none.
        """
        places = np.zeros((count, len(self._columns)), np.int64)
        for at, column in enumerate(self._columns):
            if column.values:
                held = np.stack([feature(place) > 0 for place in column.features])
                places[:, at] = held.argmax(axis=0)
            else:
                values = self._numbers(column, feature(column.features[0]).astype(np.float64), scaling)
                places[:, at] = column.grid(scaling).places(values)
        return places

    def _numbers(
        self, column: SliceColumn, values: NDArray[np.float64], scaling: FeatureScaling | None
    ) -> NDArray[np.float64]:
        """Return the numbers of a column in its own unit, none of them missing."""
        if self._by_ranges and column.range is not None:
            # Ranges have been scaled to [-1, 1] when the records were read.
            least, greatest = column.range
            return least + (values + 1.0) / 2.0 * (greatest - least)
        if scaling is not None and column.scaled_at is not None:
            return np.where(np.isnan(values), scaling.mean[column.scaled_at], values)
        if np.isnan(values).any():
            raise LocalProtocolError(f"column {column.name} has missing numbers that nothing has filled in")
        return values
