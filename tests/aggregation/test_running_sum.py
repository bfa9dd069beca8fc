"""The running sum: what it adds, what it refuses, and what a refusal leaves behind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.contribution import Contribution, encode
from fedfair.aggregation.running_sum import PlainSum
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError, RemoteProtocolError, TrainingError
from fedfair.statistics.table import Purpose

DOUBLE = np.dtype("<f8")
SINGLE = np.dtype("<f4")


def spec(header: int = 2, body: int = 3, dtype: np.dtype[np.floating] = DOUBLE) -> SumSpec:
    return SumSpec(Purpose.TRAINING, header, body, dtype)


def upload(header: list[float], body: list[float], dtype: np.dtype[np.floating] = DOUBLE) -> bytes:
    shape = spec(len(header), len(body), dtype)
    return encode(Contribution(np.array(header), np.array(body, dtype)), shape)


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=30), st.permutations(range(5)))
@settings(deadline=None)
def test_the_order_of_arrival_does_not_matter(values: list[int], order: list[int]) -> None:
    # Integers below 2^53 add exactly in float64, so the totals must be equal to the last bit.
    addends = [[float(value * (k + 1)) for value in values] for k in range(5)]
    shape = spec(1, len(values))
    forward, shuffled = PlainSum(shape), PlainSum(shape)
    for k in range(5):
        forward.add(upload([1.0], addends[k]))
        shuffled.add(upload([1.0], addends[order[k]]))
    assert forward.totals().body.tolist() == shuffled.totals().body.tolist()


@given(st.integers(0, 100))
@settings(deadline=None, max_examples=25)
def test_every_wrong_length_is_refused_and_adds_nothing(length: int) -> None:
    total = PlainSum(spec())
    total.add(upload([1, 2], [3, 4, 5]))
    payload = bytes(length)
    if length == total.spec.upload_bytes:
        total.add(payload)
        assert total.totals().contributors == 2
    else:
        with pytest.raises(RemoteProtocolError, match=f"has {length} bytes, expected 40"):
            total.add(payload)
        assert total.totals().contributors == 1
    assert total.totals().body.tolist() == [3, 4, 5]


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_a_value_that_is_not_finite_is_refused_and_adds_nothing(poison: float, place: int) -> None:
    values = np.arange(5.0)
    values[place] = poison
    total = PlainSum(spec())
    with pytest.raises(RemoteProtocolError, match="NaN, an infinity"):
        total.add(values.astype("<f8").tobytes())
    with pytest.raises(LocalProtocolError, match="over no site"):
        total.totals()


@given(st.integers(1, 8), st.integers(2, 6))
@settings(deadline=None)
def test_the_float32_total_is_within_the_stated_bound(length: int, contributors: int) -> None:
    generator = np.random.default_rng(length * 100 + contributors)
    bodies = generator.normal(size=(contributors, length)).astype("<f4")
    total = PlainSum(spec(1, length, SINGLE))
    for body in bodies:
        total.add(upload([1.0], body.tolist(), SINGLE))
    exact = bodies.astype("f8").sum(axis=0)
    bound = (contributors - 1) * 2.0**-24 * np.abs(bodies.astype("f8")).sum(axis=0)
    assert (np.abs(total.totals().body - exact) <= bound * (1 + 2.0**-20)).all()


def test_uploads_add_up_and_infinities_and_other_shapes_do_not() -> None:
    total = PlainSum(spec())
    total.add(upload([1, 10], [1, 2, 3]))
    total.add(upload([2, 20], [4, 5, 6]))
    assert total.totals().header.tolist() == [3, 30]
    assert total.totals().body.tolist() == [5, 7, 9]
    assert total.totals().contributors == 2
    values = np.array([1.0, 2.0, np.inf, -np.inf, 0.0])
    with pytest.raises(RemoteProtocolError, match="NaN, an infinity"):
        PlainSum(spec()).add(values.tobytes())
    total = PlainSum(spec(1, 2, SINGLE))
    total.add(upload([1.0], [3e38, 1.0], SINGLE))
    with pytest.raises(RemoteProtocolError, match="too large to add"):
        total.add(upload([1.0], [3e38, 1.0], SINGLE))
    assert total.totals().body[1] == 1.0
    assert total.totals().contributors == 1
    with pytest.raises(TrainingError, match="2 values that are NaN or infinite; nothing was sent"):
        upload([1.0, 2.0], [np.nan, np.inf, 0.0])
    with pytest.raises(LocalProtocolError, match="the sum needs"):
        encode(Contribution(np.zeros(2), np.zeros(4)), spec())
