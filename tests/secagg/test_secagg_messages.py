"""Every message comes back from its bytes; every damaged one is refused with a typed error and changes nothing."""

import ast
import hashlib
import itertools
import pickle
import secrets
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedfair.secagg
from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.client import ConsistencyChecked, MasksWrapped, Uploaded, erased
from fedfair.secagg.codec import MessageReader, MessageWriter
from fedfair.secagg.effects import Send, ServerEffect, SiteEffect
from fedfair.secagg.fixedpoint import BodyCode
from fedfair.secagg.graph_terms import graph_terms
from fedfair.secagg.history import History
from fedfair.secagg.keys import Secret
from fedfair.secagg.masking import SignedSeed, Update, masked_vector
from fedfair.secagg.message_costs import set_up_bytes, site_bytes, vote_bytes
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
from fedfair.secagg.session import Agreed
from fedfair.secagg.setup_messages import (
    Confirm,
    Confirms,
    KeyAdvertisement,
    KeyAdvertisements,
    MemberList,
    Proposal,
    Reveal,
)
from fedfair.secagg.transcript import RoundSubject, digest, digest_by_member, root_digest, u16
from fedfair.secagg.vector_digest import PIECE_BYTES, ArrivingDigest, frames_sha256, vector_digest
from fedfair.wire.chunking import masked_frames
from fedfair.wire.codec import encode_collaborator_frame
from tests.attacks.harness import Lies, check_of
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of, unit_update

DIGEST, SIGNATURE = b"d" * 32, b"s" * 64
DECODERS = {
    Kind.PROPOSAL: Proposal.decode, Kind.KEY_ADVERTISEMENT: KeyAdvertisement.decode,
    Kind.KEY_ADVERTISEMENTS: KeyAdvertisements.decode, Kind.REVEAL: Reveal.decode,
    Kind.MEMBER_LIST: MemberList.decode, Kind.CONFIRM: Confirm.decode, Kind.CONFIRMS: Confirms.decode,
    Kind.ROUND_START: RoundStart.decode, Kind.UPLOAD: Upload.decode,
    Kind.PAIR_MASKS_REQUEST: PairMasksRequest.decode, Kind.PAIR_MASKS: PairMasks.decode,
    Kind.SURVIVORS: Survivors.decode, Kind.CONSISTENCY_CHECK: ConsistencyCheck.decode,
    Kind.UNMASK_REQUEST: UnmaskRequest.decode, Kind.UNMASK_SHARES: UnmaskShares.decode,
    Kind.OPENED: OpenedMessage.decode,
}  # fmt: skip
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
        DIGEST, 1, DIGEST, DIGEST, ((2, b"t" * 16),), ((2, b"e" * 48),), ((1, b"d" * 8), (2, b"d" * 8)), SIGNATURE
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
        assert check_of(decode, damaged) is Check.ENCODING


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(BYTES), st.data())
def test_a_damaged_message_is_refused_or_is_another_valid_one(raw: bytes, data: st.DataObject) -> None:
    at, damaged = data.draw(st.integers(0, len(raw) - 1)), bytearray(raw)
    damaged[at] ^= data.draw(st.integers(1, 255))
    decode = DECODERS[Kind(raw[1])]
    try:
        message = decode(bytes(damaged))
    except SecaggError as refused:
        assert refused.check is Check.ENCODING  # noqa: PT017  # not always raised
    else:
        assert message.encode() == bytes(damaged)  # one value, one encoding


def test_a_truth_value_is_0_or_1_and_a_word_ascii() -> None:
    assert check_of(MessageReader(b"\2", "it").flag) is Check.ENCODING
    assert check_of(MessageReader(b"\0\0\0\1\xff", "it").text, 9) is Check.ENCODING


@pytest.mark.parametrize("raw", [b"", b"\2", b"\1\1", b"\2\0", b"\2\x11"], ids=repr)
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    assert check_of(kind_of, raw) is Check.ENCODING


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
    assert check_of(MessageReader(MessageWriter().members(members).done(), "list").members) is Check.ENCODING


