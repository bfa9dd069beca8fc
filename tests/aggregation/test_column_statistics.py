"""Statistics of columns: against pandas, the most that a record adds by brute force, totals that cannot be."""

import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.aggregation.column_statistics import (
    EXACT_SCALE,
    Estimate,
    StatisticsLayout,
    record_parts,
    statistics_counts,
    statistics_layout,
    statistics_question,
    statistics_summary,
)
from fedfair.aggregation.survey import SurveyedRecords
from fedfair.errors import RemoteProtocolError
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.statistics.column_statistics.header import check_statistics
from fedfair.tables.source import load_federation
from tests.statistics_plans import ASKED, NAMES, RECORDS, rows, stated, write_tables

NAN = math.nan
SEX, WARD = np.eye(3), np.eye(3)


def layout(**statistics: object) -> StatisticsLayout:
    return statistics_layout(Plan.model_validate(stated(**statistics)))


def records(*told: tuple[float, float, int, int]) -> SurveyedRecords:
    """Return records of glucose, age, and the places of sex and ward among their two values and other."""
    features = np.array([[glucose, age, *SEX[sex], *WARD[ward]] for glucose, age, sex, ward in told])
    return SurveyedRecords(features.reshape(len(told), 8), np.zeros(len(told)))


def found(estimates: tuple[Estimate, ...]) -> dict[tuple[str, str, str, str], float | None]:
    return {(each.group, each.column, each.statistic, each.cell): each.value for each in estimates}


def test_a_total_worked_by_hand() -> None:
    asked = layout(epsilon=None)
    one = statistics_counts(records((5.0, 10.0, 0, 0), (NAN, 20.0, 1, 2), (7.0, 79.9, 0, 1)), asked)
    two = statistics_counts(records((50.0, 80.0, 1, 1), (NAN, NAN, 1, 1)), asked)
    summary = statistics_summary(one + two, 2, asked)
    told = found(summary.estimates)
    assert told["", "", "records", ""] == 5
    ages = [told["", "age", "count", cell] for cell in asked.histograms[0].cells]
    # Below 20, three bins of which each holds its lower edge, 80 or more, and missing.
    assert ages == [1, 1, 0, 1, 1, 1]
    assert [told["", "ward", "count", cell] for cell in ("north", "south", "other")] == [1, 3, 1]
    assert told["", "age", "mean", ""] == pytest.approx((10 + 20 + 79.9 + 80) / 4, abs=120 / EXACT_SCALE)
    # 50 is beyond the range of the mean, and counts as its end.
    assert told["", "glucose", "mean", ""] == pytest.approx((5 + 7 + 20) / 3, abs=18 / EXACT_SCALE)


def test_without_noise_every_number_is_that_of_pandas(tmp_path: Path) -> None:
    write_tables(tmp_path)
    plan = Plan.model_validate(stated(epsilon=None, by="sex"))
    sites = load_federation(plan, tmp_path)
    asked = statistics_layout(plan)
    total: NDArray[np.float64] = np.sum([site.counted for site in sites.values()], axis=0)
    check_statistics(total, asked)
    told = found(statistics_summary(total, len(sites), asked).estimates)
    frame = pd.concat([pd.read_csv(io.StringIO(rows(place, RECORDS))) for place in range(len(NAMES))])
    edges = [-math.inf, 20, 40, 60, 80, math.inf]
    cells = asked.histograms[0].cells
    for sex, group in frame.groupby("sex"):
        assert told[str(sex), "", "records", ""] == len(group)
        counts = pd.cut(group["age"], edges, right=False, labels=cells[:-1]).value_counts()
        assert {cell: told[str(sex), "age", "count", cell] for cell in cells[:-1]} == counts.to_dict()
        wards = group["ward"].value_counts()
        assert told[str(sex), "ward", "count", "north"] == wards["north"]
        assert told[str(sex), "ward", "count", "other"] == wards["attic"]
        # A value is off by half a step of half the range.
        ends = {"age": (0.0, 120.0), "glucose": (2.0, 20.0)}
        for name, (least, greatest) in ends.items():
            exact = group[name].clip(least, greatest).mean()
            off = 0.5 * (greatest - least) / EXACT_SCALE
            assert told[str(sex), name, "mean", ""] == pytest.approx(exact, abs=off)


