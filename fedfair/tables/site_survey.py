"""One site's part of a survey, and what it keeps of its own columns to compare the total with.

Decides what is counted: the training records as the files have them, before a gap is filled or a number scaled.
The description that stays here is short whatever the number of records. Of each numeric column it has order
statistics, the most frequent values and how many there are. Nothing but the counts and sums of
`aggregation.survey` is ever added to a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.survey import SurveyedRecords, SurveyLayout, numeric_values, survey_counts

MAX_KEPT = 4097
"""The most order statistics that are kept of a column: all values of a short one, otherwise evenly spaced ones."""

MAX_COMMON = 12
"""The most frequent values that are kept of a column."""

_MISSING_OF = "missing of "


def mask_name(column: str) -> str:
    """Return the raw column that tells where a value is missing that the features have as something else."""
    return f"{_MISSING_OF}{column}"


@dataclass(frozen=True, slots=True)
class SiteColumn:
    """A numeric column of one site.

    Attributes:
        name: the column.
        ordered: float64 array, some of its values in rising order, evenly spaced; empty without values.
        common: the most frequent values and how often each occurs, most frequent first.
        distinct: how many different values there are.
        present: how many values there are.
        missing: how many records have none.
    """

    name: str
    ordered: NDArray[np.float64] = field(repr=False)
    common: tuple[tuple[float, int], ...]
    distinct: int
    present: int
    missing: int


@dataclass(frozen=True, slots=True)
class SiteSurvey:
    """A site's part of a survey.

    Attributes:
        header: float64 array, what it adds.
        columns: its numeric columns, in the order of the layout.
    """

    header: NDArray[np.float64] = field(repr=False)
    columns: tuple[SiteColumn, ...]


def site_survey(records: SurveyedRecords, layout: SurveyLayout) -> SiteSurvey:
    """Return one site's part.

    Args:
        records: its training records, before anything of them is filled in or scaled.
        layout: the columns of the plan's survey.
    """
    values = numeric_values(records.features, layout)
    columns = tuple(site_column(column.name, values[:, place]) for place, column in enumerate(layout.numeric))
    return SiteSurvey(survey_counts(records, layout), columns)


def site_column(name: str, values: NDArray[np.float64]) -> SiteColumn:
    """Return the description of one column, float64 array (records,) with NaN for what is missing."""
    ordered = np.sort(values[~np.isnan(values)])
    present = len(ordered)
    distinct, counts = np.unique(ordered, return_counts=True)
    most = np.lexsort((distinct, -counts))[:MAX_COMMON]
    common = tuple((float(distinct[place]), int(counts[place])) for place in most)
    if present > MAX_KEPT:
        ordered = ordered[np.linspace(0, present - 1, MAX_KEPT).round().astype(np.int64)]
    return SiteColumn(name, ordered, common, len(distinct), present, len(values) - present)
