"""Wrong, short, long, duplicate and late messages of members, and shares that are not the promised ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check
from fedfair.secagg.effects import Contradicted, RoundAborted, Send, SendTo, ServerEffect, SumOpened
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind
from fedfair.secagg.pieces import vector_digest
from fedfair.secagg.round_messages import ConsistencyCheck, PairMasks, UnmaskShares, Upload
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.signing import sign
from tests.attacks.harness import Lies, noise, refused_by_server
from tests.secagg.federation_in_memory import signing_key, unit_update


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
    lies.server.receive(1, send.message, send.vector)


def test_an_advert_for_a_set_up_that_is_over_is_late_and_no_forgery() -> None:
    lies = Lies(3)
    (first, *_) = lies.server.open_session(lies.roster.indices)
    assert isinstance(first, SendTo)
    (_, slow) = lies.sites[1].receive(first.message, lies.model)
    assert isinstance(slow, Send)
    lies.server.open_session(lies.roster.indices)
    assert refused_by_server(lies, 1, slow) is Check.LATE
    forged = Send(slow.message[:-1] + bytes([slow.message[-1] ^ 1]))
    assert refused_by_server(lies, 1, forged) is Check.SIGNATURE


def test_what_a_member_says_who_is_asked_no_more_is_late_and_no_lie() -> None:
    """It was asked, the wait for it ended, and the others were asked the same kind of thing again."""
    lies = Lies(4)
    (first, *_) = lies.server.open_session(lies.roster.indices)
    assert isinstance(first, SendTo)
    (_, slow) = lies.sites[4].receive(first.message, lies.model)
    assert isinstance(slow, Send)
    lies.server.open_session((1, 2, 3))
    assert refused_by_server(lies, 4, slow) is Check.LATE
    assert lies.server.awaited == (1, 2, 3)


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
    assert lies.server.state is ServerState.PAIR_MASKS
    assert refused_by_server(lies, 5, sends[5]) is Check.LATE
    masks = {e.member: lies.carry_out(e.member, lies.hand_over(e.member, e.message))[0] for e in asked}
    for member in (1, 2, 3, 4):
        asked = lies.server.receive(member, masks[member].message)
    assert lies.server.state is ServerState.VOTES
    assert refused_by_server(lies, 4, masks[4]) is Check.LATE
    votes = {e.member: lies.carry_out(e.member, lies.hand_over(e.member, e.message))[0] for e in asked}
    for member in (1, 2, 3):
        lies.server.receive(member, votes[member].message)
    lies.server.deadline()
    assert lies.server.state is ServerState.ANSWERS
    assert refused_by_server(lies, 4, votes[4]) is Check.LATE


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
    pending = _without_the_fifth(lies)
    found: list[ServerEffect] = []
    while pending:
        effect = pending.pop(0)
        if not isinstance(effect, SendTo):
            found.append(effect)
            continue
        (send,) = lies.carry_out(effect.member, lies.hand_over(effect.member, effect.message))
        message = send.message
        if effect.member == 1 and message[1] == Kind.PAIR_MASKS:
            message = replace(PairMasks.decode(message), masks=((5, bytes(31)),)).encode()
        pending += lies.server.receive(effect.member, message, send.vector)
    named, aborted = found
    assert isinstance(named, Contradicted)
    assert isinstance(aborted, RoundAborted)
    assert (named.member, named.proven, aborted.missing) == (1, True, (1,))
    assert aborted.reason == "clinic-1 handed over another mask with clinic-5 than its upload names"


def test_a_wrong_share_is_not_used_and_the_round_opens_from_the_others() -> None:
    lies = Lies.in_session()
    pending = _without_the_fifth(lies)
    while pending:
        effect = pending.pop(0)
        if isinstance(effect, SumOpened):
            assert lies.server.take_sum().weight == 4
            return
        if isinstance(effect, Contradicted):
            assert effect.reason == "clinic-1 answers with other shares than clinic-2 promised"
            assert not effect.proven
            continue
        assert isinstance(effect, SendTo)
        (send,) = lies.carry_out(effect.member, lies.hand_over(effect.member, effect.message))
        message = send.message
        if effect.member == 1 and message[1] == Kind.UNMASK_SHARES:
            answer = UnmaskShares.decode(message)
            own, (first, shares), *others = answer.shares
            # One more in the last byte of a share: still in the field, and the result may still have 31 bytes.
            forged = bytearray(shares)
            forged[31] ^= 1
            message = replace(answer, shares=(own, (first, bytes(forged)), *others)).encode()
        pending += lies.server.receive(effect.member, message, send.vector)
    pytest.fail("the sum was not opened")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_replaced_and_counted_in_the_sum(value: float) -> None:
    lies = Lies.in_session()
    body = np.zeros(5, np.float32)
    body[3] = value
    updates = lies.fresh_updates() | {1: Update(np.array([value]), body, 1)}
    opened = lies.round(updates)
    assert opened is not None
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
    sends = _asked(lies)
    vector = bytearray(sends[1].vector)
    np.frombuffer(vector, np.int64, 4)[place] += added
    upload = Upload.decode(sends[1].message)
    forged = _signed(replace(upload, vector_digest=vector_digest(vector)), 1)
    sends[1] = Send(forged, vector)
    pending: list[ServerEffect] = []
    for member, send in sends.items():
        pending += lies.server.receive(member, send.message, send.vector)
    while pending:
        effect = pending.pop(0)
        if isinstance(effect, RoundAborted):
            assert words in effect.reason
            return
        assert isinstance(effect, SendTo)
        for send in lies.carry_out(effect.member, lies.hand_over(effect.member, effect.message)):
            pending += lies.server.receive(effect.member, send.message, send.vector)
    pytest.fail("the round was not aborted")
