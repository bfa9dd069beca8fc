"""Masked sums equal plain sums; encoding has the error, the bias and the head-room that it states."""

import hashlib
import secrets
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError, PlanError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.client import Uploaded
from fedfair.secagg.fixedpoint import (
    BLOCK_VALUES,
    BodyCode,
    BodyEncoder,
    automatic_clip,
    bounded_header,
    bucket_edge,
    check_header,
    clipped_values,
    decode_body,
    decode_header,
    encode_header,
    fraction_bits,
    pack,
    packed_body,
    size_histogram,
    unpack,
    unpack_signed,
)
from fedfair.secagg.history import fingerprint
from fedfair.secagg.keys import Chain, Secret
from fedfair.secagg.masking import MaskedSum, SignedSeed, Update, abstention, masked_vector
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import RING_BITS, Mode, SecaggPolicy, Suite
from fedfair.secagg.prg import BLOCK_BYTES, Mask, apply_masks
from fedfair.secagg.shape import HeaderRun, SumShape, packed_bytes
from fedfair.secagg.vector_digest import vector_digest
from tests.secagg.federation_in_memory import MODEL, Wire, shape_of, terms_of

LENGTHS = st.sampled_from([0, 1, 2, 3, 17, 255, 1000])
CHEAP = settings(deadline=None, max_examples=25)


def _integers(draw_seed: int, size: int) -> np.ndarray:
    """Return float64 values in [-1, 1] from a hash, so that a failing example can be repeated."""
    raw = b"".join(hashlib.sha256(b"%d %d" % (draw_seed, i)).digest() for i in range(-(-size * 4 // 32)))
    return np.frombuffer(raw[: size * 4], np.int32) / 2.0**31


# ---------------------------------------------------------------- whole rounds


@CHEAP
@given(
    members=st.integers(3, 7),
    length=LENGTHS,
    gone=st.sets(st.integers(1, 7), max_size=2),
    ring_bits=st.sampled_from(RING_BITS),
    threads=st.sampled_from([1, 2]),
    suite=st.sampled_from(list(Suite)),
    seed=st.integers(0, 1 << 30),
)
def test_the_masked_sum_is_the_plain_sum(
    members: int, length: int, gone: set[int], ring_bits: int, threads: int, suite: Suite, seed: int
) -> None:
    shapes = {"training": shape_of(length, 3)}
    wire = Wire(members, terms_of(members, ring_bits=ring_bits, suite=suite), shapes, threads=threads)
    wire.set_up()
    weights = {m: 1 + (seed + m) % 1000 for m in range(1, members + 1)}
    updates = {m: Update(100 * _integers(seed + m, 3), _integers(seed - m, length), weights[m]) for m in weights}
    wire.silent = {(m, Kind.UPLOAD) for m in gone}
    opened, survivors = wire.round(updates), [m for m in updates if m not in gone]
    if len(survivors) < members // 2 + 1:
        assert opened is None
        return
    assert (opened.survivors, opened.weight) == (tuple(survivors), sum(weights[m] for m in survivors))
    plain = sum((weights[m] * updates[m].body for m in survivors), np.zeros(length))
    assert (np.abs(opened.body - plain) < (opened.errors[0] if length else 1)).all()
    header = sum(updates[m].header for m in survivors)
    # Each header value is rounded to a multiple of 2^(7 - f), where f is 60 or less for up to 7 members.
    np.testing.assert_allclose(opened.header, header, rtol=0, atol=members * 2.0**-52 + 1e-11)


@pytest.mark.parametrize("length", [BLOCK_VALUES - 1, BLOCK_VALUES, 3 * BLOCK_VALUES + 5])
@pytest.mark.parametrize("ring_bits", RING_BITS)
def test_blocks_and_threads_change_no_bit(length: int, ring_bits: int) -> None:
    shape = shape_of(length, checked=False)
    code = BodyCode(ring_bits, 3, 10, shape.groups, (0.5,))
    seeds = [SignedSeed(Secret(bytes([i]) * 31), bool(i % 2)) for i in range(3)]
    update = Update(np.ones(1), _integers(7, length).astype(np.float32), 7)
    built = [
        masked_vector(update, shape, code, seeds, Secret(bytes(32)), threads=threads) for threads in (1, 2, 3)
    ]
    assert built[0] == built[1] == built[2]
    vector, found = built[0]
    assert found == vector_digest(vector)
    sums = []
    for threads in (1, 2):
        total = MaskedSum(shape, ring_bits)
        total.add(vector, found)
        total.remove(seeds, threads)
        sums.append(total)
    np.testing.assert_array_equal(sums[0].body, sums[1].body)
    decoded = decode_body(sums[0].body, code, np.dtype(np.float64))
    plain = 7 * np.clip(update.body.astype(np.float64), -0.5, 0.5)
    assert np.abs(decoded - plain).max() < code.step(0.5)


def test_an_abstention_is_a_zero_that_nobody_can_tell() -> None:
    wire = Wire(3, terms_of(3), {"training": shape_of(3)})
    wire.set_up()
    opened = wire.round(
        {1: abstention(shape_of(3)), 2: Update(np.ones(1), np.ones(3), 2), 3: Update(np.ones(1), np.ones(3), 1)}
    )
    assert (opened.contributors, opened.weight, opened.header.tolist()) == (2, 3, [2.0])
    assert (len({len(send.vector) for send in wire.uploads.values()}), sum(opened.histogram)) == (1, 2)


def test_clipped_values_are_counted_and_groups_have_clips_of_their_own() -> None:
    shape = SumShape((), (2, 3))
    wire = Wire(3, terms_of(3), {"training": shape})
    wire.set_up()
    body = np.array([3.0, -0.5, 3.0, -9.0, 8.0])
    wire.updates = {m: Update(np.zeros(0), body, 1 + m) for m in (1, 2, 3)}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0, 8.0), (1, 2, 3)))
    opened = wire.opened
    assert opened.clipped == 3 * 2
    expected = 9 * np.array([1.0, -0.5, 3.0, -8.0, 8.0])
    assert (np.abs(opened.body - expected) < np.repeat(opened.errors, (2, 3))).all()


