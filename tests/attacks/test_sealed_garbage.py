"""A site seals garbage in place of shares, or says falsely that another did: it is named; the others continue."""

import secrets
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.client import Contributing
from fedfair.secagg.effects import Contradicted, RoundAborted, Send, SendTo, SiteEffect
from fedfair.secagg.keys import Secret
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.round_messages import Upload
from fedfair.secagg.sealing import ENVELOPE_BYTES, seal
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.shamir import PRIME, SHARE_BYTES
from tests.attacks.harness import check_of
from tests.attacks.test_blame import LyingWire, of_kind, resigned_upload
from tests.secagg.federation_in_memory import arrived_of, unit_update

CHEAP = settings(deadline=None, max_examples=12)
Sealing = Callable[[Secret, bytes, int, int], bytes]
"""From the key, the transcript, the sender and the receiver to an envelope."""


def noise(key: Secret, transcript: bytes, sender: int, receiver: int) -> bytes:
    del key, transcript, sender, receiver
    return secrets.token_bytes(ENVELOPE_BYTES)


def no_shares(key: Secret, transcript: bytes, sender: int, receiver: int) -> bytes:
    return seal(key, transcript, sender, receiver, PRIME.to_bytes(SHARE_BYTES, "big"))


def other_shares(key: Secret, transcript: bytes, sender: int, receiver: int) -> bytes:
    return seal(key, transcript, sender, receiver, bytes([0, *secrets.token_bytes(31)]))


class SealingWire(LyingWire):
    """One liar seals what it likes for some of the others, or accuses somebody when it is asked to answer."""

    def __init__(self, members: int, liar: int, colluders: int = 0) -> None:
        super().__init__(members, colluders)
        self.liar = liar
        self.accused = 0
        self._keys: dict[int, Secret] = {}

    def seal_with(self, sealing: Sealing, receivers: Collection[int]) -> None:
        self.lie = of_kind(Kind.UPLOAD, (self.liar,), lambda send: self._sealed(send, sealing, receivers))

    def _contribute(self, member: int) -> list[SiteEffect]:
        phase = self.sites[member].phase
        if member == self.liar and isinstance(phase, Contributing):
            self._keys = {peer: Secret(key.reveal()) for peer, key in phase.sending.items()}
        return super()._contribute(member)

    def _sealed(self, send: Send, sealing: Sealing, receivers: Collection[int]) -> Send:
        upload = Upload.decode(send.message)
        envelopes = tuple(
            (peer, sealing(self._keys[peer], upload.transcript, self.liar, peer) if peer in receivers else box)
            for peer, box in upload.envelopes
        )
        return resigned_upload(replace(upload, envelopes=envelopes), send)

    def sum_of(self, *, members: tuple[int, ...] = (), purpose: str = "training") -> tuple[int, ...] | None:
        """Run one round, with whoever was gone from the last one: every sum begins anew."""
        for member in members or self.server.members:
            self.server.returned(member)
        return super().sum_of(members=members, purpose=purpose)

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        if member == self.liar and self.accused and kind_of(message) is Kind.UNMASK_REQUEST:
            raise SecaggError(Check.ENVELOPE, "a lie", accused=self.accused)
        return super().hand_over(member, message)

    def honest(self) -> tuple[int, ...]:
        return tuple(member for member in range(1, self.members + 1) if member != self.liar)

    def has_answered(self) -> set[int]:
        return {member for member, kind in self.trace if kind is Kind.UNMASK_SHARES}


@pytest.mark.parametrize("sealing", [noise, no_shares])
@pytest.mark.parametrize("liar", [1, 3, 5], ids=["first", "in the middle", "last"])
def test_a_liar_that_seals_garbage_for_all_members_is_named_and_left_out(liar: int, sealing: Sealing) -> None:
    wire = SealingWire.in_session(5, liar)
    honest = wire.honest()
    wire.seal_with(sealing, honest)
    assert wire.sum_of() is None
    assert wire.has_answered() <= {liar}, "whoever refuses says nothing of the sum"
    assert [(member, fault.accused) for member, fault in wire.accusations] == [(one, liar) for one in honest]
    assert all(f"clinic-{liar}" in fault.message for _, fault in wire.accusations)
    assert (wire.proven(), {effect.member for effect in wire.contradicted}) == ({liar}, {liar})
    aborted = wire.aborted
    assert (aborted.missing, aborted.survivors, aborted.answered, aborted.reopens) == ((liar,), (), False, False)
    # The sites are bound by nothing: they have helped to open no sum.
    assert wire.sum_of(members=honest) == honest


