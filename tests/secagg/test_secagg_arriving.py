"""Masked vectors that are added while they arrive: the same sum, and the one before where one is refused."""

import hashlib
import secrets
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.check_seed import check_seed, open_seed, seal_seed, seed_commitment
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, SiteEffect, StateVouched
from fedfair.secagg.fixedpoint import BLOCK_VALUES
from fedfair.secagg.graph_terms import graph_terms
from fedfair.secagg.keys import Secret
from fedfair.secagg.masking import MaskedSum
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import Mode
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.shape import SumShape
from fedfair.secagg.transcript import NO_STATE, RoundSubject
from fedfair.secagg.vector_digest import vector_digest
from fedfair.secagg.vouching import vouched_state
from tests.attacks.harness import check_of
from tests.secagg.federation_in_memory import MODEL, Wire, shape_of, terms_of, unit_update

RING_BITS = (16, 20, 24, 32)
LENGTH = 2 * BLOCK_VALUES + 77


def vector_of(shape: SumShape, ring_bits: int, seed: int) -> tuple[bytes, bytes]:
    """Return a vector of words of the ring, as it travels, and its digest."""
    raw = np.random.default_rng(seed).bytes(shape.vector_bytes(ring_bits))
    if ring_bits == 20 and shape.body_length % 2:
        raw = raw[:-1] + bytes([raw[-1] & 0x0F])
    return raw, vector_digest(raw)


def words_of(total: MaskedSum) -> tuple[bytes, bytes]:
    mask = np.uint32((1 << total.ring_bits) - 1)
    return total.header.tobytes(), (total.body & mask).tobytes()


def sum_of(shape: SumShape, ring_bits: int, *seeds: int) -> MaskedSum:
    """Return the sum of whole vectors."""
    total = MaskedSum(shape, ring_bits)
    for seed in seeds:
        total.add(*vector_of(shape, ring_bits, seed))
    return total


def begun(total: MaskedSum) -> ArrivingVector:
    arriving = total.arriving()
    assert arriving is not None
    return arriving


def cut(raw: bytes, sizes: list[int]) -> list[bytes]:
    """Return `raw` in pieces of these sizes, again and again."""
    pieces, at, number = [], 0, 0
    while at < len(raw):
        pieces.append(raw[at : at + sizes[number % len(sizes)]])
        at, number = at + len(pieces[-1]), number + 1
    return pieces


@pytest.mark.parametrize("ring_bits", RING_BITS)
@pytest.mark.parametrize("sizes", [[1 << 20], [1 << 18], [70_001], [3, 200_000, 5], [1 << 24]])
def test_a_vector_that_is_added_in_pieces_gives_the_sum_of_whole_ones(ring_bits: int, sizes: list[int]) -> None:
    shape = shape_of(LENGTH)
    total = MaskedSum(shape, ring_bits)
    for seed in (1, 2, 3):
        raw, digest = vector_of(shape, ring_bits, seed)
        arriving = begun(total)
        for piece in cut(raw, sizes):
            arriving.add(piece)
        total.add(arriving, digest)
    assert words_of(total) == words_of(sum_of(shape, ring_bits, 1, 2, 3))


@settings(deadline=None, max_examples=25)
@given(
    ring_bits=st.sampled_from(RING_BITS),
    length=st.sampled_from([1, 2, BLOCK_VALUES - 1, BLOCK_VALUES, BLOCK_VALUES + 1, LENGTH]),
    sizes=st.lists(st.integers(1, 300_000), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) > 5000),
    broken=st.floats(0, 1),
)
def test_an_upload_that_breaks_off_anywhere_leaves_the_sum_as_it_was(
    ring_bits: int, length: int, sizes: list[int], broken: float
) -> None:
    shape = shape_of(length)
    total, before = sum_of(shape, ring_bits, 1), words_of(sum_of(shape, ring_bits, 1))
    raw, _ = vector_of(shape, ring_bits, 2)
    arriving, pieces = begun(total), cut(raw, sizes)
    for piece in pieces[: int(broken * len(pieces))]:
        arriving.add(piece)
        assert words_of(total) == before
    arriving.close()
    assert words_of(total) == before
    # The memory that the broken upload has left is no part of the next one.
    raw, digest = vector_of(shape, ring_bits, 3)
    arriving = begun(total)
    for piece in pieces and cut(raw, sizes):
        arriving.add(piece)
    total.add(arriving, digest)
    assert words_of(total) == words_of(sum_of(shape, ring_bits, 1, 3))


