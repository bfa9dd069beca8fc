"""Which statistics a result tells: how seldom a number of too few records is shown, and what does not follow."""

import math

import numpy as np
import pytest

from fedfair.aggregation.column_statistics import statistics_counts, statistics_layout, statistics_summary
from fedfair.aggregation.survey import SurveyedRecords
from fedfair.plan.schema import Plan
from fedfair.report.statistics_section import statistics_of, statistics_page, statistics_table
from fedfair.results.column_statistics import CHANCE, statistics_fields, statistics_result
from fedfair.results.document import ResultDocument, to_text
from fedfair.results.reading import parse_result
from fedfair.results.writing import Setting
from tests.statistics_plans import NAMES, stated

FEW = 19
"""One less than the plan's min_group."""


def told(plan: Plan, north: int, south: int, seed: int | None = None) -> dict[str, float | None]:
    """Return the counts of wards that a result tells."""
    asked = statistics_layout(plan)
    wards = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [north, south], axis=0)
    features = np.hstack([np.full((north + south, 2), 50.0), np.tile([1.0, 0.0, 0.0], (north + south, 1)), wards])
    header = statistics_counts(SurveyedRecords(features, np.zeros(len(features))), asked)
    if seed is not None and asked.noise is not None:
        header = header + sum(
            asked.noise.share(len(header), seed * len(NAMES) + each) for each in range(len(NAMES))
        )
    found = statistics_fields(plan, statistics_summary(header, len(NAMES), asked), Setting.DEPLOYMENT)
    return {row.cell: row.value for row in found.rows if row.column == "ward"}


def test_under_noise_a_number_of_too_few_records_is_shown_as_seldom_as_stated() -> None:
    plan = Plan.model_validate(stated(columns={"ward": {"count": True}}))
    draws = 1500
    shown = [told(plan, FEW, 400, seed) for seed in range(draws)]
    often = sum(each["north"] is not None for each in shown) / draws
    assert often <= CHANCE + 5 * math.sqrt(CHANCE / draws)
    # What is of many records is shown, and is about right.
    assert all(each["south"] is not None and abs(each["south"] - 400) < 80 for each in shown)


@pytest.mark.parametrize(
    ("north", "south", "expected"),
    [
        (40, 30, {"north": 40.0, "south": 30.0, "other": 0.0}),
        # One alone would follow from the number of all records.
        (FEW, 400, {"north": None, "south": None, "other": 0.0}),
    ],
)
def test_without_noise_no_small_number_follows_from_the_others(
    north: int, south: int, expected: dict[str, float | None]
) -> None:
    assert (
        told(Plan.model_validate(stated(columns={"ward": {"count": True}}, epsilon=None)), north, south)
        == expected
    )


def document(*, epsilon: float | None = 1.0) -> ResultDocument:
    plan = Plan.model_validate(stated(epsilon=epsilon, by="sex"))
    asked = statistics_layout(plan)
    features = np.tile([6.0, 50.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0], (300, 1))
    header = statistics_counts(SurveyedRecords(features, np.zeros(300)), asked)
    summary = statistics_summary(header, 4, asked)
    return statistics_result(plan, "sha256:" + "0" * 64, summary, Setting.DEPLOYMENT, seconds=1.0, costs=())


def test_a_result_is_read_back_and_its_table_and_page_hold_its_numbers() -> None:
    made = document()
    read = parse_result(to_text(made), "result.json")
    assert read.statistics == made.statistics
    assert read.statistics is not None
    assert read.statistics.epsilon == 1.0
    assert "(ε=" in read.statistics.statement
    assert "4 honest shares of noise" in read.statistics.statement
    page = statistics_page({"result.json": read})
    assert "20 to 40" in page
    assert "<script" not in page
    assert statistics_table(read.statistics).row_count == len(read.statistics.rows)


def test_exact_statistics_say_that_nothing_protects_them() -> None:
    found = document(epsilon=None).statistics
    assert found is not None
    assert (found.epsilon, found.noise_deviation) == (None, None)
    assert found.statement.startswith("no noise was added")
    assert {row.error for row in found.rows if row.value is not None} == {0.0}


def test_results_of_models_are_no_statistics() -> None:
    assert statistics_of({}) == {}