def test_garbage_for_one_victim_opens_the_sum_without_its_answer_and_both_are_suspected() -> None:
    wire = SealingWire.in_session(5, 2)
    wire.seal_with(noise, {4})
    for _ in range(3):
        assert wire.sum_of() == (1, 2, 3, 4, 5)
    assert 4 not in wire.has_answered()
    words = "clinic-2 sealed shares that do not open, according to clinic-4"
    assert set(wire.contradicted) == {Contradicted(2, words, proven=False, left_out=False)}


def test_garbage_for_another_victim_each_time_names_the_liar_after_a_majority_of_them() -> None:
    wire = SealingWire.in_session(5, 2)
    for victim in (1, 3, 4):
        assert wire.proven() == set()
        wire.seal_with(noise, {victim})
        assert wire.sum_of() == (1, 2, 3, 4, 5)
    assert wire.proven() == {2}


def test_where_every_answer_is_needed_of_two_that_contradict_each_other_each_is_left_out_in_turn() -> None:
    wire = SealingWire.in_session(4, 1, colluders=2)
    wire.seal_with(noise, {3})
    missing = []
    for _ in range(4):
        assert wire.sum_of() is None
        assert wire.aborted.reason == "3 answers, 4 are needed"
        assert wire.aborted.survivors == (1, 2, 3, 4), "two honest sites have answered"
        missing.append(wire.aborted.missing)
    assert (missing, wire.proven()) == ([(3,), (1,)] * 2, set())


def test_shares_that_open_but_are_not_those_that_were_promised_are_found_by_their_digests() -> None:
    wire = SealingWire.in_session(5, 4)
    wire.seal_with(other_shares, {2})
    assert (wire.sum_of(), wire.accusations) == ((1, 2, 3, 4, 5), [])
    words = "clinic-2 answers with other shares than clinic-4 promised"
    assert wire.contradicted == [Contradicted(2, words, proven=False, left_out=False)]
    wire.seal_with(other_shares, wire.honest())
    assert wire.sum_of() is None
    assert wire.proven() == {4}


def test_two_liars_that_seal_garbage_are_named_one_after_the_other() -> None:
    wire = SealingWire.in_session(5, 1)
    wire.seal_with(noise, {3, 4, 5})
    first, second = wire.lie, of_kind(Kind.UPLOAD, (2,), noise_for_everybody)
    wire.lie = lambda member, send: second(member, first(member, send))
    assert wire.sum_of() is None
    assert wire.proven() == {1}
    assert wire.sum_of(members=(2, 3, 4, 5)) is None
    assert (wire.proven(), wire.sum_of(members=(3, 4, 5))) == ({1, 2}, (3, 4, 5))


def noise_for_everybody(send: Send) -> Send:
    upload = Upload.decode(send.message)
    envelopes = tuple((peer, secrets.token_bytes(len(box))) for peer, box in upload.envelopes)
    return resigned_upload(replace(upload, envelopes=envelopes), send)


# ---------------------------------------------------------------- false accusations


def test_a_liar_that_accuses_the_same_honest_site_each_time_stops_nothing_and_proves_nothing() -> None:
    wire = SealingWire.in_session(5, 3)
    wire.accused = 5
    for _ in range(6):
        assert wire.sum_of() == (1, 2, 3, 4, 5)
    assert wire.proven() == set()


def test_a_liar_that_accuses_one_honest_site_after_the_other_names_itself() -> None:
    wire = SealingWire.in_session(5, 3)
    for wire.accused in (1, 2, 4):
        assert (wire.proven(), wire.sum_of()) == (set(), (1, 2, 3, 4, 5))
    assert wire.proven() == {3}
    assert wire.contradicted[-1].reason == "clinic-3 contradicts clinic-1, clinic-2, clinic-4"


def asked_to_open() -> LyingWire:
    """Return a wire of five whose first four were asked to open their sum, and whose answers did not arrive."""
    wire = LyingWire.in_session(5)
    wire.silent = {(5, Kind.UPLOAD)} | {(member, Kind.UNMASK_SHARES) for member in range(1, 5)}
    wire.updates = {member: unit_update(member, 5) for member in wire.server.members}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), wire.server.members))
    wire.deliver(wire.server.deadline())
    assert wire.server.state is ServerState.ANSWERS
    return wire


def state_of(wire: LyingWire) -> tuple[object, ...]:
    server = wire.server
    noted = {member: server._sums.disputes.contradicting(member) for member in range(1, 6)}
    return server.state, server.awaited, set(arrived_of(server).shares.unopened), noted


