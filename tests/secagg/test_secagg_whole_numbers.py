"""Sums of whole numbers: exact modulo the ring, and with nothing beside them that depends on a number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError, PlanError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.client import Uploaded
from fedfair.secagg.fixedpoint import BLOCK_VALUES, BodyCode, BodyEncoder, decode_body, pack, unpack
from fedfair.secagg.masking import Update, abstention
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import Mode, SecaggPolicy
from fedfair.secagg.shape import SumShape
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of

UNIT = 0.25


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40),
    st.sampled_from([32, 24, 20, 16]),
    st.integers(2, 200),
)
def test_whole_numbers_travel_exactly_modulo_the_ring(numbers: list[int], ring_bits: int, members: int) -> None:
    code = BodyCode(ring_bits, members, 1, (len(numbers),), (1.0,), UNIT)
    words = np.empty(len(numbers), np.uint32)
    BodyEncoder(code, 1).encode(np.array(numbers), 0, np.full(len(numbers), 65535, np.uint16), words)
    travelled = np.zeros(-(-len(numbers) * ring_bits // 8), np.uint8)
    pack(words, ring_bits, travelled)
    received = np.empty_like(words)
    unpack(travelled, ring_bits, received)
    half = 1 << (ring_bits - 1)
    expected = [((number + half) % (2 * half) - half) * UNIT for number in numbers]
    assert decode_body(received, code, np.dtype(np.float64)).tolist() == expected
    assert code.sum_error(1.0, members) == 0.0


def whole_shape(length: int) -> SumShape:
    return SumShape((), (length,), UNIT)


def numbers_of(index: int, length: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(index)).integers(-(2**20), 2**20, length)


@pytest.mark.parametrize("length", [3, BLOCK_VALUES + 5])
@pytest.mark.parametrize("absent", [0, 1])
def test_a_masked_sum_of_whole_numbers_is_their_sum_and_counts_nothing_of_them(length: int, absent: int) -> None:
    wire = Wire(4, terms_of(4, greatest_weight=1), {"training": whole_shape(length)})
    wire.set_up()
    wire.silent = {(4, Kind.UPLOAD)} if absent else set()
    opened = wire.round({index: Update(np.zeros(0), numbers_of(index, length), 1) for index in range(1, 5)})
    assert opened is not None
    total = sum(numbers_of(index, length) for index in opened.survivors)
    np.testing.assert_array_equal(opened.body, total * UNIT)
    assert (opened.weight, opened.contributors, opened.clipped) == (4 - absent, 4 - absent, 0)
    assert opened.histogram == (4 - absent, *[0] * 31)
    assert opened.errors == (0.0,)


@pytest.mark.parametrize(
    ("shape", "update"),
    [
        (whole_shape(3), Update(np.zeros(0), np.ones(3), 1)),
        (whole_shape(3), Update(np.zeros(0), np.ones(3, np.float32), 1)),
        (whole_shape(3), abstention(whole_shape(3))),
        (shape_of(3), Update(np.zeros(1), np.ones(3, np.int64), 1)),
    ],
)
def test_real_numbers_never_pass_for_noised_ones_and_nobody_abstains_without_a_share(
    shape: SumShape, update: Update
) -> None:
    wire = Wire(3, terms_of(3), {"training": shape})
    wire.set_up()
    with pytest.raises(LocalProtocolError, match="body of"):
        wire.round(dict.fromkeys(range(1, 4), update))


def test_the_value_of_a_step_is_part_of_what_sites_agree_on() -> None:
    digests = {SumShape((), (3,), unit).digest() for unit in (None, 0.25, 0.5)}
    assert len(digests) == 3
    for unit in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(PlanError, match="positive"):
            SumShape((), (3,), unit)


@pytest.mark.parametrize("mode", [Mode.MALICIOUS, Mode.SEMI_HONEST])
def test_a_site_votes_and_answers_for_no_fewer_survivors_than_its_own_floor(mode: Mode) -> None:
    policy = SecaggPolicy(least_survivors=5)
    wire = Wire(5, terms_of(5, mode=mode), {"training": shape_of(2)}, policy)
    wire.set_up()
    wire.leaving = {(4, Kind.UPLOAD)}
    wire.silent = {(5, Kind.UPLOAD)}
    updates = {index: Update(np.array([index / 8]), np.ones(2), 1) for index in range(1, 6)}
    with pytest.raises(SecaggError) as refusal:
        wire.round(updates)
    assert refusal.value.check is Check.SURVIVORS
    assert "at least 5" in refusal.value.message
    assert isinstance(wire.sites[1].phase, Uploaded)
