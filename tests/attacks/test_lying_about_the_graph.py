"""An aggregator that lies about a sparse graph: each lie is refused by the name of its check."""

import secrets
from dataclasses import replace

import numpy as np
import pytest

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, SiteEffect
from fedfair.secagg.keys import EphemeralKey
from fedfair.secagg.member_tree import MemberTree, leaf
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import Suite
from fedfair.secagg.round_messages import (
    PairMasksRequest,
    RoundStart,
    Survivors,
    UnmaskRequest,
    consistency_fields,
)
from fedfair.secagg.session_graph import HONEST_DRAWERS, SessionGraph, drawers, drawn_session
from fedfair.secagg.setup_messages import (
    Confirms,
    KeyAdvertisement,
    KeyAdvertisements,
    MemberList,
    Proposal,
    Reveal,
)
from fedfair.secagg.signing import sign
from fedfair.secagg.transcript import session_identity
from tests.attacks.harness import check_of
from tests.secagg.federation_in_memory import MODEL, Wire, shape_of, signing_key, terms_of, unit_update
from tests.secagg.test_sparse_sessions import MEMBERS, NEIGHBOURS, numbers_of, ring_of


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
    """Return a federation in which every member is about to receive a message of this kind in a round."""
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


class SetUp:
    """A set-up in which every member is about to be shown keys, in the hands of an aggregator that lies."""

    def __init__(self) -> None:
        self.wire = lying()
        self.wire.stop = Kind.KEY_ADVERTISEMENTS
        self.wire.deliver(self.wire.server.open_session(self.wire.roster.indices))
        self.honest = {one: KeyAdvertisements.decode(raw) for one, raw in self.wire.held.items()}
        self.set_up = self.wire.server._set_up
        self.adverts = {one: KeyAdvertisement.decode(raw) for one, (raw, _) in self.set_up._adverts.items()}
        self.drawing = self.set_up._drawing

    def outsider(self) -> int:
        """Return a site that reveals nothing, so that it can only look."""
        return next(one for one in self.wire.roster.indices if one not in self.drawing)

    def shown(self, member: int, adverts: dict[int, KeyAdvertisement], members: tuple[int, ...] = ()) -> bytes:
        """Return these advertisements as a member would be shown them, with a right proof for a tree with them."""
        told, everybody = self.honest[member], {**self.adverts, **adverts}
        members = members or told.members
        tree = MemberTree({one: leaf(one, everybody[one].advertised) for one in members})
        due = tuple(one for one, _ in told.adverts if one in members)
        shown = tuple((one, everybody[one].encode()) for one in due)
        return replace(told, members=members, adverts=shown, proof=tree.proof(due)).encode()

    def signed_again(self, member: int) -> KeyAdvertisement:
        """Return another advertisement that a member has signed for this very proposal, as a colluder may."""
        other = replace(self.adverts[member], public_key=EphemeralKey(Suite.X25519, secrets.token_bytes).public)
        fields = other.signed_fields(self.set_up.proposal)
        return replace(other, signature=sign(signing_key(member), "advert", *fields))


OTHER_SESSION = {Check.SESSION, Check.GRAPH, Check.SIGNATURE}
"""Whoever has revealed its nonce knows its session; others find that other sites have drawn, or for another."""


def test_what_is_shown_without_a_lie_is_taken() -> None:
    tried = SetUp()
    for member, site in tried.wire.sites.items():
        [send] = [one for one in site.receive(tried.shown(member, {}), MODEL) if isinstance(one, Send)]
        assert kind_of(send.message) is Kind.CONFIRM


def test_a_nonce_that_was_not_promised_or_not_signed_for_this_session_is_refused() -> None:
    tried = SetUp()
    told = tried.honest[tried.outsider()]
    for place, (member, nonce) in enumerate(told.nonces):
        for lie, check in (
            (bytes(32) + nonce[32:], Check.GRAPH),
            (nonce[:32] + bytes(64), Check.SIGNATURE),
            (nonce[:32] + told.nonces[place - 1][1][32:], Check.SIGNATURE),
        ):
            nonces = (*told.nonces[:place], (member, lie), *told.nonces[place + 1 :])
            assert refused(tried.wire, tried.outsider(), replace(told, nonces=nonces).encode()) is check


