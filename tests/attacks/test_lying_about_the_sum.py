"""An aggregator that claims another sum than it has opened: every site refuses it by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import RoundAborted, Send, SendTo, ServerEffect, SumAccepted, SumOpened
from fedfair.secagg.fixedpoint import packed_body, unpack_signed
from fedfair.secagg.keys import Secret
from fedfair.secagg.masking import Update, abstention, untagged
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import RING_BITS
from fedfair.secagg.recovery import Announcement
from fedfair.secagg.round_messages import ConsistencyCheck, OpenedMessage, PairMasks, UnmaskShares, Upload
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.shape import SumShape
from fedfair.secagg.signing import sign
from fedfair.secagg.sum_check import MODULUS, SumCheck, tag_limbs, tag_of_limbs
from fedfair.secagg.vector_digest import vector_digest
from tests.attacks.harness import Lies, carried, noise, refused_by_server
from tests.secagg.federation_in_memory import MODEL, Wire, shape_of, signing_key, terms_of, unit_update


def nothing(words: np.ndarray) -> None:
    """Change nothing."""


class SumLies(Wire):
    """A federation that has opened a sum over members 1 to 4 of 5, for 5 came too late; nobody was told of it."""

    def tell(self) -> None:
        """Tell nobody."""

    @classmethod
    def opened_by(cls, members: int = 5, *, silent: tuple[int, ...] = (5,), check_sums: bool = True) -> SumLies:
        shape = shape_of(members, checked=check_sums)
        lies = cls(members, terms_of(members, check_sums=check_sums), {"training": shape})
        lies.set_up()
        lies.silent = {(member, Kind.UPLOAD) for member in silent}
        assert lies.round({m: unit_update(m, members) for m in lies.roster.indices}) is not None
        return lies

    @property
    def told(self) -> Announcement:
        """Return what an honest aggregator tells."""
        assert self.server.announcement is not None
        return self.server.announcement

    def claim(
        self,
        header: Callable[[np.ndarray], object] = nothing,
        body: Callable[[np.ndarray], object] = nothing,
        **changes: object,
    ) -> Announcement:
        """Return the opened sum with lies: each callable changes the words in place."""
        honest = OpenedMessage.decode(self.told.message)
        words = np.frombuffer(honest.header, "<u8").copy()
        header(words)
        values = unpack_signed(np.frombuffer(self.told.vector, np.uint8), 32, self.members)
        body(values)
        message = replace(honest, header=words.tobytes(), **changes)
        return Announcement(message.encode(), packed_body(values, 32))

    def take(self, member: int, told: Announcement) -> list[object]:
        """Return what a site does with an opened sum."""
        return list(self.sites[member].receive(told.message, MODEL, vector=told.vector))

    def refusal(self, member: int, told: Announcement) -> Check:
        """Return with which check a site refuses an opened sum; it must be as it was."""
        before = (self.sites[member].phase, self.sites[member]._acceptance.accepted)
        with pytest.raises(SecaggError) as refused:
            self.take(member, told)
        assert before == (self.sites[member].phase, self.sites[member]._acceptance.accepted)
        return refused.value.check


@pytest.fixture(scope="module")
def lies() -> SumLies:
    return SumLies.opened_by()


def add(place: int, number: int) -> Callable[[np.ndarray], object]:
    def change(words: np.ndarray) -> None:
        words[place : place + 1] += words.dtype.type(number % (1 << 8 * words.dtype.itemsize))

    return change


def test_one_unit_in_any_coordinate_is_refused_by_every_site(lies: SumLies) -> None:
    for member, place, by in itertools.product(lies.roster.indices, range(lies.members), (1, -1)):
        assert lies.refusal(member, lies.claim(body=add(place, by))) is Check.SUM


def test_one_unit_in_any_word_of_the_header_is_refused(lies: SumLies) -> None:
    words = lies.shapes["training"].masked_header_length()
    for place, by in itertools.product(range(words), (1, -1, 1 << 62)):
        assert lies.refusal(1, lies.claim(header=add(place, by))) is Check.SUM


@pytest.mark.parametrize("factor", [0, 2, -1])
def test_a_multiple_of_the_sum_and_of_its_tag_is_refused(lies: SumLies, factor: int) -> None:
    tag = lies.shapes["training"].tag_words

    def scaled(words: np.ndarray) -> None:
        multiple = factor * tag_of_limbs(words[tag]) % MODULUS
        words[:] = (words.view(np.int64) * factor).view(np.uint64)
        words[tag] = tag_limbs(multiple)

    def body(words: np.ndarray) -> None:
        words[:] = (words.view(np.int32) * factor).view(np.uint32)

    assert lies.refusal(2, lies.claim(scaled, body)) is Check.SUM


def test_without_the_pads_a_multiple_of_the_sum_would_be_believed() -> None:
    # The broken variant: tags as they would be without r_k. This is what the pads are for.
    check = SumCheck(Secret(b"k" * 32), 3, 2)
    body, header = np.array([5, -7, 9], np.int32), np.array([11, -1], np.int64)

    def unpadded(factor: int) -> int:
        numbers = (header * factor).view(np.uint64), (body * factor).view(np.uint32)
        return (check.header(numbers[0]) + check.body(numbers[1])) % MODULUS

    seen = unpadded(1)
    for factor in (0, 2, -3):
        assert (factor * seen % MODULUS) == unpadded(factor)
        assert (factor * (seen + check.pad(1)) % MODULUS) != (unpadded(factor) + check.pad(1)) % MODULUS


def test_other_survivors_are_refused(lies: SumLies) -> None:
    for survivors in ((1, 2, 3), (1, 2, 3, 4, 5), (1, 2, 3, 5)):
        claim = lies.claim(survivors=survivors)
        assert lies.refusal(1, claim) is Check.SURVIVORS  # it has voted for the four
        assert lies.refusal(5, claim) is Check.SUM  # it has voted for nobody; the pads tell
    assert lies.refusal(5, lies.claim(survivors=(1, 2))) is Check.SURVIVORS
    assert lies.refusal(5, lies.claim(survivors=(1, 2, 3, 9))) is Check.SURVIVORS


def test_swapped_coordinates_are_refused(lies: SumLies) -> None:
    def swap(words: np.ndarray) -> None:
        words[[0, 4]] = words[[4, 0]]

    assert lies.refusal(3, lies.claim(body=swap)) is Check.SUM


def test_swapped_blocks_are_refused() -> None:
    lies = SumLies(3, terms_of(3), {"training": shape_of(2 * 65536)})
    lies.set_up()
    body = np.repeat([0.5, -0.5], 65536)
    assert lies.round({m: Update(np.array([m / 8]), body, 1) for m in (1, 2, 3)}) is not None
    values = np.frombuffer(lies.told.vector, np.uint32)
    swapped = Announcement(lies.told.message, np.concatenate([values[65536:], values[:65536]]).tobytes())
    assert lies.refusal(1, swapped) is Check.SUM
    assert [type(effect) for effect in lies.take(1, lies.told)] == [SumAccepted]


def test_a_sum_of_another_length_is_refused(lies: SumLies) -> None:
    assert lies.refusal(1, Announcement(lies.told.message, lies.told.vector[:-4])) is Check.VECTOR
    longer = replace(
        OpenedMessage.decode(lies.told.message), header=OpenedMessage.decode(lies.told.message).header + bytes(8)
    )
    assert lies.refusal(1, Announcement(longer.encode(), lies.told.vector)) is Check.VECTOR


def test_every_site_takes_the_true_sum_the_same_again_and_no_second_one() -> None:
    lies = SumLies.opened_by()
    for member in lies.roster.indices:  # the fifth is in no sum, and is told of it all the same
        (accepted,) = lies.take(member, lies.told)
        np.testing.assert_array_equal(accepted.opened.body, lies.opened.body)
        assert accepted.opened.survivors == (1, 2, 3, 4)
        (again,) = lies.take(member, lies.told)
        assert again.state_digest == accepted.state_digest
        np.testing.assert_array_equal(again.opened.body, accepted.opened.body)
        assert lies.refusal(member, lies.claim(body=add(0, 1))) is Check.SUM
        # The same sum with its tag written in another way is not told twice either.
        assert lies.refusal(member, lies.claim(header=lambda words: respelt(words, lies))) is Check.SUM


def respelt(words: np.ndarray, lies: SumLies) -> None:
    tag = lies.shapes["training"].tag_words
    words[tag] = tag_limbs(tag_of_limbs(words[tag]))


def test_a_sum_of_an_earlier_round_is_refused() -> None:
    lies = SumLies.opened_by(silent=())
    earlier = lies.told
    assert lies.round({m: unit_update(m, 5) for m in lies.roster.indices}) is not None
    assert lies.refusal(1, earlier) is Check.TRANSCRIPT
    assert [type(effect) for effect in lies.take(1, lies.told)] == [SumAccepted]


def test_a_site_that_was_started_again_still_checks_the_sum_of_its_round() -> None:
    lies = SumLies.opened_by()
    for member in (1, 5):
        lies.restart(member)
        assert lies.refusal(member, lies.claim(body=add(1, 1))) is Check.SUM
        assert [type(effect) for effect in lies.take(member, lies.told)] == [SumAccepted]


def test_without_the_tag_everything_else_is_checked() -> None:
    lies = SumLies.opened_by(check_sums=False)
    assert lies.refusal(1, lies.claim(survivors=(1, 2, 3))) is Check.SURVIVORS
    assert lies.refusal(1, lies.claim(body=add(0, 1 << 30))) is Check.SUM
    assert lies.refusal(1, lies.claim(header=add(0, -(1 << 40)))) is Check.SUM
    (accepted,) = lies.take(1, lies.claim(body=add(0, 1)))  # what the plan was told is lost
    assert isinstance(accepted, SumAccepted)


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    ring_bits=st.sampled_from(RING_BITS),
    length=st.sampled_from([0, 1, 5, 40]),
    seed=st.integers(0, 1 << 30),
    data=st.data(),
)
def test_the_tags_of_survivors_add_up_to_that_of(
    ring_bits: int, length: int, seed: int, data: st.DataObject
) -> None:
    """The site's own check, and a slow oracle in whole numbers, over drop-outs and abstentions."""
    shape = shape_of(length, 3)
    wire = Wire(5, terms_of(5, ring_bits=ring_bits), {"training": shape})
    wire.set_up()
    random, idle = np.random.default_rng(seed), data.draw(st.sets(st.integers(1, 5), max_size=2))
    wire.silent = {(member, Kind.UPLOAD) for member in data.draw(st.sets(st.integers(1, 5), max_size=2))}
    updates = {
        m: abstention(shape)
        if m in idle
        else Update(random.uniform(-100, 100, 3), random.normal(size=length) * 2, int(random.integers(1, 1000)))
        for m in range(1, 6)
    }
    if wire.round(updates) is None:
        return  # Every remaining member had abstained.
    assert set(wire.accepted) == {1, 2, 3, 4, 5}
    told = wire.server.announcement
    message, due = OpenedMessage.decode(told.message), wire.sites[1]._acceptance.due
    words = np.frombuffer(message.header, "<u8").copy()
    body = unpack_signed(np.frombuffer(told.vector, np.uint8), ring_bits, length)
    numbers = untagged(words, shape).view(np.int64).tolist(), body.view(np.int32).tolist()
    assert slow_tag(due.check.key, shape, *numbers, message.survivors) == tag_of_limbs(words[shape.tag_words])


