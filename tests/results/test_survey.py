"""What a result tells of a survey: no small group, and none that follows from what is told."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.survey import (
    NumericColumn,
    SurveyedCategory,
    SurveyedRecords,
    SurveyLayout,
    summarised,
    survey_counts,
)
from fedfair.aggregation.survey_grid import ColumnGrid
from fedfair.report.survey_section import survey_parts
from fedfair.results.survey import SurveyFields, survey_words

FEWEST = 6
LAYOUT = SurveyLayout(
    (NumericColumn("value", 0, ColumnGrid(), 1.0),), (SurveyedCategory("sex", ("F", "M", "other"), (1, 2, 3)),), 2
)


def told(values: list[float], sexes: list[int], labels: list[int], unknown: int = 0) -> SurveyFields:
    features = np.column_stack([np.array(values), np.eye(3)[sexes]])
    records = SurveyedRecords(features, np.array(labels), (unknown,))
    return survey_words(summarised(survey_counts(records, LAYOUT), LAYOUT), FEWEST)


def spread_out(counts: tuple[int, ...]) -> list[int]:
    return [place for place, count in enumerate(counts) for _ in range(count)]


def worlds(shown: tuple[int | None, ...], records: int) -> Iterator[tuple[int, ...]]:
    """Yield all counts that what is told leaves possible; a hidden one is above 0."""
    places = [place for place, count in enumerate(shown) if count is None]
    rest = records - sum(count for count in shown if count is not None)
    for hidden in itertools.product(range(1, rest + 1), repeat=len(places)):
        if sum(hidden) == rest:
            world = list(shown)
            for place, count in zip(places, hidden, strict=True):
                world[place] = count
            yield tuple(count or 0 for count in world)


@given(st.lists(st.integers(0, 8), min_size=3, max_size=3).map(tuple).filter(any))
def test_no_small_count_follows_from_the_others_and_the_sum(counts: tuple[int, ...]) -> None:
    records = sum(counts)
    found = told([1.0] * records, spread_out(counts), [0] * records)
    shown = tuple(found.categories["sex"].counts.values())
    assert all(known is None or known == count for known, count in zip(shown, counts, strict=True))
    if sum(1 for count in counts if count) < 2:
        return
    left = list(worlds(shown, records))
    assert counts in left
    for place, count in enumerate(counts):
        if 0 < count < FEWEST:
            # All that can be known of it is that somebody has this value, or the group that it is in is large.
            assert len({world[place] for world in left}) > 1 or records < FEWEST
    hidden = sum(count for known, count in zip(shown, counts, strict=True) if known is None)
    assert not 0 < hidden < min(FEWEST, records)


@pytest.mark.parametrize("rare", [1.0, 7.0])
def test_mean_and_spread_of_a_few_values_do_not_tell_how_often_a_rare_one_is(rare: float) -> None:
    """With 60 values of 0 and of 1 a mean of 0.05 is three people."""
    column = told([0.0] * 57 + [rare] * 3, [0] * 60, [0] * 60).numeric["value"]
    assert (column.mean, column.spread) == (None, None)
    assert column.quartiles is not None
    column = told([0.0] * 40 + [rare] * 20, [0] * 60, [0] * 60).numeric["value"]
    assert column.mean == pytest.approx(rare / 3)


def test_small_classes_missing_values_and_few_records_stay_hidden() -> None:
    found = told([1.0] * 60, [0] * 60, [0] * 57 + [1] * 3)
    assert found.labels == (None, None)
    assert told([1.0] * 60, [0] * 60, [0] * 40 + [1] * 20).labels == (40, 20)
    column = told([float("nan")] * 3 + [1.0] * 57, [0] * 60, [0] * 60).numeric["value"]
    assert (column.present, column.missing) == (None, None)
    column = told([float("nan")] * 57 + [1.0] * 3, [0] * 60, [0] * 60).numeric["value"]
    assert (column.present, column.missing, column.mean, column.quartiles) == (None, None, None, None)
    assert told([1.0] * 60, [0] * 40 + [2] * 20, [0] * 60, unknown=15).categories["sex"].missing is None
    assert told([1.0] * 60, [0] * 40 + [2] * 20, [0] * 60, unknown=5).categories["sex"].missing is None
    assert told([1.0] * 60, [0] * 40 + [2] * 20, [0] * 60, unknown=20).categories["sex"].missing == 20
    page = survey_parts(told([float("nan")] * 3 + [0.0] * 54 + [1.0] * 3, [0] * 60, [0] * 57 + [1] * 3))
    assert "class 0: too few people, class 1: too few people" in page
    assert page.count("too few people") == 4
    assert "None" not in page