def test_a_graph_without_the_nonce_of_one_that_draws_it_or_with_another_is_refused() -> None:
    tried = SetUp()
    outsider = tried.outsider()
    told = tried.honest[outsider]
    for place in range(len(told.nonces)):
        fewer = told.nonces[:place] + told.nonces[place + 1 :]
        assert refused(tried.wire, outsider, replace(told, nonces=fewer).encode()) is Check.GRAPH
    more = tuple(sorted((*told.nonces, (outsider, bytes(96)))))
    assert refused(tried.wire, outsider, replace(told, nonces=more).encode()) is Check.GRAPH
    assert refused(tried.wire, outsider, replace(told, nonces=()).encode()) is Check.GRAPH


def test_a_member_that_has_advertised_keys_cannot_be_left_out_once_nonces_are_known() -> None:
    # Otherwise the aggregator could leave out whoever stands between a site and the aggregator's friends.
    tried = SetUp()
    for member in (tried.outsider(), *tried.drawing[:2]):
        for gone in set(tried.wire.roster.indices) - {member}:
            members = tuple(one for one in tried.wire.roster.indices if one != gone)
            assert refused(tried.wire, member, tried.shown(member, {}, members)) in OTHER_SESSION


def test_two_sites_cannot_be_shown_two_certificates_of_one_colluder() -> None:
    tried, colluder = SetUp(), 5
    other = tried.signed_again(colluder)
    for member in set(tried.wire.roster.indices) - {colluder}:
        message = tried.shown(member, {colluder: other})
        if colluder in dict(tried.honest[member].adverts):
            assert refused(tried.wire, member, message) in OTHER_SESSION
        # The proof of the true tree does not fit another certificate either.
        told = tried.honest[member]
        swapped = tuple((one, other.encode() if one == colluder else raw) for one, raw in told.adverts)
        if swapped != told.adverts:
            assert refused(tried.wire, member, replace(told, adverts=swapped).encode()) in OTHER_SESSION


def test_a_certificate_that_its_member_has_not_signed_for_this_set_up_is_refused() -> None:
    tried, earlier = SetUp(), SetUp()
    for member in (1, tried.outsider()):
        known = [one for one, _ in tried.honest[member].adverts if one != member]
        for one in known:
            swapped = replace(tried.adverts[one], public_key=tried.signed_again(one).public_key)
            for lie in (swapped, earlier.adverts[one]):
                assert refused(tried.wire, member, tried.shown(member, {one: lie})) is Check.SIGNATURE
        assert refused(tried.wire, member, earlier.wire.held[member]) is Check.OWN_ADVERT
        other = tried.signed_again(member)
        assert refused(tried.wire, member, tried.shown(member, {member: other})) is Check.OWN_ADVERT


def test_a_site_is_shown_all_of_the_keys_that_it_needs_and_no_others() -> None:
    # A site that is not shown a neighbour would share no mask with it, and one that is shown more would be told
    # whose keys to take by the aggregator.
    tried = SetUp()
    tree = tried.set_up._tree
    assert tree is not None
    for member in (tried.outsider(), *tried.drawing[:2]):
        told = tried.honest[member]
        needed = tuple(one for one, _ in told.adverts)
        assert set(needed) >= {member, *tried.set_up.drawn.neighbours(member), *tried.drawing}
        for gone in set(needed) - {member}:
            left = tuple(one for one in needed if one != gone)
            fewer = tuple(pair for pair in told.adverts if pair[0] != gone)
            message = replace(told, adverts=fewer, proof=tree.proof(left)).encode()
            assert refused(tried.wire, member, message) is Check.GRAPH
        for more in set(tried.wire.roster.indices) - set(needed):
            shown = tuple(sorted((*needed, more)))
            adverts = tuple((one, tried.adverts[one].encode()) for one in shown)
            message = replace(told, adverts=adverts, proof=tree.proof(shown)).encode()
            assert refused(tried.wire, member, message) is Check.GRAPH