def slow_tag(key: Secret, shape: SumShape, header: list[int], body: list[int], survivors: tuple[int, ...]) -> int:
    """Return the tag of a sum of at most one block, number by number."""
    check = SumCheck(key, shape.body_length, len(header))
    inner = check._numbers("inner", len(body)).tolist()
    (outer,) = check._numbers("blocks", 1).tolist() if body else (0,)
    tag = outer * sum(v * x for v, x in zip(inner, body, strict=True))
    tag += sum(w * h for w, h in zip(check._numbers("header", len(header)).tolist(), header, strict=True))
    return (tag + sum(map(check.pad, survivors))) % MODULUS


# ---- wrong, short, long, duplicate and late messages of members, and shares that are not the promised ones


def _asked(lies: Lies) -> dict[int, Send]:
    """Start a round and return every site's upload; none is delivered."""
    lies.updates = lies.fresh_updates()
    effects = lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    assert all(isinstance(effect, SendTo) for effect in effects)
    return {e.member: lies.carry_out(e.member, lies.hand_over(e.member, e.message))[0] for e in effects}


def _without_the_fifth(lies: Lies) -> list[ServerEffect]:
    """Start a round, deliver all uploads but the fifth, end the wait for it, and return what is to be done."""
    sends = _asked(lies)
    pending: list[ServerEffect] = []
    for member in (1, 2, 3, 4):
        pending += lies.server.receive(member, sends[member].message, sends[member].vector)
    return pending + lies.server.deadline()


