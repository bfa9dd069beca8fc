"""The survey in a result: the training records of all sites column by column, before round 1.

Nothing is reported of a group of fewer people than the plan's `evaluation.min_group`. A count of that kind is
null, and so are mean, spread and quartiles of so few values. What is null must not follow from what is reported.
So where counts of values or classes add up to the records, the least of the others is null as well, until those
that are null are of enough people together. Nobody learns a few missing values from the number of those that are
there. And mean and spread of a column of at most three values are two equations for their counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedfair.aggregation.survey import CategorySummary, NumericSummary, SurveySummary
from fedfair.plan.csv_table import MISSING, OTHER
from fedfair.results.frozen import FrozenPart

Three = tuple[float, float, float]


class SurveyedNumbers(FrozenPart):
    """A numeric column of all sites."""

    present: int | None
    """how many values there are; null where few are there, or missing"""

    missing: int | None
    """how many records have none"""

    mean: float | None
    """of the values, in their unit"""

    spread: float | None
    """standard deviation of the values, divisor n"""

    quartiles: Three | None
    """estimates of the values at a quarter, a half and three quarters"""

    quartile_bounds: Three | None
    """by how much each estimate may be off at most"""


class SurveyedCategories(FrozenPart):
    """A categorical column of all sites."""

    counts: dict[str, int | None]
    """how many records have each value; other is any other one"""

    missing: int | None
    """how many records have none"""


class SurveyFields(FrozenPart):
    """The training records of all sites, described; null stands for fewer people than the plan tells of."""

    records: int
    """how many training records there are"""

    labels: tuple[int | None, ...]
    """how many of them each class has"""

    numeric: dict[str, SurveyedNumbers]
    """the numeric columns"""

    categories: dict[str, SurveyedCategories]
    """the categorical columns"""


def survey_words(found: SurveySummary, fewest: int) -> SurveyFields:
    """Return what a result tells of a survey.

    Args:
        found: the survey of all sites.
        fewest: `evaluation.min_group` of the plan.
    """
    return SurveyFields(
        records=found.records,
        labels=reported_together(found.labels, fewest),
        numeric={column.name: _numbers(column, fewest) for column in found.numeric},
        categories={column.name: _categories(column, fewest) for column in found.categories},
    )


def _reported(count: int, fewest: int) -> int | None:
    return None if 0 < count < fewest else count


def reported_together(counts: Sequence[int], fewest: int) -> tuple[int | None, ...]:
    """Return counts whose sum is known, so many of them as null that no small group follows from the others."""
    rising = sorted((count, place) for place, count in enumerate(counts) if count)
    hidden: list[int] = []
    people = 0
    for count, place in rising:
        # One alone is what the others leave of the sum, and several are of so many people together.
        if count >= fewest and (not hidden or (len(hidden) > 1 and people >= fewest)):
            break
        hidden.append(place)
        people += count
    return tuple(None if place in hidden else count for place, count in enumerate(counts))


def _numbers(column: NumericSummary, fewest: int) -> SurveyedNumbers:
    enough = column.present >= fewest
    few = None in (_reported(column.missing, fewest), _reported(column.present, fewest))
    described = enough and not column.discloses_few(fewest)
    return SurveyedNumbers(
        present=None if few else column.present,
        missing=None if few else column.missing,
        mean=column.mean if described else None,
        spread=column.spread if described else None,
        quartiles=column.quartiles if enough else None,
        quartile_bounds=column.bound if enough else None,
    )


def _categories(column: CategorySummary, fewest: int) -> SurveyedCategories:
    told = dict(zip(column.counts, reported_together(tuple(column.counts.values()), fewest), strict=True))
    # Records without a value are among those of another one, unless that is a value of its own.
    within = column.missing - column.counts.get(MISSING, 0)
    rest = column.counts[OTHER] - within
    missing: int | None = column.missing
    if (MISSING in told and told[MISSING] is None) or None in (_reported(within, fewest), _reported(rest, fewest)):
        missing = None
    return SurveyedCategories(counts=told, missing=missing)
