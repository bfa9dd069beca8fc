"""Every message comes back from its bytes; every damaged one is refused with a typed error and changes nothing."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.codec import MessageReader, MessageWriter
from fedfair.secagg.effects import Send, ServerEffect
from fedfair.secagg.messages import MAX_MESSAGE_BYTES, Kind, kind_of
from fedfair.secagg.params import MAX_MEMBERS, Mode, SessionTerms, Suite
from fedfair.secagg.round_messages import (
    ConsistencyCheck,
    OpenedMessage,
    PairMasks,
    PairMasksRequest,
    RoundStart,
    Survivors,
    UnmaskRequest,
    UnmaskShares,
    Upload,
)
from fedfair.secagg.setup_messages import (
    Confirm,
    Confirms,
    KeyAdvertisement,
    KeyAdvertisements,
    MemberList,
    Proposal,
    Reveal,
)
from fedfair.secagg.transcript import RoundSubject, digest, digest_by_member, u16
from tests.attacks.harness import Lies
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of, unit_update

DIGEST, SIGNATURE = b"d" * 32, b"s" * 64
DECODERS = {
    Kind.PROPOSAL: Proposal.decode,
    Kind.KEY_ADVERTISEMENT: KeyAdvertisement.decode,
    Kind.KEY_ADVERTISEMENTS: KeyAdvertisements.decode,
    Kind.REVEAL: Reveal.decode,
    Kind.MEMBER_LIST: MemberList.decode,
    Kind.CONFIRM: Confirm.decode,
    Kind.CONFIRMS: Confirms.decode,
    Kind.ROUND_START: RoundStart.decode,
    Kind.UPLOAD: Upload.decode,
    Kind.PAIR_MASKS_REQUEST: PairMasksRequest.decode,
    Kind.PAIR_MASKS: PairMasks.decode,
    Kind.SURVIVORS: Survivors.decode,
    Kind.CONSISTENCY_CHECK: ConsistencyCheck.decode,
    Kind.UNMASK_REQUEST: UnmaskRequest.decode,
    Kind.UNMASK_SHARES: UnmaskShares.decode,
    Kind.OPENED: OpenedMessage.decode,
}
EXAMPLES = [
    Proposal(
        SessionTerms(Mode.MALICIOUS, Suite.X25519_MLKEM768, 1, 4, 24, 1 << 40, check_sums=False), *[DIGEST] * 4
    ),
    KeyAdvertisement(7, b"k" * 32, DIGEST, DIGEST, DIGEST, SIGNATURE),
    MemberList((1, 2, 200), (DIGEST, b"e" * 32)),
    Reveal(3, DIGEST, DIGEST, SIGNATURE),
    KeyAdvertisements((1, 2, 7), ((1, b"one"), (2, b"two")), (DIGEST,), ((1, DIGEST + SIGNATURE),)),
    Confirm(3, DIGEST, DIGEST, ((2, b"c" * 48), (4, b"c" * 1136)), SIGNATURE),
    Confirms(DIGEST, ((1, b"one"),)),
    RoundStart(DIGEST, 1 << 40, "training", (1, 2, 200), 2, RoundSubject(DIGEST, b"s" * 32), (0.5, 1e-9)),
    Upload(
        DIGEST,
        1,
        DIGEST,
        DIGEST,
        ((2, b"t" * 16),),
        ((2, b"e" * 48),),
        ((1, b"d" * 8), (2, b"d" * 8)),
        SIGNATURE,
    ),
    PairMasksRequest(DIGEST, (1, 2)),
    PairMasks(DIGEST, 1, (1, 2), ((3, b"m" * 31), (7, b"n" * 31))),
    Survivors(DIGEST, (1, 2)),
    ConsistencyCheck(DIGEST, 1, (1, 2), SIGNATURE),
    UnmaskRequest(DIGEST, (1, 2), ((1, SIGNATURE),), ((2, b"e" * 48),)),
    UnmaskShares(DIGEST, 1, (1, 2), ((1, b"x" * 32), (2, b"y" * 32))),
    OpenedMessage(DIGEST, (1, 2), b"w" * 24),
]
BYTES = [message.encode() for message in EXAMPLES]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_from_its_bytes(message: Upload) -> None:
    raw = message.encode()
    assert DECODERS[kind_of(raw)](raw) == message


@pytest.mark.parametrize("raw", BYTES, ids=lambda raw: Kind(raw[1]).name)
def test_a_message_cut_off_anywhere_or_padded_is_refused(raw: bytes) -> None:
    decode = DECODERS[kind_of(raw)]
    for damaged in (*(raw[:size] for size in range(len(raw))), raw + b"\0", raw + raw):
        with pytest.raises(SecaggError) as refused:
            decode(damaged)
        assert refused.value.check is Check.ENCODING


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(BYTES), st.data())
def test_a_damaged_message_is_refused_or_is_another_valid_one(raw: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = bytearray(raw)
    damaged[at] ^= data.draw(st.integers(1, 255))
    decode = DECODERS[Kind(raw[1])]
    try:
        message = decode(bytes(damaged))
    except SecaggError as refused:
        assert refused.check is Check.ENCODING  # noqa: PT017  # not always raised
    else:
        assert message.encode() == bytes(damaged)  # one value, one encoding


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(list(Kind)), st.binary(max_size=300))
def test_random_bytes_of_every_type_are_refused_or_canonical(kind: Kind, tail: bytes) -> None:
    raw = bytes([2, kind]) + tail
    try:
        message = DECODERS[kind](raw)
    except SecaggError as refused:
        assert refused.check is Check.ENCODING  # noqa: PT017  # not always raised
    else:
        assert message.encode() == raw


@pytest.mark.parametrize("raw", [b"", b"\2", b"\1\1", b"\2\0", b"\2\x11"], ids=repr)
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    with pytest.raises(SecaggError) as refused:
        kind_of(raw)
    assert refused.value.check is Check.ENCODING


def test_declared_sizes_allocate_nothing() -> None:
    # Every length and count field at its greatest, without the bytes that it promises.
    lies = [
        MessageWriter().number(2, 1).number(Kind.KEY_ADVERTISEMENTS, 1).number(0xFFFF, 2).done(),
        bytes([2, Kind.CONFIRMS]) + DIGEST + bytes([0, 1, 0, 1]) + b"\xff" * 4,
        MessageWriter().number(2, 1).number(Kind.SURVIVORS, 1).fixed(DIGEST).number(0xFFFF, 2).done(),
        bytes([2, Kind.UNMASK_REQUEST]) + bytes(MAX_MESSAGE_BYTES),
    ]  # fmt: skip
    tracemalloc.start()
    for raw in lies:
        with pytest.raises(SecaggError):
            DECODERS[Kind(raw[1])](raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("members", [(2, 1), (1, 1), (0, 1), tuple(range(1, MAX_MEMBERS + 2))])
def test_members_are_listed_once_in_order_and_not_too_many(members: tuple[int, ...]) -> None:
    with pytest.raises(SecaggError) as refused:
        MessageReader(MessageWriter().members(members).done(), "list").members()
    assert refused.value.check is Check.ENCODING


@pytest.mark.parametrize("members", [(), (1,), (7, 8), (1, 9), (MAX_MEMBERS,), tuple(range(1, MAX_MEMBERS + 1))])
def test_a_set_of_members_comes_back_from_one_bit_for_each_place(members: tuple[int, ...]) -> None:
    raw = MessageWriter().member_set(members).done()
    assert len(raw) == 2 + (max(members) // 8 + 1 if members else 0)
    assert MessageReader(raw, "set").member_set() == members


@pytest.mark.parametrize(
    "bits",
    [b"\x01", b"\x02\0", b"\0", bytes(125) + b"\x02", bytes(126) + b"\x01"],
    ids=lambda raw: raw.hex()[-4:],
)
def test_a_set_of_members_has_one_spelling(bits: bytes) -> None:
    # Member 0, padding, an empty set in one byte, member 1001, and more bytes than any set has.
    with pytest.raises(SecaggError) as refused:
        MessageReader(MessageWriter().number(len(bits), 2).fixed(bits).done(), "set").member_set()
    assert refused.value.check is Check.ENCODING


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_clip_that_is_not_finite_is_refused(value: float) -> None:
    raw = RoundStart(DIGEST, 1, "training", (1, 2), 2, RoundSubject(DIGEST, DIGEST), (value,)).encode()
    with pytest.raises(SecaggError):
        RoundStart.decode(raw)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(list(Kind)), st.binary(max_size=200), st.integers(0, 2))
def test_rubbish_changes_no_site_and_no_aggregator(kind: Kind, tail: bytes, stage: int) -> None:
    lies = [Lies, Lies.in_session, Lies.after_uploads][stage](3)
    raw = bytes([2, kind]) + tail
    for site in lies.sites.values():
        before = (site.phase, site.session, dict(site._sent), site._setup)
        with pytest.raises(SecaggError):
            site.receive(raw, lies.model)
        assert before == (site.phase, site.session, dict(site._sent), site._setup)
    state = (lies.server.state, dict(lies.server._phase.asked), dict(lies.server._phases.received))
    with pytest.raises(SecaggError):
        lies.server.receive(1, raw)
    assert state == (lies.server.state, dict(lies.server._phase.asked), dict(lies.server._phases.received))


def test_every_bit_of_every_message_of_a_real_round_matters() -> None:
    # A flipped bit in anything on its way to a site is refused or, where it is ours to know, of no effect.
    wire = Wire(3, terms_of(3), {"training": shape_of(3)})
    original, refusals = wire.hand_over, []

    def damaged_first(member: int, message: bytes) -> list[object]:
        for at in range(0, len(message), 7):
            forged = bytearray(message)
            forged[at] ^= 1 << (at % 8)
            try:
                wire.sites[member].receive(bytes(forged), wire.model)
            except SecaggError as refused:
                refusals.append(refused.check)
            else:
                assert message[1] in (Kind.PROPOSAL, Kind.ROUND_START)  # a new nonce, or a round ahead, is as good
                return []
        return list(original(member, message))

    wire.deliver(wire.server.open_session(wire.roster.indices))
    wire.hand_over = damaged_first  # type: ignore[assignment, method-assign]
    updates = {m: unit_update(m, 3) for m in (1, 2, 3)}
    wire.updates = updates
    wire.hand_over = original  # type: ignore[method-assign]
    effects = wire.server.start_round("training", wire.model, (1.0,), updates)
    wire.hand_over = lambda member, message: (  # type: ignore[assignment, method-assign]
        damaged_first(member, message) if message[1] == Kind.UNMASK_REQUEST else list(original(member, message))
    )
    wire.deliver(effects)
    assert wire.opened is not None
    assert set(refusals) <= {Check.ENCODING, Check.TRANSCRIPT, Check.SURVIVORS, Check.VOTES, Check.ENVELOPE}
    assert len(refusals) > 50


def said_without_drop_outs(members: int) -> int:
    """Return the bytes that a site sends in a round beside its vector, where nobody vanishes."""
    others = range(2, members + 1)
    tags, envelopes = tuple((one, bytes(16)) for one in others), tuple((one, bytes(48)) for one in others)
    promised = tuple((one, bytes(8)) for one in range(1, members + 1))
    upload = Upload(DIGEST, 1, DIGEST, DIGEST, tags, envelopes, promised, SIGNATURE)
    shares = tuple((one, bytes(32)) for one in range(1, members + 1))
    return len(upload.encode()) + len(UnmaskShares(DIGEST, 1, tuple(range(1, members + 1)), shares).encode())


def test_what_a_site_sends_beside_its_vector_grows_as_the_number_of_sites() -> None:
    wire = Wire(5, terms_of(5), {"training": shape_of(3)})
    wire.set_up()
    said = [0]
    to_server = wire.to_server

    def counted(member: int, send: Send) -> list[ServerEffect]:
        said[0] += len(send.message) if member == 1 else 0
        return to_server(member, send)

    wire.to_server = counted  # type: ignore[method-assign]
    assert wire.round({member: unit_update(3, 3) for member in range(1, 6)}) is not None
    assert said[0] == said_without_drop_outs(5)
    assert said_without_drop_outs(100) == 12_947
    # One bit for each site, in whole bytes.
    assert said_without_drop_outs(200) - said_without_drop_outs(100) == 100 * 128 + 13


def one_by_one(reader: MessageReader, greatest: int) -> tuple[tuple[int, bytes], ...]:
    """Read pairs as slowly as possible."""
    pairs = tuple((reader.number(2), reader.sized(greatest)) for _ in range(reader.number(2)))
    if any(one >= two for one, two in itertools.pairwise((0, *(index for index, _ in pairs)))):
        raise SecaggError(Check.ENCODING, "not increasing")
    return pairs


@given(
    st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=3)), max_size=5),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(0, 60),
    st.integers(0, 255),
)
def test_pairs_of_one_length_are_read_as_if_one_by_one(
    pairs: list[tuple[int, bytes]], one_length: bool, more: int, where: int, to: int
) -> None:
    if one_length:
        pairs = [(index, value.ljust(2, b"x")[:2]) for index, value in pairs]
    raw = MessageWriter().by_member(pairs).done()
    raw = raw[:more] if more < 0 else raw + bytes(more)
    for written in (raw, raw[:where] + bytes([to]) + raw[where + 1 :]):
        quick, slow = MessageReader(written, "list"), MessageReader(written, "list")
        try:
            expected = one_by_one(slow, 2)
        except SecaggError:
            with pytest.raises(SecaggError):
                quick.by_member(2)
        else:
            assert quick.by_member(2) == expected
            assert quick._at == slow._at


@given(st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=40)), max_size=6))
def test_the_digest_of_pairs_is_that_of_their_fields(pairs: list[tuple[int, bytes]]) -> None:
    fields = (part for member, value in pairs for part in (u16(member), value))
    assert digest_by_member("tags", pairs) == digest("tags", *fields)