@pytest.mark.parametrize("members", [(), (1,), (7, 8), (1, 9), (MAX_MEMBERS,), tuple(range(1, MAX_MEMBERS + 1))])
def test_a_set_of_members_comes_back_from_one_bit_for_each_place(members: tuple[int, ...]) -> None:
    raw = MessageWriter().member_set(members).done()
    assert len(raw) == 2 + (max(members) // 8 + 1 if members else 0)
    assert MessageReader(raw, "set").member_set() == members


@pytest.mark.parametrize(
    "bits", [b"\x01", b"\x02\0", b"\0", bytes(125) + b"\x02", bytes(126) + b"\x01"], ids=lambda raw: raw.hex()[-4:]
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
    lies, raw = [Lies, Lies.in_session, Lies.after_uploads][stage](3), bytes([2, kind]) + tail
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
    said, to_server = [0], wire.to_server

    def counted(member: int, send: Send) -> list[ServerEffect]:
        said[0] += len(send.message) if member == 1 else 0
        return to_server(member, send)

    wire.to_server = counted  # type: ignore[method-assign]
    assert wire.round({member: unit_update(3, 3) for member in range(1, 6)}) is not None
    assert (said[0], said_without_drop_outs(100)) == (said_without_drop_outs(5), 12_947)
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
            assert (quick.by_member(2), quick._at) == (expected, slow._at)


@given(st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=40)), max_size=6))
def test_the_digest_of_pairs_is_that_of_their_fields(pairs: list[tuple[int, bytes]]) -> None:
    fields = (part for member, value in pairs for part in (u16(member), value))
    assert digest_by_member("tags", pairs) == digest("tags", *fields)


# ---- the bytes that are promised before a run are the bytes that travel


class Counted(Wire):
    carried = 0
    sent = 0

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        self.carried += len(message)
        return super().hand_over(member, message)

    def to_server(self, member: int, send: Send) -> list[ServerEffect]:
        self.carried += len(send.message)
        self.sent += len(send.message) if member == 2 else 0
        return super().to_server(member, send)


@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize("members", [2, 5, 9])
def test_messages_take_the_bytes_that_are_promised(members: int, suite: Suite) -> None:
    wire = Counted(members, terms_of(members, suite=suite), {"training": shape_of(members)}, dtype=np.float32)
    wire.set_up()
    # The last message of a set-up goes out in front of the first round.
    assert wire.carried == set_up_bytes(members, suite)
    wire.sent = 0
    assert wire.round({m: unit_update(m, members) for m in wire.roster.indices}) is not None
    assert wire.sent == site_bytes(members)


@pytest.mark.parametrize("suite", Suite)
def test_messages_of_a_sparse_graph_take_the_bytes_that_are_promised(suite: Suite) -> None:
    members, graph = 14, graph_terms(14, 0, 6)
    assert graph is not None
    terms = replace(terms_of(members, suite=suite), neighbours=6)
    wire = Counted(members, terms, {"training": shape_of(members)}, dtype=np.float32)
    wire.set_up()
    # Who deals, votes or draws and is a neighbour is counted twice in the promise.
    most = set_up_bytes(members, suite, graph)
    assert 0.8 * most < wire.carried <= most
    wire.sent = 0
    assert wire.round({m: unit_update(m, members) for m in wire.roster.indices}) is not None
    votes = (2, Kind.CONSISTENCY_CHECK) in wire.trace
    assert wire.sent == site_bytes(members, graph) + votes * vote_bytes(members)


def test_what_a_site_of_a_sparse_graph_sends_hardly_grows() -> None:
    sent = [site_bytes(members, graph_terms(members, 0)) for members in (200, 500, 1000)]
    assert sent == [4_128, 4_933, 5_508]
    assert set_up_bytes(1000, Suite.X25519, graph_terms(1000, 0)) < 0.2 * set_up_bytes(1000, Suite.X25519)


def test_what_the_aggregator_carries_in_a_complete_graph_grows_as_the_square_of_the_sites() -> None:
    for suite in Suite:
        assert set_up_bytes(1000, suite) < 4.1 * set_up_bytes(500, suite)
    assert site_bytes(1000) < 2.01 * site_bytes(500)
    # The aim for a hundred sites: at most 25 kB each.
    assert site_bytes(100) == 12_947