@pytest.mark.parametrize(
    ("holder", "owner"),
    [(1, 1), (1, 5), (1, 0), (1, 99), (99, 1)],
    ids=["itself", "who did not upload", "nobody", "a stranger", "by a stranger"],
)
def test_an_accusation_that_no_honest_member_makes_is_refused_and_changes_nothing(holder: int, owner: int) -> None:
    wire = asked_to_open()
    before = state_of(wire)
    with pytest.raises(SecaggError) as refusal:
        wire.server.accuse(holder, owner)
    assert (refusal.value.check, state_of(wire)) == (Check.MEMBERSHIP, before)


def test_an_accusation_by_who_is_not_asked_this_time_is_late() -> None:
    wire = asked_to_open()
    before = state_of(wire)
    with pytest.raises(SecaggError) as refusal:
        wire.server.accuse(5, 1)
    assert (refusal.value.check, state_of(wire)) == (Check.LATE, before)


def test_a_member_accuses_once_in_a_sum_and_not_after_its_answer() -> None:
    wire = asked_to_open()
    wire.silent.clear()
    wire.deliver([SendTo(3, wire.server._phase.asked[3])])
    wire.server.accuse(1, 2)
    before = state_of(wire)
    for holder, owner in ((1, 2), (1, 3), (3, 2)):
        assert check_of(wire.server.accuse, holder, owner) is Check.DUPLICATE
    assert (state_of(wire), arrived_of(wire.server).shares.unopened) == (before, {(1, 2)})


def test_a_refusal_that_others_were_quicker_than_counts_until_the_next_sum_is_over_and_once() -> None:
    wire = asked_to_open()
    wire.silent.clear()
    wire.deliver([SendTo(member, wire.server._phase.asked[member]) for member in (1, 2, 3)])
    assert wire.server.state is ServerState.READY
    for holder, owner, check in ((4, 4, Check.MEMBERSHIP), (4, 5, Check.MEMBERSHIP), (4, 0, Check.MEMBERSHIP)):
        assert check_of(wire.server.accuse_late, holder, owner) is check
    (found,) = wire.server.accuse_late(4, 1)
    assert found == Contradicted(1, "clinic-1 sealed shares that do not open, according to clinic-4", False, False)
    # Who has answered, was not asked or has accused somebody is heard no more.
    for holder in (1, 5, 4):
        assert check_of(wire.server.accuse_late, holder, 2) is Check.LATE
    assert wire.server._sums.disputes.contradicting(2) == ()
    assert wire.server._sums.disputes.contradicting(1) == (4,)


def test_a_round_that_came_to_no_answers_leaves_nobody_to_accuse() -> None:
    wire = LyingWire.in_session(4)
    wire.silent = {(member, Kind.UPLOAD) for member in range(1, 4)}
    assert wire.sum_of() is None
    assert check_of(wire.server.accuse_late, 4, 1) is Check.LATE


def test_an_accusation_before_anything_is_to_be_opened_is_out_of_order() -> None:
    wire = LyingWire.in_session(4)
    for start in (False, True):
        if start:
            wire.server.start_round("training", wire.model, (1.0,), wire.server.members)
        assert check_of(wire.server.accuse, 1, 2) is Check.OUT_OF_ORDER


def test_a_sum_that_cannot_be_opened_any_more_still_hears_who_else_accuses() -> None:
    wire = asked_to_open()
    for holder in (1, 2):
        assert wire.server.state is ServerState.ANSWERS
        effects = wire.server.accuse(holder, 4)
        assert not any(isinstance(effect, RoundAborted) for effect in effects)
    effects = wire.server.accuse(3, 4)
    assert (
        Contradicted(
            4,
            "clinic-4 sealed shares that do not open, according to clinic-1, clinic-2, clinic-3",
            proven=True,
            left_out=False,
        )
        in effects
    )


@CHEAP
@given(data=st.data(), members=st.integers(3, 7))
def test_a_lone_liar_costs_nobody_its_name_and_is_named_for_a_lost_sum(data: st.DataObject, members: int) -> None:
    liar = data.draw(st.integers(1, members))
    others = st.integers(1, members).filter(lambda member: member != liar)
    wire = SealingWire.in_session(members, liar)
    for _ in range(3):
        victims = data.draw(st.sets(others))
        wire.seal_with(data.draw(st.sampled_from([noise, no_shares])), victims)
        wire.accused = data.draw(others | st.just(0))
        wire.trace.clear()
        counted = wire.sum_of()
        assert counted in (None, tuple(range(1, members + 1)))
        # One refusal is done without as long as t others answer; a false one is as good as silence.
        refusals = len(victims) + bool(wire.accused)
        assert (counted is not None) == (members - refusals >= wire.terms.threshold)
        assert not victims & wire.has_answered()
        assert wire.proven() <= {liar}
        if len(victims) > (members - 1) // 2 and members > 2:
            assert wire.proven() == {liar}