@pytest.mark.parametrize("at", [0, 9, 40_000, -1])
def test_a_vector_that_was_altered_is_refused_and_the_sum_is_as_it_was(at: int) -> None:
    shape = shape_of(LENGTH)
    total, before = sum_of(shape, 32, 1), words_of(sum_of(shape, 32, 1))
    raw, digest = vector_of(shape, 32, 2)
    altered = bytearray(raw)
    altered[at] ^= 1
    arriving = begun(total)
    arriving.add(bytes(altered))
    with pytest.raises(SecaggError, match="altered on its way") as refusal:
        total.add(arriving, digest)
    assert refusal.value.check is Check.VECTOR
    arriving.close()
    assert words_of(total) == before


def test_a_vector_of_which_a_byte_is_missing_is_refused() -> None:
    shape = shape_of(LENGTH)
    total, before = sum_of(shape, 32, 1), words_of(sum_of(shape, 32, 1))
    raw, digest = vector_of(shape, 32, 2)
    arriving = begun(total)
    arriving.add(raw[:-1])
    assert arriving.missing == 1
    assert check_of(total.add, arriving, digest) is Check.VECTOR
    with pytest.raises(LocalProtocolError, match="2 bytes where 1 of a masked vector are missing"):
        arriving.add(b"xy")
    arriving.close()
    assert words_of(total) == before