def _signed(upload: Upload, member: int) -> bytes:
    return replace(upload, signature=sign(signing_key(member), "upload", *upload.signed_fields())).encode()


def test_a_vector_of_the_wrong_length_or_content_is_refused() -> None:
    lies = Lies.in_session()
    send = _asked(lies)[1]
    for vector in (b"", send.vector[:-4], bytes(send.vector) + bytes(4), bytes(len(send.vector))):
        assert refused_by_server(lies, 1, Send(send.message, vector)) is Check.VECTOR
    unsigned = replace(Upload.decode(send.message), vector_digest=noise()).encode()
    assert refused_by_server(lies, 1, Send(unsigned, send.vector)) is Check.SIGNATURE
    lies.server.receive(1, send.message, send.vector)


def test_an_advert_for_a_set_up_that_is_over_is_late_and_no_forgery() -> None:
    lies = Lies(3)
    (first, *_) = lies.server.open_session(lies.roster.indices)
    (_, slow) = lies.sites[1].receive(first.message, lies.model)
    lies.server.open_session(lies.roster.indices)
    assert refused_by_server(lies, 1, slow) is Check.LATE
    forged = Send(slow.message[:-1] + bytes([slow.message[-1] ^ 1]))
    assert refused_by_server(lies, 1, forged) is Check.SIGNATURE