def test_a_semi_honest_session_opens_without_votes() -> None:
    wire = Wire(4, terms_of(4, mode=Mode.SEMI_HONEST), {"training": shape_of(2)})
    wire.set_up()
    wire.silent = {(1, Kind.UPLOAD), (2, Kind.UPLOAD)}
    opened = wire.round({m: Update(np.array([m / 8]), np.ones(2), 1) for m in (1, 2, 3, 4)})
    assert opened.survivors == (3, 4)
    assert Kind.CONSISTENCY_CHECK not in {kind for _, kind in wire.trace}


# ---------------------------------------------------------------- memory


def _peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("ring_bits", RING_BITS)
def test_a_site_needs_little_more_than_the_vector_it_sends(ring_bits: int) -> None:
    shape = shape_of(1 << 20, checked=False)
    code = BodyCode(ring_bits, 10, 1, shape.groups, (1.0,))
    update = Update(np.zeros(1), np.zeros(1 << 20, np.float32), 1)
    seeds = [SignedSeed(Secret(bytes([i]) * 31), negative=False) for i in range(10)]
    peak = _peak(lambda: masked_vector(update, shape, code, seeds, Secret(bytes(32)), threads=2))
    assert peak < 2.5 * update.body.nbytes


def test_the_aggregator_keeps_one_vector_whatever_the_number_of_sites() -> None:
    shape = shape_of(1 << 20, checked=False)
    vector = bytes(shape.vector_bytes(24))
    digest, total = vector_digest(vector), MaskedSum(shape, 24)
    peaks = [_peak(lambda count=count: [total.add(vector, digest) for _ in range(count)]) for count in (1, 20)]
    assert max(peaks) < 1 << 20  # a quarter of the vector, for any number of them


# ---------------------------------------------------------------- encoding