def test_a_member_that_is_not_pinned_and_a_set_without_this_site_are_refused() -> None:
    tried = SetUp()
    told = tried.honest[1]
    assert refused(tried.wire, 1, replace(told, members=(*told.members, MEMBERS + 1)).encode()) is Check.MEMBERSHIP
    assert refused(tried.wire, 1, replace(told, members=told.members[1:]).encode()) is Check.OWN_ADVERT
    assert refused(tried.wire, 1, replace(told, members=told.members[:-1]).encode()) in {
        *OTHER_SESSION, Check.MEMBERSHIP, Check.ENCODING,
    }  # fmt: skip
    assert refused(tried.wire, 1, replace(told, proof=(*told.proof, bytes(32))).encode()) is Check.ENCODING


def test_a_second_graph_in_one_set_up_is_refused() -> None:
    tried = SetUp()
    member = tried.outsider()
    tried.wire.sites[member].receive(tried.wire.held[member], MODEL)
    fewer = replace(tried.honest[member], nonces=())
    assert refused(tried.wire, member, fewer.encode()) is Check.OUT_OF_ORDER


def held_lists() -> tuple[Lying, dict[int, MemberList]]:
    wire = lying()
    wire.stop = Kind.MEMBER_LIST
    wire.deliver(wire.server.open_session(wire.roster.indices))
    return wire, {one: MemberList.decode(raw) for one, raw in wire.held.items()}


def test_a_site_reveals_one_nonce_for_one_set_of_keys() -> None:
    wire, lists = held_lists()
    member, told = next(iter(lists.items()))
    [send] = [one for one in wire.sites[member].receive(told.encode(), MODEL) if isinstance(one, Send)]
    assert kind_of(send.message) is Kind.REVEAL
    other = replace(told, proof=(bytes(32), *told.proof[1:]))
    assert refused(wire, member, other.encode()) is Check.OUT_OF_ORDER


def test_a_nonce_is_revealed_by_who_is_drawn_and_for_a_set_with_itself_alone() -> None:
    wire, lists = held_lists()
    assert len(lists) == HONEST_DRAWERS
    member, told = next(iter(lists.items()))
    outsider = next(one for one in wire.roster.indices if one not in lists)
    tree = wire.server._set_up._tree
    assert refused(wire, outsider, MemberList(told.members, tree.proof((outsider,))).encode()) is Check.GRAPH
    without = tuple(one for one in told.members if one != member)
    assert refused(wire, member, replace(told, members=without).encode()) is Check.OWN_ADVERT
    stranger = (*told.members, MEMBERS + 1)
    assert refused(wire, member, replace(told, members=stranger).encode()) is Check.MEMBERSHIP
    assert refused(wire, member, replace(told, proof=told.proof[1:]).encode()) is Check.ENCODING


def test_a_graph_cannot_be_chosen_with_the_nonces_for_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    # The aggregator has every nonce for one session. With a colluder it makes other sessions of the same sites, of
    # which it knows the order: the colluder signs one key after the other, until a site draws in neither session.
    monkeypatch.setattr("fedfair.secagg.session_graph.HONEST_DRAWERS", MEMBERS - 1)
    tried = SetUp()
    victim, colluder = tried.outsider(), tried.drawing[0]
    told = tried.honest[victim]
    for _ in range(400):  # one in fourteen is right
        adverts = {**tried.adverts, colluder: tried.signed_again(colluder)}
        tree = MemberTree({one: leaf(one, advert.advertised) for one, advert in adverts.items()})
        session_id = session_identity(tried.set_up.proposal, tree.members, tree.root)
        drawing = drawers(tree.members, session_id, 0)
        if drawing == tried.drawing:
            break
    assert drawing == tried.drawing
    nonces = {one: tried.set_up._reveals[one].nonce for one in drawing}
    chosen = SessionGraph(tree.members, tried.set_up.drawn.terms, drawn_session(session_id, nonces))
    needed = chosen.known_to(victim, drawing)
    shown = tuple((one, adverts[one].encode()) for one in needed)
    lie = replace(told, adverts=shown, proof=tree.proof(needed))
    assert refused(tried.wire, victim, lie.encode()) is Check.SIGNATURE
    # With the signatures for that session it is a graph like any other: they alone keep the site from it.
    honest = tuple(
        (
            one,
            nonces[one]
            + sign(signing_key(one), "reveal", *Reveal(one, session_id, nonces[one], b"").signed_fields()),
        )
        for one in drawing
    )
    assert tried.wire.sites[victim].receive(replace(lie, nonces=honest).encode(), MODEL)