def test_what_a_member_says_who_is_asked_no_more_is_late_and_no_lie() -> None:
    """It was asked, the wait for it ended, and the others were asked the same kind of thing again."""
    lies = Lies(4)
    (first, *_) = lies.server.open_session(lies.roster.indices)
    (_, slow) = lies.sites[4].receive(first.message, lies.model)
    assert isinstance(slow, Send)
    lies.server.open_session((1, 2, 3))
    assert (refused_by_server(lies, 4, slow), lies.server.awaited) == (Check.LATE, (1, 2, 3))


def test_speaking_as_somebody_else_is_refused() -> None:
    lies = Lies.in_session()
    sends = _asked(lies)
    assert refused_by_server(lies, 2, sends[1]) is Check.MEMBERSHIP
    assert refused_by_server(lies, 9, sends[1]) is Check.MEMBERSHIP


def test_shares_for_another_cohort_or_of_another_length_are_refused() -> None:
    lies = Lies.in_session()
    send = _asked(lies)[1]
    upload = Upload.decode(send.message)
    short = tuple((peer, box[:-1]) for peer, box in upload.envelopes)
    for lie in (replace(upload, envelopes=upload.envelopes[1:]), replace(upload, envelopes=short)):
        assert refused_by_server(lies, 1, Send(_signed(lie, 1), send.vector)) is Check.ENVELOPE


def test_a_second_upload_is_refused_and_a_resend_is_passed_over() -> None:
    lies = Lies.in_session()
    send = _asked(lies)[1]
    assert lies.server.receive(1, send.message, send.vector) == []
    held = lies.round_state._sum.header.copy()
    assert lies.server.receive(1, send.message, send.vector) == []
    np.testing.assert_array_equal(lies.round_state._sum.header, held)
    other = _signed(replace(Upload.decode(send.message), commitment=noise()), 1)
    assert refused_by_server(lies, 1, Send(other, send.vector)) is Check.DUPLICATE


def test_late_messages_are_refused() -> None:
    lies = Lies.in_session()
    sends = _asked(lies)
    for member in (1, 2, 3, 4):
        lies.server.receive(member, sends[member].message, sends[member].vector)
    asked = lies.server.deadline()
    assert (lies.server.state, refused_by_server(lies, 5, sends[5])) == (ServerState.PAIR_MASKS, Check.LATE)
    masks = {e.member: lies.carry_out(e.member, lies.hand_over(e.member, e.message))[0] for e in asked}
    for member in (1, 2, 3, 4):
        asked = lies.server.receive(member, masks[member].message)
    assert (lies.server.state, refused_by_server(lies, 4, masks[4])) == (ServerState.VOTES, Check.LATE)
    votes = {e.member: lies.carry_out(e.member, lies.hand_over(e.member, e.message))[0] for e in asked}
    for member in (1, 2, 3):
        lies.server.receive(member, votes[member].message)
    lies.server.deadline()
    assert (lies.server.state, refused_by_server(lies, 4, votes[4])) == (ServerState.ANSWERS, Check.LATE)