@CHEAP
@given(members=st.integers(1, 200), ring_bits=st.sampled_from(RING_BITS), weight=st.integers(1, 1 << 40))
def test_no_sum_of_extremes_overflows(members: int, ring_bits: int, weight: int) -> None:
    # Big integers as oracle: n times the largest element of either sign stays within the ring's signed range.
    clip = 0.1
    code = BodyCode(ring_bits, members, weight, (4,), (clip,))
    body = np.array([clip, -clip, 1e30, -1e30])
    largest, smallest = np.empty(4, np.uint32), np.empty(4, np.uint32)
    encoder = BodyEncoder(code, weight)
    encoder.encode(body, 0, np.full(4, 0xFFFF, np.uint16), largest)
    encoder.encode(body, 0, np.zeros(4, np.uint16), smallest)
    for words in (largest, smallest):
        for element in words.view(np.int32).tolist():
            assert -(1 << (ring_bits - 1)) < members * element < 1 << (ring_bits - 1)
            assert abs(element) <= 1 << code.bits


def test_rounding_is_unbiased() -> None:
    # Over every u of the grid the mean of floor(x + u) is x itself, to within half a step of the grid.
    code = BodyCode(16, 3, 1, (BLOCK_VALUES,), (1.0,))
    uniform = np.arange(BLOCK_VALUES, dtype=np.uint16)
    for value in (0.3, -0.3, 1e-4, 0.9999, -1.0, 0.123456789):
        out = np.empty(BLOCK_VALUES, np.uint32)
        BodyEncoder(code, 1).encode(np.full(BLOCK_VALUES, value), 0, uniform, out)
        assert abs(out.view(np.int32).mean() - value * 2.0**code.bits) <= 2.0**-17 + 1e-9


@CHEAP
@given(st.integers(1, 200), st.integers(2, 64))
def test_the_head_room_is_the_largest_power_of_two_that_fits(members: int, bits: int) -> None:
    if ((1 << (bits - 1)) - 1) // members < 1:
        with pytest.raises(PlanError):
            fraction_bits(bits, members)
        return
    found = fraction_bits(bits, members)
    assert members << found <= (1 << (bits - 1)) - 1 < members << (found + 1)


@CHEAP
@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.sampled_from(RING_BITS))
def test_packing_keeps_the_low_bits_and_commutes_with_addition(values: list[int], ring_bits: int) -> None:
    words = np.array(values, np.uint32)
    packed = np.empty(packed_bytes(words.size, ring_bits), np.uint8)
    pack(words, ring_bits, packed)
    back = np.empty_like(words)
    unpack(packed, ring_bits, back)
    assert back.tolist() == [value % (1 << ring_bits) for value in values]


def test_header_values_at_their_extremes_come_back() -> None:
    runs = (HeaderRun(2, 2.0**40, whole=True), HeaderRun(2, 3.5, whole=False))
    for members in (1, 2, 3, 50, 200):
        words = encode_header(np.array([2.0**40, 0.0, 3.5, -3.5]), runs, members)
        total = np.zeros(4, np.uint64)
        for _ in range(members):
            total += words
        decoded = decode_header(total, runs, members)
        np.testing.assert_allclose(decoded, members * np.array([2.0**40, 0.0, 3.5, -3.5]), rtol=1e-15)


@pytest.mark.parametrize(
    ("value", "sent"), [(-1.0, 0.0), (0.4, 0.0), (11.0, 10.0), (np.nan, 0.0), (np.inf, 10.0), (-np.inf, 0.0)]
)
def test_a_count_that_is_none_becomes_the_nearest_one_and_is_counted(value: float, sent: float) -> None:
    runs = (HeaderRun(1, 10, whole=True),)
    bounded, replaced = bounded_header(np.array([value]), runs)
    assert (bounded.tolist(), replaced) == ([sent], 1)
    with pytest.raises(LocalProtocolError, match="within their bounds"):
        encode_header(np.array([value]), runs, 3)