def test_the_aggregator_refuses_a_nonce_that_was_not_promised_or_not_signed_by_its_owner() -> None:
    wire, lists = held_lists()
    member, told = next(iter(lists.items()))
    [send] = [one for one in wire.sites[member].receive(told.encode(), MODEL) if isinstance(one, Send)]
    reveal = Reveal.decode(send.message)
    other = replace(reveal, nonce=bytes(32))
    signed = replace(other, signature=sign(signing_key(member), "reveal", *other.signed_fields()))
    for lie, check in (
        (signed, Check.GRAPH),
        (replace(reveal, signature=bytes(64)), Check.SIGNATURE),
        (replace(reveal, session_id=bytes(32)), Check.SESSION),
        (replace(reveal, member=member + 1), Check.MEMBERSHIP),
    ):
        assert check_of(wire.server.receive, member, lie.encode()) is check
    outsider = next(one for one in wire.roster.indices if one not in lists)
    assert check_of(wire.server.receive, outsider, replace(reveal, member=outsider).encode()) is Check.LATE


def test_another_number_of_neighbours_than_the_plan_has_is_refused() -> None:
    wire = lying()
    [first, *_] = wire.server.open_session(wire.roster.indices)
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
    site.session.chains.pop(ring.neighbours(1)[0])  # as if it had not confirmed
    assert refused(wire, 1, start.encode()) is Check.MEMBERSHIP


def test_a_cohort_with_somebody_who_has_no_place_in_the_ring_is_refused() -> None:
    wire = lying()
    wire.silent = {(one, Kind.KEY_ADVERTISEMENT) for one in (5,)}
    wire.deliver(wire.server.open_session(wire.roster.indices))
    wire.deliver(wire.server.deadline())
    assert 5 not in ring_of(wire)
    start = RoundStart(wire.server.session_id, 1, "training", tuple(wire.roster.indices), 8, MODEL, (1.0,))
    assert refused(wire, next(one for one in wire.server.members), start.encode()) is Check.MEMBERSHIP


@pytest.mark.parametrize("missing", [frozenset(), frozenset({3})], ids=["all survive", "one vanishes"])
def test_nothing_is_opened_without_enough_votes_of_the_committee(missing: frozenset[int]) -> None:
    wire = held_at(Kind.UNMASK_REQUEST, missing)
    ring, member = ring_of(wire), next(iter(wire.held))
    told = UnmaskRequest.decode(wire.held[member])
    assert len(told.votes) == numbers_of(wire).votes
    assert refused(wire, member, replace(told, votes=()).encode()) is Check.VOTES
    assert refused(wire, member, replace(told, votes=told.votes[1:]).encode()) is Check.VOTES
    others = [one for one in told.survivors if one not in ring.committee]
    foreign = tuple(
        (voter, sign(signing_key(voter), "vote", *consistency_fields(told.transcript, told.survivors, voter)))
        for voter in others
    )
    assert len(foreign) >= numbers_of(wire).votes
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
    wire = held_at(Kind.SURVIVORS)
    ring, told = ring_of(wire), Survivors.decode(next(iter(wire.held.values())))
    allowed = NEIGHBOURS + 1 - numbers_of(wire).shares
    for lacking in range(NEIGHBOURS, 0, -1):
        away = ring.neighbours(1)[:lacking]
        request = PairMasksRequest(told.transcript, tuple(one for one in told.survivors if one not in away))
        if lacking > allowed:
            assert refused(wire, 1, request.encode()) is Check.SURVIVORS
    # The smallest set that is large enough comes last: a site holds to it.
    away = ring.neighbours(1)[:allowed]
    kept = tuple(one for one in told.survivors if one not in away)
    assert wire.sites[1].receive(PairMasksRequest(told.transcript, kept).encode(), MODEL)


def test_masks_for_one_set_open_no_other_and_not_all() -> None:
    wire = held_at(Kind.UNMASK_REQUEST)
    ring = ring_of(wire)
    member = next(one for one in wire.roster.indices if one not in ring.committee)
    told, gone = UnmaskRequest.decode(wire.held[member]), ring.neighbours(member)[0]
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
    assert check_of(wire.server.accuse, 1, stranger) is Check.MEMBERSHIP
    [told] = wire.server.accuse(1, ring.neighbours(1)[0])[:1]
    assert not getattr(told, "proven", True)
