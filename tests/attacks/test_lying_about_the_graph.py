"""An aggregator that lies about a sparse graph: each lie is refused by the name of its check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, SendTo, SiteEffect
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.round_messages import (
    PairMasksRequest,
    RoundStart,
    Survivors,
    UnmaskRequest,
    consistency_fields,
)
from fedfair.secagg.setup_messages import Confirms, KeyAdvertisements, Proposal, Reveals
from fedfair.secagg.signing import sign
from tests.secagg.federation_in_memory import MODEL, Wire, shape_of, signing_key, terms_of, unit_update
from tests.secagg.test_sparse_sessions import MEMBERS, NEIGHBOURS, ring_of


class Lying(Wire):
    """Stops in front of one kind of message, so that a lie can take its place."""

    stop: Kind | None = None
    held: dict[int, bytes]

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        if kind_of(message) is self.stop:
            self.held[member] = message
            return []
        return super().hand_over(member, message)


def lying() -> Lying:
    terms = replace(terms_of(MEMBERS), neighbours=NEIGHBOURS)
    wire = Lying(MEMBERS, terms, {"training": shape_of(MEMBERS)}, dtype=np.float32)
    wire.held = {}
    return wire


def held_at(stop: Kind, missing: frozenset[int] = frozenset()) -> Lying:
    """Return a federation that has come to where everybody would be told a message of this kind in a round."""
    wire = lying()
    wire.set_up()
    wire.stop, wire.silent = stop, {(member, Kind.UPLOAD) for member in missing}
    wire.updates = {member: unit_update(member, MEMBERS) for member in wire.roster.indices}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), wire.updates))
    if missing:
        wire.deliver(wire.server.deadline())
    assert wire.held
    return wire


def refused(wire: Wire, member: int, message: bytes) -> Check:
    site = wire.sites[member]
    before = site.phase
    with pytest.raises(SecaggError) as fault:
        site.receive(message, MODEL)
    assert site.phase is before
    return fault.value.check


def held_nonces() -> tuple[Lying, Reveals]:
    wire = lying()
    wire.stop = Kind.REVEALS
    wire.deliver(wire.server.open_session(wire.roster.indices))
    return wire, Reveals.decode(wire.held[1])


def test_a_nonce_that_was_not_promised_is_refused() -> None:
    wire, told = held_nonces()
    for place, (member, _) in enumerate(told.nonces):
        chosen = (*told.nonces[:place], (member, bytes(32)), *told.nonces[place + 1 :])
        assert refused(wire, 1, replace(told, nonces=chosen).encode()) is Check.GRAPH


def test_a_graph_without_a_member_that_has_advertised_keys_is_refused() -> None:
    # Otherwise the aggregator could leave out whoever stands between a site and the aggregator's friends.
    wire, told = held_nonces()
    for place in range(MEMBERS):
        fewer = told.nonces[:place] + told.nonces[place + 1 :]
        assert refused(wire, 1, replace(told, nonces=fewer).encode()) is Check.GRAPH


def test_nonces_of_another_session_are_refused() -> None:
    wire, told = held_nonces()
    assert refused(wire, 1, replace(told, session_id=bytes(32)).encode()) is Check.SESSION


def test_a_second_graph_in_one_set_up_is_refused() -> None:
    wire, told = held_nonces()
    wire.sites[1].receive(told.encode(), MODEL)
    assert refused(wire, 1, replace(told, nonces=told.nonces[1:]).encode()) is Check.OUT_OF_ORDER


def test_a_site_reveals_one_nonce_for_one_set_of_keys() -> None:
    wire = lying()
    wire.stop = Kind.KEY_ADVERTISEMENTS
    wire.deliver(wire.server.open_session(wire.roster.indices))
    adverts = wire.held[1]
    [send] = [one for one in wire.sites[1].receive(adverts, MODEL) if isinstance(one, Send)]
    assert kind_of(send.message) is Kind.REVEAL
    fewer = KeyAdvertisements(KeyAdvertisements.decode(adverts).adverts[:-1]).encode()
    assert refused(wire, 1, fewer) is Check.OUT_OF_ORDER


def test_another_number_of_neighbours_than_the_plan_has_is_refused() -> None:
    wire = lying()
    [first, *_] = wire.server.open_session(wire.roster.indices)
    assert isinstance(first, SendTo)
    proposal = Proposal.decode(first.message)
    for neighbours in (0, 1, 8):
        terms = replace(proposal.terms, neighbours=neighbours)
        assert refused(wire, 1, replace(proposal, terms=terms).encode()) is Check.POLICY


def test_confirms_without_any_dealer_are_refused() -> None:
    wire = lying()
    wire.stop = Kind.CONFIRMS
    wire.deliver(wire.server.open_session(wire.roster.indices))
    ring = ring_of(wire)
    member = next(one for one in wire.roster.indices if one not in ring.dealers)
    told = Confirms.decode(wire.held[member])
    kept = tuple((one, raw) for one, raw in told.confirms if one not in ring.dealers)
    assert refused(wire, member, replace(told, confirms=kept).encode()) is Check.CONFIRM


def start_of(wire: Lying) -> RoundStart:
    return RoundStart.decode(wire.held[1])


def test_a_cohort_without_enough_neighbours_or_with_strangers_is_refused() -> None:
    wire = held_at(Kind.ROUND_START)
    start, ring = start_of(wire), ring_of(wire)
    away = ring.neighbours(1)[:3]
    cohort = tuple(one for one in start.cohort if one not in away)
    fewer = replace(start, cohort=cohort, threshold=len(cohort) // 2 + 1)
    assert refused(wire, 1, fewer.encode()) is Check.MEMBERSHIP
    site = wire.sites[1]
    assert site.session is not None
    site.session.chains.pop(ring.neighbours(1)[0])  # as if it had not confirmed
    assert refused(wire, 1, start.encode()) is Check.MEMBERSHIP


def test_a_cohort_with_somebody_who_has_no_place_in_the_ring_is_refused() -> None:
    wire = lying()
    wire.silent = {(5, Kind.REVEAL)}
    wire.deliver(wire.server.open_session(wire.roster.indices))
    wire.deliver(wire.server.deadline())
    assert 5 not in ring_of(wire).members
    start = RoundStart(wire.server.session_id, 1, "training", tuple(wire.roster.indices), 8, MODEL, (1.0,))
    member = next(one for one in wire.server.members)
    assert refused(wire, member, start.encode()) is Check.MEMBERSHIP


@pytest.mark.parametrize("missing", [frozenset(), frozenset({3})], ids=["all survive", "one vanishes"])
def test_nothing_is_opened_without_enough_votes_of_the_committee(missing: frozenset[int]) -> None:
    wire = held_at(Kind.UNMASK_REQUEST, missing)
    ring = ring_of(wire)
    member = next(iter(wire.held))
    told = UnmaskRequest.decode(wire.held[member])
    assert len(told.votes) == ring.terms.votes
    assert refused(wire, member, replace(told, votes=()).encode()) is Check.VOTES
    assert refused(wire, member, replace(told, votes=told.votes[1:]).encode()) is Check.VOTES
    others = [one for one in told.survivors if one not in ring.committee]
    foreign = tuple(
        (voter, sign(signing_key(voter), "vote", *consistency_fields(told.transcript, told.survivors, voter)))
        for voter in others
    )
    assert len(foreign) >= ring.terms.votes
    assert refused(wire, member, replace(told, votes=foreign).encode()) is Check.VOTES
    wrong = (*told.votes[:-1], (told.votes[-1][0], bytes(64)))
    assert refused(wire, member, replace(told, votes=wrong).encode()) is Check.SIGNATURE


def test_a_committee_member_votes_once_whether_all_survive_or_not() -> None:
    wire = held_at(Kind.SURVIVORS)
    voter = next(iter(wire.held))
    told = Survivors.decode(wire.held[voter])
    wire.sites[voter].receive(wire.held[voter], MODEL)
    gone = next(one for one in told.survivors if one != voter)
    fewer = tuple(one for one in told.survivors if one != gone)
    assert refused(wire, voter, replace(told, survivors=fewer).encode()) is Check.ONE_VOTE
    assert refused(wire, voter, PairMasksRequest(told.transcript, fewer).encode()) is Check.ONE_VOTE


def test_who_is_not_in_the_committee_votes_for_nothing() -> None:
    wire = held_at(Kind.SURVIVORS)
    told = next(iter(wire.held.values()))
    stranger = next(one for one in wire.roster.indices if one not in ring_of(wire).committee)
    assert refused(wire, stranger, told) is Check.OUT_OF_ORDER


def test_a_set_with_too_few_of_the_neighbours_is_refused() -> None:
    # With this the aggregator would part the ring: see tests/attacks/sparse_leakage.py.
    for lacking in range(1, NEIGHBOURS + 1):
        wire = held_at(Kind.SURVIVORS)
        ring = ring_of(wire)
        told = Survivors.decode(next(iter(wire.held.values())))
        away = ring.neighbours(1)[:lacking]
        request = PairMasksRequest(told.transcript, tuple(one for one in told.survivors if one not in away))
        if NEIGHBOURS + 1 - lacking >= ring.terms.shares:
            assert wire.sites[1].receive(request.encode(), MODEL)
        else:
            assert refused(wire, 1, request.encode()) is Check.SURVIVORS


def test_masks_for_one_set_open_no_other_and_not_all() -> None:
    wire = held_at(Kind.UNMASK_REQUEST)
    ring = ring_of(wire)
    member = next(one for one in wire.roster.indices if one not in ring.committee)
    told = UnmaskRequest.decode(wire.held[member])
    gone = ring.neighbours(member)[0]
    kept = tuple(one for one in told.survivors if one != gone)
    wire.sites[member].receive(PairMasksRequest(told.transcript, kept).encode(), MODEL)
    assert refused(wire, member, told.encode()) is Check.ONE_VOTE


def test_an_envelope_of_every_surviving_neighbour_is_due_and_of_nobody_else() -> None:
    wire = held_at(Kind.UNMASK_REQUEST)
    told = UnmaskRequest.decode(wire.held[1])
    assert {one for one, _ in told.envelopes} == set(ring_of(wire).neighbours(1))
    assert refused(wire, 1, replace(told, envelopes=told.envelopes[1:]).encode()) is Check.ENVELOPE


def test_a_site_accuses_only_who_has_sealed_something_for_it() -> None:
    wire = held_at(Kind.UNMASK_REQUEST)
    ring = ring_of(wire)
    stranger = next(one for one in wire.roster.indices if one not in (1, *ring.neighbours(1)))
    with pytest.raises(SecaggError) as fault:
        wire.server.accuse(1, stranger)
    assert fault.value.check is Check.MEMBERSHIP
    [told] = wire.server.accuse(1, ring.neighbours(1)[0])[:1]
    assert not getattr(told, "proven", True)
