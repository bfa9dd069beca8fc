"""Scaling by declared ranges: every record by itself, whatever the others are."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.numeric_columns import scaled_by_ranges
from fedfair.tables.source import load_federation
from fedfair.tables.sources.acs_employment import SCHEMA as ACS
from fedfair.tables.sources.built_in import load_built_in
from fedfair.tables.sources.eicu import SCHEMA as EICU
from tests import plans

SCHEMA = FeatureSchema((3,), 2, (0, 2), ("age", "flag", "ph"), ranges=((0.0, 120.0), (6.5, 8.0)))


def scaled(rows: list[list[float]], schema: FeatureSchema = SCHEMA) -> list[list[float]]:
    data = Dataset(np.array(rows), np.zeros(len(rows), np.int64), schema)
    features: list[list[float]] = scaled_by_ranges(Splits(data)).train.features.tolist()
    return features


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=8))
def test_a_record_is_scaled_the_same_whoever_is_beside_it(rows: list[tuple[float, float]]) -> None:
    whole = [[first, 0.0, last] for first, last in rows]
    assert scaled(whole) == [scaled([row])[0] for row in whole]


def test_values_are_scaled_by_their_ranges_and_beyond_count_as_the_ends() -> None:
    assert scaled([[0.0, 7.0, 8.0], [120.0, -7.0, 6.5], [60.0, 0.5, np.nan]]) == [
        [-1.0, 7.0, 1.0], [1.0, -7.0, -1.0], [0.0, 0.5, 0.0],
    ]  # fmt: skip
    assert scaled([[-5.0, 0.0, 9.0], [1e300, 0.0, -1e300]]) == [[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]]
    most = float(np.finfo(np.float64).max)
    schema = FeatureSchema((1,), 2, (0,), ("x",), ranges=((-most, most),))
    assert scaled([[most], [0.0], [-most]], schema) == [[1.0], [0.0], [-1.0]]


@pytest.mark.parametrize("schema", [ACS, EICU, load_built_in("breast-cancer").schema], ids=["acs", "eicu", "wdbc"])
def test_published_data_declare_a_range_for_every_number(schema: FeatureSchema) -> None:
    assert len(schema.ranges) == len(schema.numeric)
    assert all(least < greatest for least, greatest in schema.ranges)


@pytest.mark.parametrize("name", ["breast-cancer", "digits"])
def test_the_bundled_records_lie_within_their_ranges(name: str) -> None:
    data = load_built_in(name)
    least, greatest = np.array(data.schema.ranges).T
    assert (least <= data.features).all()
    assert (data.features <= greatest).all()


def test_plans_scale_by_declared_ranges_only() -> None:
    with pytest.raises(PlanError, match="these data declare none"):
        scaled([[1.0, 2.0, 3.0]], FeatureSchema((3,), 2, (0, 2)))
    picture = Splits(
        Dataset(np.ones((2, 1, 4, 4), np.float32), np.zeros(2, np.int64), FeatureSchema((1, 4, 4), 2))
    )
    assert scaled_by_ranges(picture) is picture
    plan = plans.parsed(task={"partition": {"scheme": "label"}, "test_fraction": 0.2, "standardize": "ranges"})
    for site in load_federation(plan, Path()).values():
        assert site.test is not None
        for part in (site.train, site.test):
            assert np.abs(part.features).max() <= 1.0