@pytest.mark.parametrize(
    ("value", "sent"), [(np.nan, 0.0), (np.inf, 2.5), (-np.inf, -2.5), (1e300, 2.5), (-2.5000001, -2.5)]
)
def test_a_real_number_beyond_its_bound_becomes_the_bound_and_is_counted(value: float, sent: float) -> None:
    bounded, replaced = bounded_header(np.array([1.0, value]), (HeaderRun(2, 2.5, whole=False),))
    assert (bounded.tolist(), replaced) == ([1.0, sent], 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ring_bits", [32, 16])
def test_values_that_are_no_numbers_are_replaced_and_counted(dtype: type[np.floating], ring_bits: int) -> None:
    clip, body = 0.7, np.array([np.nan, np.inf, -np.inf, np.finfo(dtype).max, 0.25], dtype)
    code = BodyCode(ring_bits, 3, 4, (5,), (clip,))
    encoder, words = BodyEncoder(code, 4), np.empty(5, np.uint32)
    encoder.encode(body, 0, np.zeros(5, np.uint16), words)
    sent = decode_body(words, code, np.dtype(np.float64)) / 4
    np.testing.assert_allclose(sent, [0.0, clip, -clip, clip, 0.25], atol=code.step(clip))
    # Infinities are replaced by the clip and counted as clipped too; a finite value is only clipped.
    assert (encoder.report.replaced, encoder.report.clipped) == (3, 3)
    assert np.isnan(body[0]), "what the site holds is not changed"


@pytest.mark.parametrize("total", [-1, 31])
def test_a_sum_of_counts_that_cannot_be_is_refused(total: int) -> None:
    with pytest.raises(SecaggError) as refused:
        decode_header(np.array([total], np.int64).view(np.uint64), (HeaderRun(1, 10, whole=True),), 3)
    assert refused.value.check is Check.PLAUSIBILITY


def test_counts_that_could_overflow_are_refused_with_the_plan() -> None:
    with pytest.raises(PlanError):
        check_header(SumShape((HeaderRun(1, 2.0**62, whole=True),), ()), 3, 1)


def test_the_automatic_clip_is_four_times_the_largest_bucket_anybody_reached() -> None:
    sizes = [0.0, 1e-9, 0.2, 0.26]
    histogram = np.sum([size_histogram(size) for size in sizes], axis=0)
    assert (histogram.sum(), automatic_clip([int(c) for c in histogram], 7.0, 8.0)) == (4, 4 * 0.5)
    assert automatic_clip([int(c) for c in histogram], 7.0, 1.5) == 1.5
    assert automatic_clip([0] * 32, 7.0, 8.0) == 7.0
    assert ([bucket_edge(0), bucket_edge(31)], size_histogram(1e30)[31]) == ([2.0**-20, 2.0**11], 1.0)


@given(
    st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20),
    st.floats(2.0**-20, 2.0**10),
    st.integers(1, 40),
    st.sampled_from([np.float32, np.float64]),
)
def test_what_an_encoder_lets_through_is_the_clipped_value(
    given_values: list[float], clip: float, weight: int, dtype: type[np.floating]
) -> None:
    body = np.array(given_values, dtype)
    before = body.copy()
    values, report = clipped_values(body, clip)
    code = BodyCode(32, 3, 40, (body.size,), (clip,))
    encoder, words = BodyEncoder(code, weight), np.empty(body.size, np.uint32)
    encoder.encode(body, 0, np.zeros(body.size, np.uint16), words)
    # One step of the ring, and the width of the clip itself, where it is rounded to 24 bits.
    bound = code.step(clip) + weight * clip * float(np.finfo(dtype).eps)
    sums = decode_body(words, code, np.dtype(np.float64))
    np.testing.assert_allclose(sums, weight * values.astype(np.float64), rtol=0, atol=bound)
    assert (encoder.report, values.dtype) == (report, body.dtype)
    assert (np.abs(values.astype(np.float64)) <= clip * (1 + float(np.finfo(dtype).eps))).all()
    assert np.array_equal(clipped_values(values, clip)[0], values)
    assert report.clipped == int(np.count_nonzero(np.abs(body) > clip))
    assert np.array_equal(body, before), "what the site holds is not changed"


@CHEAP
@given(st.lists(st.floats(0, 1e30), max_size=6))
def test_a_histogram_of_several_sizes_is_the_sum_of_theirs(sizes: list[float]) -> None:
    assert size_histogram(*sizes).tolist() == sum((size_histogram(size) for size in sizes), np.zeros(32)).tolist()


@CHEAP
@given(st.floats(2.0**-20, 2.0**11))
def test_a_size_lies_below_the_edge_of_its_bucket(size: float) -> None:
    position = int(np.argmax(size_histogram(size)))
    edge = bucket_edge(position)
    assert size <= edge
    assert position in (0, 31) or size >= edge / 2


# ---------------------------------------------------------------- keystreams and chains


