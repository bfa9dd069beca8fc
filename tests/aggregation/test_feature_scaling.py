"""Means and scales from sums, against those of the pooled values; missing values, units and masks included."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.feature_moments import column_sums, unit_of
from fedfair.aggregation.feature_scaling import MAX_SQUARES, scale_columns, scaling_from_sums
from fedfair.aggregation.masked_encoding import header_parts, plain_totals, sum_shapes
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.sum_kinds import MAX_INTEGER
from fedfair.errors import DataError, RemoteProtocolError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.secagg.fixedpoint import decode_header, encode_header
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.simulation.simulate import simulate
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset
from fedfair.tables.numeric_columns import check_columns
from fedfair.tables.source import load_federation
from fedfair.training.masked_update import header_update
from tests import plans

SITE = ParticipantId("clinic-a")
Array = NDArray[np.float64]


def totals(parts: list[Array], units: tuple[float, ...] = ()) -> Array:
    return np.sum([column_sums(part.T, part.shape[1], units) for part in parts], axis=0)


def plan(table: dict[str, object] | None = None, standardize: str = "secure") -> Plan:
    csv = {
        "label": "died", "numeric": ["age", "chol"], "missing": "mean", "collaborator": "clinic", **(table or {}),
    }  # fmt: skip
    return plans.parsed(
        ("clinic-a", "clinic-b"),
        task={"data": {"csv": csv}, "standardize": standardize},
        training={"algorithm": "fedavg", "rounds": 2, "batch_size": "full", "precision": "fp64"},
    )


@settings(deadline=None, max_examples=40)
@given(
    values=st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    range_exponent=st.integers(-40, 40),
)
def test_scaling_is_that_of_all_values(values: list[float], cuts: list[int], range_exponent: int) -> None:
    column: Array = np.array(values)[:, None]
    parts = np.split(column, sorted(min(cut, len(values)) for cut in cuts))
    present = column[~np.isnan(column)]
    scaling = scaling_from_sums(totals(parts))
    size = np.abs(present).max(initial=0.0)
    # Sums of up to 30 numbers: 30 roundings of the largest; the variance loses that much of the mean square.
    mean, variance = (float(present.mean()), float(present.var())) if len(present) else (0.0, 0.0)
    assert abs(float(scaling.mean[0]) - mean) <= 64 * 2.0**-52 * size
    slack = 64 * 2.0**-52 * size**2
    assert abs(float(scaling.scale[0]) ** 2 - variance) <= slack or (scaling.scale[0] == 1.0 and variance <= slack)
    units = (2.0**range_exponent,)
    counted = scaling_from_sums(totals(parts, units), units)
    if size == 0.0 or size > 1e-100:  # squares of smaller numbers are subnormal in one unit and not in another
        assert counted.mean.tobytes() == scaling.mean.tobytes()
        assert counted.scale.tobytes() == scaling.scale.tobytes()


def test_columns_that_nobody_measured_or_that_are_constant_are_not_blown_up() -> None:
    nan = float("nan")
    parts = [np.array([[1.0, nan], [3.0, nan]]), np.array([[5.0, 10.0], [7.0, 30.0]])]
    scaling = scaling_from_sums(totals(parts))
    assert scaling.mean.tolist() == [4.0, 20.0]
    assert scaling.scale.tolist() == [np.sqrt(5.0), 10.0]
    assert scale_columns(parts[0], (0, 1), scaling)[:, 1].tolist() == [0.0, 0.0]
    empty = np.full((3, 1), np.nan)
    scaling = scaling_from_sums(totals([empty, empty]))
    assert (scaling.mean.tolist(), scaling.scale.tolist()) == ([0.0], [1.0])
    assert scale_columns(empty, (0,), scaling).tolist() == [[0.0], [0.0], [0.0]]
    column = np.full((1000, 1), 1e8 + 0.1)
    scaling = scaling_from_sums(column_sums(column.T, 1))
    # Its mean is off by at most 1000 roundings of 2^-53; anything but zero after scaling is that.
    assert np.abs(scale_columns(column, (0,), scaling)).max() <= 1000 * 2.0**-53 * 1e8
    assert scaling_from_sums(column_sums([np.full(1000, 3.3)], 1)).scale.tolist() == [1.0]


@pytest.mark.parametrize(("origin", "width"), [(1.7e12, 3.6e6), (1e9, 10.0), (-1e15, 1e7), (1e6, 1.0)])
def test_a_column_too_far_from_zero_to_be_told_from_a_constant_is_scaled(origin: float, width: float) -> None:
    """Milliseconds since 1970 within one hour: the sums cannot show how they vary, but they bound by how much."""
    column = origin + width * np.random.default_rng(3).uniform(-0.5, 0.5, (10_000, 1))
    scaling = scaling_from_sums(column_sums(column.T, 1))
    deviation = float(column.std())
    # The mean square carries n = 10^4 roundings of 2^-52 of it, and so does the largest deviation that they hide.
    assert deviation * (1 - 1e-3) <= scaling.scale[0] <= max(1.0, 2 * np.sqrt(1e4 * 2.0**-52) * abs(origin))
    assert np.abs(scale_columns(column, (0,), scaling)).max() <= 2.0


@given(st.floats(-1e300, 1e300), st.floats(1e-300, 1e300))
def test_a_range_fits_its_unit(least: float, width: float) -> None:
    greatest = least + width
    unit = unit_of(least, greatest)
    assert max(abs(least), abs(greatest)) <= unit
    assert np.frexp(unit)[0] == 0.5


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([1e-9, 1.0, 1e9]), st.integers(2, 8))
def test_masks_change_the_scaling_by_less_than_their_rounding(seed: int, size: float, sites: int) -> None:
    source = np.random.default_rng(seed)
    parts = [source.uniform(-size, size, (20, 3)) for _ in range(sites)]
    for part in parts:
        part[source.uniform(size=part.shape) < 0.3] = np.nan
    units = (unit_of(-size, size),) * 3
    schema = FeatureSchema((3,), 2, (0, 1, 2), units=units)
    layout = Layout((LayoutEntry("w", (1,)),), np.dtype(np.float64))
    shape = sum_shapes(plan(), layout, schema)["standardisation"]
    parts_of = header_parts(plan(), schema)[Purpose.STANDARDISATION]
    total = np.zeros(sum(run.length for run in shape.header), np.uint64)
    for part in parts:
        update = header_update(Contribution(column_sums(part.T, part.shape[1], units), np.zeros(0)), parts_of)
        total += encode_header(update.header, shape.header, sites)
    opened = OpenedSum(
        "standardisation", (1, 2), sites, sites, decode_header(total, shape.header, sites), np.zeros(0), 0, (), ()
    )
    masked = scaling_from_sums(plain_totals(opened, parts_of).header, units)
    plain = scaling_from_sums(totals(parts, units), units)
    # In units, values are at most 1 and a sum is off by 2^-56 a site and by its own rounding, 160 * 2^-53, while
    # a mean square of uniform values is near 1/12 of the unit's square or more (the unit is at most twice the
    # size): a relative error of some 2^-40, with room for few values.
    np.testing.assert_allclose(masked.mean, plain.mean, atol=2.0**-40 * size)
    np.testing.assert_allclose(masked.scale, plain.scale, rtol=2.0**-40)


@pytest.mark.parametrize(("value", "word"), [(2.0**27 * 1.01, "large"), (-1e200, "large"), (2.0**-21, "small")])
def test_a_value_that_no_masked_sum_could_hold_is_refused_with_column_and_record(value: float, word: str) -> None:
    features = np.zeros((4, 2))
    features[2, 1] = value
    schema = FeatureSchema((2,), 2, (0, 1), ("age", "cells"))
    records = Dataset(features, np.zeros(4, np.int64), schema)
    with pytest.raises(DataError) as caught:
        check_columns(records, SITE)
    assert caught.value.message == (
        f"numeric column 'cells' of clinic-a: the greatest value, {value:g} in record 3 of 4, is too {word} for "
        "the standardisation sum"
    )
    assert "ranges in the plan's csv" in caught.value.remedy
    unit = unit_of(-abs(value), abs(value))
    declared = FeatureSchema((2,), 2, (0, 1), ("age", "cells"), (1.0, unit))
    check_columns(Dataset(features, records.labels, declared), SITE)


ROWS = ("age,chol,died,clinic", "50,?,0,clinic-a", "70,,1,clinic-a", "60,200,0,clinic-b", "40,300,1,clinic-b")


def test_missing_numbers_are_the_overall_mean_where_features_are_standardised(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("\n".join(ROWS))
    sites = load_federation(plan({"train": "all.csv"}), tmp_path)
    assert np.isnan(sites[SITE].train.features[:, 1]).all()
    outcome = simulate(plan({"train": "all.csv"}), tmp_path)
    # The same federation with scaled numbers in its file: ages 50, 70, 60, 40 and chol 200, 300 where present.
    ages, cholesterol = (np.array([50, 70, 60, 40]) - 55) / np.sqrt(125), np.array([0, 0, -1, 1])
    rows = zip(ages.tolist(), cholesterol.tolist(), "0101", "aabb", strict=True)
    lines = [f"{age!r},{chol},{died},clinic-{clinic}" for age, chol, died, clinic in rows]
    (tmp_path / "scaled.csv").write_text("\n".join([ROWS[0], *lines]))
    expected = simulate(plan({"train": "scaled.csv"}, "none"), tmp_path)
    assert np.abs(expected.model.vector).max() > 0.01
    # Two rounds over features that differ in the last digits, in float64.
    np.testing.assert_allclose(outcome.model.vector, expected.model.vector, atol=1e-13)


def test_impossible_counts_and_ranges_beyond_a_masked_sum_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RemoteProtocolError, match="a numeric column has 3 values in 2 training records"):
        scaling_from_sums(np.array([2.0, 3.0, 1.0, 1.0]))
    (tmp_path / "all.csv").write_text("\n".join(ROWS).replace("300", "3e9"))
    with pytest.raises(DataError, match=r"'chol' of clinic-b: the greatest value, 3e\+09 in record 2 of 2"):
        load_federation(plan({"train": "all.csv"}), tmp_path)
    load_federation(plan({"train": "all.csv", "ranges": {"chol": [0, 1e10]}}), tmp_path)
    assert MAX_SQUARES == MAX_INTEGER
    (tmp_path / "all.csv").write_text("\n".join(ROWS))
    with pytest.raises(
        DataError, match="'chol' has no value in any of the 2 training records of clinic-a"
    ) as caught:
        load_federation(plan({"train": "all.csv"}, "none"), tmp_path)
    assert "standardize: secure" in caught.value.remedy
