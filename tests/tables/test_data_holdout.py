import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.tables.dataset import Dataset
from fedfair.tables.holdout import hold_out

CLINIC, OTHER = ParticipantId("clinic-a"), ParticipantId("clinic-b")


def records(n: int, persons: np.ndarray | None = None) -> Dataset:
    columns = {} if persons is None else {"person": persons}
    features, labels = np.arange(n, dtype=float)[:, None], np.zeros(n, np.int64)
    return Dataset(features, labels, FeatureSchema((1,), 2), columns, "person" if columns else None)


def identities(dataset: Dataset | None) -> list[float]:
    return [] if dataset is None else dataset.features[:, 0].tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(5, 200), st.floats(0, 0.4), st.floats(0, 0.4), st.integers(0, 9))
def test_every_record_is_on_exactly_one_side_and_the_sizes_are_within_one(
    n: int, test_fraction: float, validation_fraction: float, seed: int
) -> None:
    splits = hold_out(records(n), test_fraction, validation_fraction, seed, CLINIC)
    parts = [identities(part) for part in (splits.train, splits.validation, splits.test)]
    assert sorted(itertools.chain(*parts)) == list(range(n))
    assert abs(len(parts[2]) - test_fraction * n) <= 1
    assert abs(len(parts[1]) - validation_fraction * n) <= 1


@settings(deadline=None, max_examples=30)
@given(st.integers(9, 200), st.sampled_from([2, 3, 4, 5]), st.floats(0, 0.2), st.integers(0, 9))
def test_the_folds_of_one_seed_test_every_record_once(n: int, folds: int, validation: float, seed: int) -> None:
    parts = [hold_out(records(n), 1 / folds, validation, seed, CLINIC, fold) for fold in range(1, folds + 1)]
    assert sorted(itertools.chain(*(identities(part.test) for part in parts))) == list(range(n))
    for part in parts:
        held = [identities(each) for each in (part.train, part.validation, part.test)]
        assert sorted(itertools.chain(*held)) == list(range(n))


def test_nothing_is_held_out_without_fractions_and_not_everything() -> None:
    splits = hold_out(records(3), 0, 0, 0, CLINIC)
    assert (len(splits.train), splits.validation, splits.test) == (3, None, None)
    with pytest.raises(DataError, match="clinic-a has 1 records, and holding out leaves none"):
        hold_out(records(1), 0.6, 0, 0, CLINIC)


def test_where_records_are_protected_one_more_of_them_moves_no_other() -> None:
    source = np.random.Generator(np.random.PCG64(3))
    everybody = Dataset(source.normal(size=(200, 2)), source.integers(0, 2, 200), FeatureSchema((2,), 2))

    def held_out(data: Dataset, *, by_record: bool) -> set[bytes]:
        test = hold_out(data, 0.3, 0.2, 1, ParticipantId("a"), by_record=by_record).test
        assert test is not None
        return {row.tobytes() for row in test.features}

    without_one = everybody.take(np.arange(1, 200))
    before, after = (held_out(data, by_record=True) for data in (everybody, without_one))
    assert before - {everybody.features[0].tobytes()} == after
    # A share of 0.3 of 200 independent draws is 60 give or take 6.5; five deviations are 33.
    assert abs(len(before) - 60) <= 33
    # The contrast: positions in a shuffled list do move, which is why they are not used there.
    assert held_out(everybody, by_record=False) - held_out(without_one, by_record=False)


def test_folds_are_disjoint_for_persons_and_records_and_repeat_themselves() -> None:
    persons = np.array([f"p{i // 3}" for i in range(60)])
    tests = [hold_out(records(60, persons), 0.25, 0.1, 0, CLINIC, fold).test for fold in (1, 2, 3, 4)]
    sides = [set(part.columns["person"]) for part in tests if part is not None]
    assert sum(len(side) for side in sides) == len(set(persons)) == len(set.union(*sides))
    source = np.random.Generator(np.random.PCG64(4))
    data = Dataset(source.normal(size=(90, 2)), source.integers(0, 2, 90), FeatureSchema((2,), 2))
    found: list[bytes] = []
    for fold in (1, 2, 3):
        test = hold_out(data, 1 / 3, 0.0, 1, ParticipantId("a"), fold, by_record=True).test
        assert test is not None
        found += [row.tobytes() for row in test.features]
    assert sorted(found) == sorted(row.tobytes() for row in data.features)
    first, again = (identities(hold_out(records(50), 0.2, 0, 7, CLINIC).test) for _ in range(2))
    assert first == again
    assert identities(hold_out(records(50), 0.2, 0, 7, OTHER).test) != first
    assert identities(hold_out(records(50), 0.2, 0, 8, CLINIC).test) != first
    persons = np.array([f"p{i // 3}" for i in range(600)])
    both = {site: hold_out(records(600, persons), 0.3, 0.1, 0, site) for site in (CLINIC, OTHER)}
    sides = [set(splits.test.columns["person"]) for splits in both.values() if splits.test is not None]
    assert sides[0] == sides[1]
    assert sides[0].isdisjoint(both[OTHER].train.columns["person"])
    # 200 persons, each on the test side with probability 0.3: six standard deviations are 39 persons.
    assert abs(len(sides[0]) - 60) <= 39