@pytest.mark.parametrize("ring_bits", RING_BITS)
@pytest.mark.parametrize("counts", [True, False])
def test_whole_vectors_that_are_added_meanwhile_count_once(ring_bits: int, counts: bool) -> None:
    shape = shape_of(LENGTH)
    total = sum_of(shape, ring_bits, 1)
    raw, digest = vector_of(shape, ring_bits, 2)
    arriving, pieces = begun(total), cut(raw, [len(raw) // 5])
    for seed, piece in enumerate(pieces, start=10):
        arriving.add(piece)
        total.add(*vector_of(shape, ring_bits, seed))
    meanwhile = [10 + number for number in range(len(pieces))]
    if counts:
        total.add(arriving, digest)
    arriving.close()
    expected = sum_of(shape, ring_bits, 1, *meanwhile, *([2] if counts else []))
    assert words_of(total) == words_of(expected)


def test_one_vector_arrives_at_a_time_and_others_are_held() -> None:
    total = MaskedSum(shape_of(LENGTH), 32)
    first = begun(total)
    assert total.arriving() is None
    first.close()
    first.close()
    assert total.arriving() is not None


def test_a_sum_that_begins_again_does_not_take_what_arrived_for_the_one_before() -> None:
    shape = shape_of(LENGTH)
    total = sum_of(shape, 32, 1)
    raw, digest = vector_of(shape, 32, 2)
    arriving = begun(total)
    arriving.add(raw[: len(raw) // 2])
    total.clear()
    arriving.add(raw[len(raw) // 2 :])
    assert arriving.missing == 0
    with pytest.raises(SecaggError) as refusal:
        total.add(arriving, digest)
    assert (refusal.value.check, words_of(total)) == (Check.LATE, words_of(MaskedSum(shape, 32)))


def test_the_memory_of_a_round_is_that_of_the_next_and_a_late_upload_does_not_write_to_it() -> None:
    shape = shape_of(LENGTH)
    total = MaskedSum(shape, 32)
    late, _ = vector_of(shape, 32, 9)
    arriving = begun(total)
    arriving.add(late[: len(late) // 2])
    spare = total.take_spare()
    assert spare is not None
    following = MaskedSum(shape, 32, spare)
    raw, digest = vector_of(shape, 32, 2)
    second = begun(following)
    second.add(raw)
    arriving.add(late[len(late) // 2 :])
    following.add(second, digest)
    assert words_of(following) == words_of(sum_of(shape, 32, 2))
    assert np.shares_memory(following.body, spare)


def test_no_more_than_a_block_of_a_vector_is_held_as_it_came() -> None:
    shape = shape_of(16 * BLOCK_VALUES)
    raw, _ = vector_of(shape, 32, 2)
    arriving = begun(MaskedSum(shape, 32))
    tracemalloc.start()
    try:
        for piece in cut(raw, [100_000]):
            arriving.add(piece)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A block of four bytes a value, which a bytearray may hold twice while it grows, and the pieces that are made.
    assert most < len(raw) + 4 * 4 * BLOCK_VALUES
    assert most - len(raw) > 0


# ---------------------------------------------------------------- the protocol around it


def asked(members: int = 3) -> tuple[Wire, dict[int, tuple[bytes, bytes]]]:
    """Return a federation in which every member has uploaded, and the uploads, of which none has arrived."""
    wire = Wire(members, terms_of(members), {"training": shape_of(LENGTH)})
    wire.set_up()
    made: dict[int, tuple[bytes, bytes]] = {}
    to_server = wire.to_server

    def held_back(member: int, send: object) -> list[object]:
        made[member] = (send.message, bytes(send.vector))  # type: ignore[attr-defined]
        return []

    wire.to_server = held_back  # type: ignore[method-assign]
    wire.updates = {index: unit_update_of(index) for index in range(1, members + 1)}
    clips = (1.0,) * len(wire.shapes["training"].groups)
    wire.deliver(wire.server.start_round("training", wire.model, clips, wire.updates))
    wire.to_server = to_server  # type: ignore[method-assign]
    assert wire.server.state is ServerState.UPLOADS
    return wire, made


def unit_update_of(index: int) -> object:
    update = unit_update(index, LENGTH)
    assert update.body.size == LENGTH
    return update


def sent(wire: Wire, member: int, message: bytes, vector: bytes) -> list[object]:
    """Have the server take an upload in pieces, as a stream brings it."""
    arriving = wire.server.arriving(member, message, len(vector))
    assert arriving is not None
    try:
        for piece in cut(vector, [1 << 16]):
            arriving.add(piece)
        return list(wire.server.receive(member, message, arriving))
    finally:
        arriving.close()


def test_uploads_in_pieces_open_the_sum_and_a_broken_or_forged_one_is_not_in_it() -> None:
    wire, made = asked()
    message, vector = made[1]
    broken = wire.server.arriving(1, message, len(vector))
    broken.add(vector[:300_000])
    broken.close()
    with pytest.raises(SecaggError):
        sent(wire, 1, message, vector[:-1] + bytes([vector[-1] ^ 1]))
    with pytest.raises(SecaggError):  # with the message of somebody else
        sent(wire, 1, made[2][0], made[2][1])
    effects = [effect for member in (1, 2, 3) for effect in sent(wire, member, *made[member])]
    wire.deliver(effects)  # type: ignore[arg-type]
    assert np.flatnonzero(np.rint(wire.opened.body[:4])).tolist() == [0, 1, 2]


def test_only_an_upload_that_is_due_and_of_the_right_length_is_added_while_it_arrives() -> None:
    wire, made = asked()
    message, vector = made[1]
    server = wire.server
    assert server.arriving(1, message, len(vector) - 1) is None
    assert server.arriving(1, b"", len(vector)) is None
    assert server.arriving(1, bytes([2, 9]) + secrets.token_bytes(40), len(vector)) is None
    assert server.arriving(7, message, len(vector)) is None
    sent(wire, 1, message, vector)
    assert server.arriving(1, message, len(vector)) is None  # once
    assert server.receive(1, message, vector) == []


# ---- which state of the run the members of a set-up vouch for

ONE, OTHER = (hashlib.sha256(word).digest() for word in (b"one", b"other"))


@pytest.mark.parametrize(
    ("members", "colluders", "mode", "needed"),
    [(3, 0, Mode.MALICIOUS, 2), (5, 1, Mode.MALICIOUS, 4), (7, 2, Mode.MALICIOUS, 5), (5, 1, Mode.SEMI_HONEST, 3)],
)
def test_t_signatures_vouch_and_one_less_does_not(members: int, colluders: int, mode: Mode, needed: int) -> None:
    terms = terms_of(members, colluders, mode=mode)
    for signed in range(members + 1):
        states = {m: ONE if m <= signed else bytes([m]) * 32 for m in range(1, members + 1)}
        assert vouched_state(states, terms, None) == (ONE if signed >= needed else NO_STATE)


def test_no_state_and_two_states_vouch_for_nothing() -> None:
    assert vouched_state(dict.fromkeys(range(1, 6), NO_STATE), terms_of(5), None) == NO_STATE
    two = {m: ONE if m <= 3 else OTHER for m in range(1, 7)}
    assert vouched_state(two, terms_of(6, mode=Mode.SEMI_HONEST), None) == NO_STATE


def test_a_site_hears_of_another_state_before_its_confirm_and_can_decline() -> None:
    wire = Wire(4, terms_of(4), {"training": shape_of(2)})
    behind, replies = RoundSubject(OTHER, MODEL.request_digest), {}
    for effect in wire.server.open_session(wire.roster.indices):
        (*_, advert) = wire.sites[effect.member].receive(effect.message, behind if effect.member == 4 else MODEL)
        for said in wire.server.receive(effect.member, advert.message):
            replies[said.member] = wire.sites[said.member].receive(said.message, MODEL)
            last = said.message
    assert [type(effect) for effect in replies[1]] == [Send]
    vouched, confirm = replies[4]
    assert vouched == StateVouched(MODEL.state_digest)
    assert kind_of(confirm.message) is Kind.CONFIRM
    wire.sites[4].decline_session()
    assert check_of(wire.sites[4].receive, last, MODEL) is Check.OUT_OF_ORDER


def test_a_check_seed_is_sealed_for_one_member_of_one_session() -> None:
    seed, shared, session, proposal = Secret(b"g" * 32), Secret(b"s" * 32), b"i" * 32, b"proposal"
    promised = seed_commitment(seed, proposal, 1)
    sealed = seal_seed(seed, shared, session, (1, 2), b"key")
    assert open_seed(sealed, shared, session, (1, 2), b"key") == seed
    for lie in (
        (sealed, shared, session, (2, 1), b"key"),
        (sealed, shared, b"j" * 32, (1, 2), b"key"),
        (sealed, Secret(b"t" * 32), session, (1, 2), b"key"),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), shared, session, (1, 2), b"key"),
        (sealed, shared, session, (1, 2), b"another key"),
        (sealed, shared, session, (1, 2), b""),
    ):
        assert check_of(open_seed, *lie) is Check.CONFIRM
    check_seed(seed, proposal, 1, promised)
    for found, about, sender in ((seed, b"another", 1), (seed, proposal, 2), (Secret(b"h" * 32), proposal, 1)):
        assert check_of(check_seed, found, about, sender, promised) is Check.CONFIRM


def test_the_committee_of_a_sparse_graph_vouches_with_as_many_as_decide_who_has_survived() -> None:
    graph = graph_terms(200, 4)
    for signed in range(graph.committee + 1):
        states = {m: ONE if m <= signed else bytes([m]) * 32 for m in range(1, graph.committee + 1)}
        assert vouched_state(states, terms_of(200, 4), graph) == (ONE if signed >= graph.votes else NO_STATE)


def test_a_site_of_a_sparse_graph_hears_of_another_state_from_the_committee() -> None:
    wire = Wire(14, replace(terms_of(14), neighbours=6), {"training": shape_of(2)})
    heard: dict[int, list[StateVouched]] = {}
    hand_over = wire.hand_over

    def behind(member: int, message: bytes) -> list[SiteEffect]:
        wire.model = RoundSubject(OTHER, MODEL.request_digest) if member == 4 else MODEL
        effects = hand_over(member, message)
        heard.setdefault(member, []).extend(one for one in effects if isinstance(one, StateVouched))
        return effects

    wire.hand_over = behind  # type: ignore[method-assign]
    wire.set_up()
    assert heard.pop(4) == [StateVouched(MODEL.state_digest)]
    assert not any(heard.values())