# ---- the digest of a vector, from those of its frames: the same in parts, and that of the frames on the wire

RAW = bytes(range(251)) * (3 * PIECE_BYTES // 251)
LENGTHS = [1, 200, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, len(RAW)]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_digests_are_those_of_the_frames_that_are_sent(length: int) -> None:
    vector = RAW[:length]
    _, *chunks = masked_frames(b"message", vector, frames_sha256(vector))
    sent = [hashlib.sha256(encode_collaborator_frame(chunk)).digest() for chunk in chunks]
    assert ([chunk.sha256 for chunk in chunks], vector_digest(vector)) == (sent, root_digest(length, sent))


def test_a_vector_of_nothing_has_a_digest_and_no_frame() -> None:
    assert (frames_sha256(b""), vector_digest(b"")) == ((), root_digest(0, ()))


@settings(deadline=None, max_examples=30)
@given(
    length=st.sampled_from(LENGTHS),
    sizes=st.lists(
        st.sampled_from([1, 9, 4096, 300_000, PIECE_BYTES - 9, PIECE_BYTES, 2 * PIECE_BYTES]), min_size=1
    ),
    told=st.booleans(),
)
def test_parts_of_any_length_have_the_digest_of_the_whole(length: int, sizes: list[int], told: bool) -> None:
    vector, arriving = memoryview(RAW)[:length], ArrivingDigest(length)
    at, number = 0, 0
    # Single bytes are only few, so that the example ends.
    while at < length:
        part = vector[at : at + (sizes[number % len(sizes)] if number < 40 else 2 * PIECE_BYTES)]
        arriving.add(part, (frames_sha256(part)[0] if told and len(part) <= PIECE_BYTES else b""))
        at, number = at + len(part), number + 1
    assert arriving.digest() == vector_digest(vector)


def test_a_digest_that_is_known_is_not_computed_again() -> None:
    arriving, known = ArrivingDigest(PIECE_BYTES + 5), [b"a" * 32, b"b" * 32]
    arriving.add(memoryview(RAW)[:PIECE_BYTES], known[0])
    arriving.add(memoryview(RAW)[:5], known[1])
    assert arriving.digest() == root_digest(PIECE_BYTES + 5, known)


def test_the_known_digest_of_a_part_that_crosses_a_piece_is_not_that_of_its_rest() -> None:
    vector, arriving = memoryview(RAW)[: PIECE_BYTES + 1], ArrivingDigest(PIECE_BYTES + 1)
    arriving.add(vector[: PIECE_BYTES - 9])
    arriving.add(vector[PIECE_BYTES - 9 :], frames_sha256(vector[PIECE_BYTES - 9 :])[0])
    assert arriving.digest() == vector_digest(vector)


# ---- what must not be in the package, what a mask must look like, and what must be gone afterwards

SOURCES = sorted(Path(fedfair.secagg.__file__).parent.glob("*.py"))
BANNED = {"random", "torch", "time", "os", "grpc", "socket", "threading", "asyncio"}


def _names(path: Path) -> set[str]:
    """Return every imported module and every dotted name in a source file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_randomness_but_the_callers_is_near_a_mask(path: Path) -> None:
    names = _names(path)
    assert not {name for name in names if name.split(".")[0] in BANNED}
    assert not {name for name in names if name.startswith(("np.random", "numpy.random"))}
    assert not {name for name in names if "secrets" in name.split(".")}  # randomness is an argument


def test_a_masked_zero_looks_uniform() -> None:
    # Chi-squared over bytes, 255 degrees of freedom: mean 255, deviation sqrt(2 * 255) = 22.6; 400 is 6.4 of them.
    shape = shape_of(1 << 18, checked=False)
    code = BodyCode(32, 3, 1, shape.groups, (1.0,))
    update = Update(np.zeros(1), np.zeros(1 << 18, np.float32), 1)
    seeds = [SignedSeed(Secret(secrets.token_bytes(31)), negative) for negative in (False, True)]
    vector, _ = masked_vector(update, shape, code, seeds, Secret(secrets.token_bytes(32)))
    counts = np.bincount(np.frombuffer(vector, np.uint8), minlength=256)
    expected = len(vector) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400
    again, _ = masked_vector(update, shape, code, seeds, Secret(secrets.token_bytes(32)))
    assert again == vector  # zeros round to zeros, and the same seeds give the same mask


def test_secrets_neither_print_nor_pickle_nor_outlive_their_erasure() -> None:
    secret = Secret(b"x" * 32)
    assert repr(secret) == "Secret(32 bytes)"
    with pytest.raises(LocalProtocolError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        hash(secret)
    secret.erase()
    assert secret.erased
    assert repr(secret) == "Secret(0 bytes)"
    with pytest.raises(LocalProtocolError):
        secret.reveal()


def test_no_phase_prints_a_secret() -> None:
    lies = Lies.in_session(3)
    site = lies.sites[1]
    for chain in site.session.chains.values():  # type: ignore[union-attr]
        assert repr(chain._key.reveal()) not in repr(site.session)
    site.receive(lies.start(), lies.model)
    phase = site.phase
    for key in (*phase.seeds.values(), *phase.sending.values(), *phase.receiving.values()):
        assert repr(key.reveal())[2:-1] not in repr(phase)


def test_going_on_erases_what_the_phase_before_knew() -> None:
    lies = Lies.in_session(4)
    site = lies.sites[1]
    session = site.session
    before = [chain._key for chain in session.chains.values()]
    lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    lies.server.round -= 1
    site.receive(lies.start(), lies.model)
    assert all(key.erased for key in before)  # CK_0 is gone as soon as round 1 is entered
    contributing = site.phase
    site.contribute(unit_update(1, 4), bytes(32))
    assert all(key.erased for key in (*contributing.seeds.values(), *contributing.sending.values()))
    with pytest.raises(LocalProtocolError, match="erased"):
        contributing.upload(unit_update(1, 4), bytes(32), History({}), secrets.token_bytes)
    assert isinstance(site.phase, Uploaded)
    assert not erased(site.phase)


def test_the_masks_with_others_are_gone_once_the_vote_is_given() -> None:
    lies = Lies.after_uploads(4)
    uploaded = lies.sites[1].phase
    lies.masks_of(1, (1, 2, 3))
    seeds = tuple(uploaded.masks.values())
    assert not any(seed.erased for seed in seeds)  # somebody else may vanish
    lies.vote_of(1, (1, 2, 3))
    assert all(seed.erased for seed in seeds)


def test_after_a_round_nothing_of_it_is_left() -> None:
    wire = Wire(4, terms_of(4), {"training": shape_of(4)})
    wire.set_up()
    phases: list[Uploaded | MasksWrapped | ConsistencyChecked] = []
    original = wire.hand_over

    def watch(member: int, message: bytes) -> list[object]:
        before = wire.sites[member].phase
        if isinstance(before, Uploaded | MasksWrapped | ConsistencyChecked):
            phases.append(before)
        return list(original(member, message))

    wire.hand_over = watch  # type: ignore[assignment, method-assign]
    wire.silent = {(4, Kind.UPLOAD)}
    assert wire.round({m: unit_update(m, 4) for m in (1, 2, 3, 4)}) is not None
    assert len(phases) == 9  # three handed over masks, three voted, three answered
    assert all(erased(phase) for phase in phases)
    assert all(erased(site.phase) for m, site in wire.sites.items() if m != 4 and site.phase is not None)
    left_out = wire.sites[4].phase
    assert isinstance(left_out, Uploaded)
    wire.sites[4].drop_out()
    assert erased(left_out)


def test_a_session_that_is_left_is_erased() -> None:
    lies = Lies.in_session(3)
    chains = list(lies.sites[1].session.chains.values())
    lies.set_up()
    assert all(chain.erased for chain in chains)
    assert not isinstance(lies.sites[1]._setup, Agreed)
