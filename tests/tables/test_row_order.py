"""An order for records that come without one: the same for every arrival, and only for equal records."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.plan.feature_schema import FeatureSchema
from fedfair.tables.dataset import Dataset
from fedfair.tables.row_order import digest_in_order, in_canonical_order, record_hashes

WORDS = 2**64


def records(count: int, seed: int = 0) -> Dataset:
    random = np.random.default_rng(seed)
    features = random.integers(0, 3, (count, 4)) / 7
    features[random.random((count, 4)) < 0.1] = np.nan
    wards = np.array([f"ward {number}" for number in random.integers(0, 3, count)], np.str_)
    return Dataset(features, random.integers(0, 2, count), FeatureSchema((4,), 2), {"ward": wards})


def as_tuples(dataset: Dataset) -> list[tuple[object, ...]]:
    rows = zip(dataset.features.tolist(), dataset.labels.tolist(), dataset.columns["ward"].tolist(), strict=True)
    return [(*("missing" if value != value else value for value in row), label, ward) for row, label, ward in rows]  # noqa: PLR0124 - NaN


@given(st.integers(1, 60), st.integers(0, 5), st.randoms(use_true_random=False))
def test_any_arrival_ends_in_one_order(count: int, seed: int, random: object) -> None:
    dataset = records(count, seed)
    order = list(range(count))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = dataset.take(np.array(order))
    one, hashes = in_canonical_order(dataset, record_hashes(dataset))
    other, other_hashes = in_canonical_order(shuffled, record_hashes(shuffled))
    assert as_tuples(one) == as_tuples(other)
    assert sorted(map(str, as_tuples(one))) == sorted(map(str, as_tuples(dataset)))
    assert digest_in_order(hashes) == digest_in_order(other_hashes)


def slow_hash(features: list[float], label: int, ward: str) -> int:
    import hashlib
    import struct

    def mixed(value: int) -> int:
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORDS
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORDS
        return value ^ (value >> 31)

    found = mixed(label)
    for number in features:
        bits = 0x7FF8000000000000 if number != number else int.from_bytes(struct.pack("<d", number), "little")  # noqa: PLR0124 - NaN
        found = mixed((found * 0x9E3779B97F4A7C15 + bits) % WORDS)
    text = int.from_bytes(hashlib.sha256(ward.encode()).digest()[:8], "little")
    return mixed((found * 0x9E3779B97F4A7C15 + text) % WORDS)


def test_hashes_are_those_of_the_formula_and_depend_on_records_and_order() -> None:
    dataset = records(3000)
    hashes = record_hashes(dataset).tolist()
    by_record = dict(zip(as_tuples(dataset), hashes, strict=True))
    assert [by_record[record] for record in as_tuples(dataset)] == hashes
    assert len(set(by_record.values())) == len(by_record)
    features = np.array([[0.5, -0.0], [np.nan, 3.0]])
    wards = np.array(["a", "ü"], np.str_)
    dataset = Dataset(features, np.array([1, 0]), FeatureSchema((2,), 2), {"ward": wards})
    assert record_hashes(dataset).tolist() == [
        slow_hash([0.5, 0.0], 1, "a"),
        slow_hash([float("nan"), 3.0], 0, "ü"),
    ]
    hashes: NDArray[np.uint64] = np.array([1, 2], np.uint64)
    assert digest_in_order(hashes) != digest_in_order(hashes[::-1])
    assert digest_in_order(hashes).startswith("sha256:")