def test_a_vote_for_another_set_or_forged_is_refused() -> None:
    lies = Lies.in_session()
    _without_the_fifth(lies)
    masks = PairMasks.decode(lies.masks_of(1, (1, 2, 3, 4)))
    for lie in (
        replace(masks, survivors=(1, 2, 3)),
        replace(masks, masks=()),
        replace(masks, masks=((4, bytes(31)),)),
    ):
        assert refused_by_server(lies, 1, Send(lie.encode())) is Check.SURVIVORS
    for member in (1, 2, 3, 4):
        lies.server.receive(member, lies.masks_of(member, (1, 2, 3, 4)))
    honest = ConsistencyCheck(lies.transcript, 1, (1, 2, 3, 4), bytes(64))
    assert refused_by_server(lies, 1, Send(honest.encode())) is Check.SIGNATURE
    assert refused_by_server(lies, 1, Send(replace(honest, survivors=(1, 2, 3)).encode())) is Check.VOTES


def test_a_site_that_hands_over_another_mask_than_its_tag_is_of_is_named_by_what_it_signed() -> None:
    lies = Lies.in_session()

    def other_mask(member: int, send: Send) -> Send:
        if member != 1 or send.message[1] != Kind.PAIR_MASKS:
            return send
        return Send(replace(PairMasks.decode(send.message), masks=((5, bytes(31)),)).encode())

    named, aborted = carried(lies, _without_the_fifth(lies), other_mask)
    assert (named.member, named.proven, aborted.missing) == (1, True, (1,))
    assert aborted.reason == "clinic-1 handed over another mask with clinic-5 than its upload names"


def test_a_wrong_share_is_not_used_and_the_round_opens_from_the_others() -> None:
    lies = Lies.in_session()

    def other_share(member: int, send: Send) -> Send:
        if member != 1 or send.message[1] != Kind.UNMASK_SHARES:
            return send
        answer = UnmaskShares.decode(send.message)
        own, (first, shares), *others = answer.shares
        # One more in the last byte of a share: still in the field, and the result may still have 31 bytes.
        forged = shares[:31] + bytes([shares[31] ^ 1]) + shares[32:]
        return Send(replace(answer, shares=(own, (first, forged), *others)).encode())

    named, opened = carried(lies, _without_the_fifth(lies), other_share)
    assert (named.reason, named.proven) == ("clinic-1 answers with other shares than clinic-2 promised", False)
    assert isinstance(opened, SumOpened)
    assert lies.server.take_sum().weight == 4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_replaced_and_counted_in_the_sum(value: float) -> None:
    lies, body = Lies.in_session(), np.zeros(5, np.float32)
    body[3] = value
    opened = lies.round(lies.fresh_updates() | {1: Update(np.array([value]), body, 1)})
    assert (opened.replaced, opened.replacing, opened.contributors) == (2, 1, 5)
    assert np.isfinite(opened.body).all()
    assert np.isfinite(opened.header).all()


def test_an_update_of_another_shape_is_our_own_fault() -> None:
    lies = Lies.in_session()
    lies.sites[1].receive(lies.start(), lies.model)
    with pytest.raises(LocalProtocolError):
        lies.sites[1].contribute(Update(np.zeros(1), np.zeros(6), 1), bytes(32))


def test_nobody_contributes_before_being_asked_or_twice() -> None:
    lies = Lies.in_session()
    with pytest.raises(LocalProtocolError):
        lies.sites[1].contribute(unit_update(1, 5), bytes(32))
    lies.sites[1].receive(lies.start(), lies.model)
    lies.sites[1].contribute(unit_update(1, 5), bytes(32))
    with pytest.raises(LocalProtocolError):
        lies.sites[1].contribute(unit_update(1, 5), bytes(32))


@pytest.mark.parametrize(
    ("place", "added", "words"),
    [
        # A negative weight cancels every mask like any other; the sum of weights says what happened.
        (0, -2000, "a sum of counts lies outside"),
        # Otherwise one site could keep a federation from every certificate, and say nothing that is wrong.
        (2, 7, "7 replaced values of 0 sites"),
        (3, 1, "0 replaced values of 1 sites"),
    ],
)
def test_a_malformed_contribution_shows_in_an_implausible_total(place: int, added: int, words: str) -> None:
    lies = Lies.in_session(3)

    def malformed(member: int, send: Send) -> Send:
        if member != 1 or send.message[1] != Kind.UPLOAD:
            return send
        vector = bytearray(send.vector)
        np.frombuffer(vector, np.int64, 4)[place] += added
        return Send(_signed(replace(Upload.decode(send.message), vector_digest=vector_digest(vector)), 1), vector)

    lies.updates = lies.fresh_updates()
    (aborted,) = carried(
        lies, lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices), malformed
    )
    assert isinstance(aborted, RoundAborted)
    assert words in aborted.reason