@CHEAP
@given(st.integers(0, 300), st.integers(0, 3))
def test_a_mask_added_and_taken_away_leaves_nothing(size: int, pairs: int) -> None:
    words = np.arange(size, dtype=np.uint32)
    masks = [Mask(Secret(bytes([i]) * 32), negative=bool(i % 2)) for i in range(pairs)]
    apply_masks(words, masks)
    apply_masks(words, [Mask(mask.key, not mask.negative) for mask in masks])
    np.testing.assert_array_equal(words, np.arange(size))


def test_any_part_of_a_keystream_can_be_made_by_itself() -> None:
    whole = np.zeros(BLOCK_BYTES // 4 + 100, np.uint32)
    mask = [Mask(Secret(bytes(32)), negative=False)]
    apply_masks(whole, mask)
    for start in (4, 1000, BLOCK_BYTES // 4 + 4):
        part = np.zeros(50, np.uint32)
        apply_masks(part, mask, 4 * start)
        np.testing.assert_array_equal(part, whole[start : start + 50])


@CHEAP
@given(st.integers(0, 40), st.integers(0, 40))
def test_a_jump_of_a_chain_equals_its_steps(first: int, second: int) -> None:
    jump, steps = Chain(Secret(bytes(32)), 0), Chain(Secret(bytes(32)), 0)
    jump.advance_to(first + second)
    for step in range(1, first + second + 1):
        steps.advance_to(step)
    assert jump.mask_seed(b"T").reveal() == steps.mask_seed(b"T").reveal()
    assert jump.mask_seed(b"T").reveal() != jump.mask_seed(b"U").reveal()


def test_a_fingerprint_names_purpose_model_and_draws() -> None:
    draws = secrets.token_bytes(32)
    known = fingerprint("training", MODEL.state_digest, draws)
    assert known == fingerprint("training", MODEL.state_digest, bytes(draws))
    others = [
        fingerprint("evaluation", MODEL.state_digest, draws),
        fingerprint("training", bytes(32), draws),
        fingerprint("training", MODEL.state_digest, bytes(32)),
    ]
    assert len({known, *others}) == 4
    with pytest.raises(LocalProtocolError, match="named by 31 bytes"):
        fingerprint("training", MODEL.state_digest, draws[1:])


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("ring_bits", [32, 24, 20, 16])
def test_the_words_of_an_opened_sum_take_the_memory_in_which_it_came(ring_bits: int, in_place: bool) -> None:
    told = np.arange(-3, 5, dtype=np.int32).view(np.uint32)
    packed = np.frombuffer(bytearray(packed_body(told, ring_bits)), np.uint8)
    words = unpack_signed(packed, ring_bits, told.size, in_place=in_place)
    assert words.tolist() == told.tolist()
    assert np.shares_memory(words, packed) == (in_place and ring_bits == 32)


# ---- sums of whole numbers: exact modulo the ring, and with nothing beside them that depends on a number

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
    total = sum(numbers_of(index, length) for index in opened.survivors)
    np.testing.assert_array_equal(opened.body, total * UNIT)
    assert (opened.weight, opened.contributors, opened.clipped) == (4 - absent, 4 - absent, 0)
    assert (opened.histogram, opened.errors) == ((4 - absent, *[0] * 31), (0.0,))


@pytest.mark.parametrize(
    ("shape", "update"),
    [
        (whole_shape(3), Update(np.zeros(0), np.ones(3), 1)),
        (whole_shape(3), Update(np.zeros(0), np.ones(3, np.float32), 1)),
        (whole_shape(3), abstention(whole_shape(3))),
        (shape_of(3), Update(np.zeros(1), np.ones(3, np.int64), 1)),
    ],
)
def test_real_numbers_never_pass_for_noised_ones_and_nobody_abstains(shape: SumShape, update: Update) -> None:
    wire = Wire(3, terms_of(3), {"training": shape})
    wire.set_up()
    with pytest.raises(LocalProtocolError, match="body of"):
        wire.round(dict.fromkeys(range(1, 4), update))


def test_the_value_of_a_step_is_part_of_what_sites_agree_on() -> None:
    assert len({SumShape((), (3,), unit).digest() for unit in (None, 0.25, 0.5)}) == 3
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