RECORD = st.tuples(
    st.one_of(st.floats(-1e6, 1e6), st.just(NAN)),
    st.one_of(st.floats(-1e6, 1e6), st.just(NAN)),
    st.integers(0, 2),
    st.integers(0, 2),
)


@given(st.lists(RECORD, max_size=5), RECORD, st.sampled_from([None, "sex"]), st.sampled_from([None, 1.0]))
@settings(max_examples=150, deadline=None)
def test_no_neighbouring_tables_differ_by_more_than_the_stated_norms(
    table: list[tuple[float, float, int, int]],
    record: tuple[float, float, int, int],
    by: str | None,
    epsilon: float | None,
) -> None:
    plan = Plan.model_validate(stated(epsilon=epsilon, by=by))
    asked = statistics_layout(plan)
    assert plan.statistics is not None
    assert isinstance(plan.task.data, CsvSource)
    parts = record_parts(plan.statistics, plan.task.data.csv)
    assert asked.noise is None or asked.noise.parts == parts
    change = statistics_counts(records(*table, record), asked) - statistics_counts(records(*table), asked)
    assert np.array_equal(change, np.rint(change))
    assert np.abs(change).max() <= asked.scale
    assert np.abs(change).sum() <= parts * asked.scale
    assert (change**2).sum() <= parts * asked.scale**2


def test_the_stated_norms_are_attained_so_that_no_noise_is_wasted() -> None:
    asked = layout(by="sex")
    assert asked.noise is not None
    change = statistics_counts(records((20.0, 120.0, 1, 0)), asked)
    assert np.abs(change).sum() == asked.noise.parts * asked.scale
    assert (change**2).sum() == asked.noise.parts * asked.scale**2


def test_the_order_in_which_statistics_are_written_changes_nothing() -> None:
    turned = dict(reversed(ASKED.items()))
    assert layout(columns=turned) == layout()
    first, other = (Plan.model_validate(stated(columns=columns)) for columns in (dict(ASKED), turned))
    assert statistics_question(first) == statistics_question(other)


def test_under_noise_estimates_have_the_error_that_they_state() -> None:
    asked, members = layout(), len(NAMES)
    assert asked.noise is not None
    noise, header = asked.noise, statistics_counts(records(*((6.0, 50.0, 0, 0),) * 400), asked)
    draws = 400
    shares = noise.share(draws * members * len(header), 7).reshape(draws, members, len(header)).sum(axis=1)
    told = [found(statistics_summary(header + each, members, asked).estimates) for each in shares]
    stated_of = {
        (each.group, each.column, each.statistic, each.cell): each.error
        for each in statistics_summary(header, members, asked).estimates
    }
    for key, exact in {
        ("", "", "records", ""): 400.0,
        ("", "ward", "count", "north"): 400.0,
        ("", "age", "mean", ""): 50.0,
        ("", "glucose", "mean", ""): 6.0,
    }.items():
        values = np.array([each[key] for each in told], float)
        # 400 draws tell a deviation to 1 / sqrt(800), and the mean to a twentieth of it.
        assert np.std(values) == pytest.approx(stated_of[key], rel=5 / math.sqrt(2 * draws))
        assert abs(values.mean() - exact) < 5 * stated_of[key] / math.sqrt(draws) + 0.05 * stated_of[key]


@pytest.mark.parametrize(
    ("field", "place", "value", "fault"),
    [
        ("records", 0, 0.0, "0 records"),
        ("cells", 0, -1.0, "no whole number of records"),
        ("cells", 0, 3.0, "cells of age that do not add up"),
        ("present", 0, 3.0, "a sum beyond its values"),
        ("sums", 0, 2.5, "a sum beyond its values"),
    ],
)
def test_a_total_that_no_records_have_is_refused(field: str, place: int, value: float, fault: str) -> None:
    asked = layout(epsilon=None)
    total = statistics_counts(records((5.0, 30.0, 0, 0), (6.0, 50.0, 1, 1)), asked)
    check_statistics(total, asked)
    asked.header.read(total)[field].reshape(-1)[place] = value * EXACT_SCALE
    with pytest.raises(RemoteProtocolError, match=fault):
        check_statistics(total, asked)


def test_a_total_that_is_not_whole_is_refused_under_noise_too() -> None:
    asked = layout()
    with pytest.raises(RemoteProtocolError, match=r"of the number 0\.5"):
        check_statistics(asked.header.zeros() + 0.5, asked)
