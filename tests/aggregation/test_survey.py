"""The survey's totals: worked by hand, against a slow oracle with all sites' records, and ones that cannot be."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.aggregation.survey import (
    SurveyedRecords,
    SurveyLayout,
    summarised,
    survey_counts,
    survey_layout,
    without,
)
from fedfair.aggregation.survey_grid import LEAST_POWER, RANGE_BINS, RELATIVE_BOUND, ColumnGrid, quantile
from fedfair.errors import RemoteProtocolError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.statistics.survey.header import check_survey
from tests import plans

TABLE = {
    "label": "died", "numeric": ["glucose", "age"], "categorical": {"sex": ["F", "M"]},
    "ranges": {"age": [0, 128]}, "missing": "mean",
}  # fmt: skip
SCHEMA = FeatureSchema((5,), 2, (0, 1), ("glucose", "age", "sex=F", "sex=M", "sex=other"))


def layout() -> SurveyLayout:
    plan = plans.parsed(task={"data": {"csv": TABLE}, "survey": True})
    return survey_layout(plan, SCHEMA)


def records(*rows: tuple[float, float, int], labels: tuple[int, ...], unknown: int = 0) -> SurveyedRecords:
    """Return records of glucose, age and the place of sex among F, M and other."""
    features = np.array([[glucose, age, *np.eye(3)[sex]] for glucose, age, sex in rows])
    return SurveyedRecords(features, np.array(labels), (unknown,))


NAN = math.nan
ONE = records((5.0, 40.0, 0), (7.0, NAN, 2), (NAN, 60.0, 1), labels=(0, 1, 1), unknown=1)
TWO = records((90.0, 50.0, 1), (126.0, 30.0, 1), labels=(0, 0))


def total(*sites: SurveyedRecords) -> NDArray[np.float64]:
    header: NDArray[np.float64] = np.sum([survey_counts(site, layout()) for site in sites], axis=0)
    return header


def test_a_total_worked_by_hand() -> None:
    found = summarised(total(ONE, TWO), layout())
    glucose, age = found.numeric
    assert (found.records, found.labels) == (5, (3, 2))
    assert (glucose.present, glucose.missing, age.present, age.missing) == (4, 1, 4, 1)
    assert glucose.mean == pytest.approx((5 + 7 + 90 + 126) / 4, rel=1e-15)
    assert age.mean == 45.0
    assert age.spread == pytest.approx(math.sqrt((25 + 225 + 25 + 225) / 4), rel=1e-14)
    sex = found.categories[0]
    assert (sex.counts, sex.missing) == ({"F": 1, "M": 3, "other": 1}, 1)
    # The second of four values is 7, in the bin from 4 sqrt(2) to 8, whose geometric middle is 4 * 2^(3/4).
    assert glucose.quartiles is not None
    assert glucose.quartiles[1] == pytest.approx(4 * 2**0.75, rel=1e-15)
    # A bin of age is 2 years wide; 40 is the first value of the bin from 40 to 42.
    assert age.quartiles == (31.0, 41.0, 51.0)
    assert age.bound == (1.0, 1.0, 1.0)


LARGE = st.floats(-(2.0**27), 2.0**27, allow_nan=False)
SMALL = st.floats(-100, 100, allow_nan=False)
POWERS = st.integers(-60, 54).map(lambda power: 2.0 ** (power / 2))
NUMBERS = LARGE | SMALL | POWERS | POWERS.map(lambda value: -value) | st.just(0.0)
VALUES = st.lists(NUMBERS, min_size=1, max_size=60)


@given(VALUES, st.sampled_from([0.25, 0.5, 0.75, 1.0]))
@settings(max_examples=100)
def test_a_quantile_is_within_the_bound_of_the_pooled_one(values: list[float], share: float) -> None:
    grid = ColumnGrid()
    half = len(values) // 2
    counts = grid.counts(np.array(values[:half])) + grid.counts(np.array(values[half:]))
    estimate = quantile(counts, grid, share)
    exact = sorted(values)[max(math.ceil(Fraction(share) * len(values)), 1) - 1]
    assert estimate is not None
    assert abs(estimate - exact) <= grid.bound(estimate) * (1 + 1e-12)
    if abs(exact) >= 2.0**LEAST_POWER:
        assert abs(estimate - exact) <= RELATIVE_BOUND * abs(exact) * (1 + 1e-12)


@given(st.lists(st.floats(-3, 17), min_size=1, max_size=60), st.sampled_from([0.25, 0.5, 0.75]))
def test_a_quantile_over_a_range_is_within_half_a_bin(values: list[float], share: float) -> None:
    grid = ColumnGrid((-3.0, 17.0))
    estimate = quantile(grid.counts(np.array(values)), grid, share)
    exact = sorted(values)[max(math.ceil(Fraction(share) * len(values)), 1) - 1]
    assert estimate is not None
    assert abs(estimate - exact) <= 20 / RANGE_BINS / 2 + 1e-12


@pytest.mark.parametrize("grid", [ColumnGrid(), ColumnGrid((-5.0, 3.0))])
def test_each_middle_is_in_its_own_bin(grid: ColumnGrid) -> None:
    assert np.array_equal(grid.places(grid.middles), np.arange(grid.bins))
    assert len(grid.edges) == grid.bins - 1
    assert (np.diff(grid.edges) > 0).all()


SITES = st.lists(
    st.lists(
        st.tuples(SMALL | st.just(NAN), st.floats(0, 128) | st.just(NAN), st.integers(0, 2), st.integers(0, 1)),
        min_size=1,
        max_size=12,
    ),
    min_size=3,
    max_size=5,
)


@given(SITES)
def test_the_sum_of_sites_is_the_survey_of_their_pooled_records(sites: list[list[tuple[float, ...]]]) -> None:
    made = [
        records(*((row[0], row[1], int(row[2])) for row in site), labels=tuple(int(row[3]) for row in site))
        for site in sites
    ]
    header = total(*made)
    check_survey(header, layout())
    found = summarised(header, layout())
    rows = [row for site in sites for row in site]
    assert found.records == len(rows)
    assert found.labels == tuple(sum(row[3] == label for row in rows) for label in (0, 1))
    for place, column in enumerate(found.numeric):
        held = [row[place] for row in rows if not math.isnan(row[place])]
        assert (column.present, column.missing) == (len(held), len(rows) - len(held))
        if held:
            assert column.mean == pytest.approx(math.fsum(held) / len(held), abs=1e-12)
            # The variance is a difference of squares of up to 128, each rounded to 2^-53 of itself.
            assert column.spread == pytest.approx(float(np.std(held)), abs=1e-5)
    counts = found.categories[0].counts
    assert list(counts.values()) == [sum(row[2] == sex for row in rows) for sex in range(3)]


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("records", (), 0.0), ("records", (), 6.0), ("labels", (0,), -1.0), ("labels", (0,), 2.5),
        ("present", (0,), 5.0), ("bins", (0,), 3.0), ("values", (0,), 4.0), ("unknown", (0,), 9.0),
        ("sums", (1,), 1e6), ("squares", (0,), 0.0),
    ],
)  # fmt: skip
def test_a_total_that_no_records_have_is_refused(name: str, place: tuple[int, ...], value: float) -> None:
    header = total(ONE, TWO)
    check_survey(header, layout())
    view = layout().header.read(header)
    if place:
        view[name][place] = value
    else:
        view[name] = value
    with pytest.raises(RemoteProtocolError, match="no records have"):
        check_survey(header, layout())


def test_what_others_have_is_the_total_without_one_site_and_signs_share_bins() -> None:
    others = without(total(ONE, TWO), total(ONE), layout())
    assert np.array_equal(others, total(TWO))
    with pytest.raises(RemoteProtocolError, match="than this site alone has added"):
        without(total(TWO), total(ONE), layout())
    grid, values = ColumnGrid(), np.array([2.0**-24, 1.0, 1.4, math.sqrt(2), 2.0, 3.0, 2.0**27])
    assert np.array_equal(grid.places(-values), grid.bins - 1 - grid.places(values))
    assert grid.places(np.array([0.0, 2.0**-25, -(2.0**-25)])).tolist() == [grid.bins // 2] * 3
    table = {**TABLE, "numeric": "all", "ranges": {}}
    plan = plans.parsed(task={"data": {"csv": table}, "survey": True, "input_shape": [5]})
    stated = FeatureSchema((5,), 2, (0, 1))
    assert survey_layout(plan, stated) == survey_layout(plan, SCHEMA)
