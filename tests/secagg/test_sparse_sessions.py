"""Sessions with a sparse graph: who is whose neighbour, what vanishing members cost, and what starts again."""

import hashlib
import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.secagg.checks import Check
from fedfair.secagg.effects import RoundAborted, SendTo, SessionReady
from fedfair.secagg.graph_terms import (
    ALL,
    AUTO,
    COMPLETE_MEMBERS,
    DRAWS,
    LOSS,
    SECRECY,
    VANISHING,
    GraphTerms,
    colluders_among,
    graph_terms,
    more_than,
)
from fedfair.secagg.member_tree import MemberTree, leaf, root_of
from fedfair.secagg.message_costs import _proof
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import MAX_MEMBERS, Mode, Suite
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server import Server
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.session_graph import HONEST_DRAWERS, SessionGraph, drawn_session
from fedfair.secagg.transcript import DIGEST_BYTES, digest
from tests.attacks.harness import check_of
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of, unit_update

MEMBERS, NEIGHBOURS = 14, 6
TOLERANCE = 1e-3
"""Of a sum of 14 unit vectors: below 14 steps of the ring, which are far finer."""


def sparse_wire(
    members: int = MEMBERS, colluders: int = 0, neighbours: int = NEIGHBOURS, **options: object
) -> Wire:
    terms = replace(terms_of(members, colluders, **options), neighbours=neighbours)  # type: ignore[arg-type]
    wire = Wire(members, terms, {"training": shape_of(members), "evaluation": shape_of(members)}, dtype=np.float32)
    wire.set_up()
    assert numbers_of(wire).neighbours == neighbours
    return wire


def ring_of(wire: Wire) -> SessionGraph:
    ring = wire.server._set_up.graph
    assert ring is not None
    return ring


def numbers_of(wire: Wire) -> GraphTerms:
    terms = ring_of(wire).terms
    assert terms is not None
    return terms


def set_up_again_and_again(wire: Wire) -> None:
    """Set up so many sessions that somebody is drawn a third time."""
    for _ in wire.roster.indices:
        wire.set_up()


def updates_of(wire: Wire) -> dict[int, object]:
    return {member: unit_update(member, wire.members) for member in wire.roster.indices}


def check(wire: Wire, missing: set[int]) -> None:
    opened = wire.opened
    assert set(opened.survivors) == set(wire.roster.indices) - missing
    expected = [0.0 if member in missing else 1.0 for member in wire.roster.indices]
    assert np.abs(opened.body - expected).max() < TOLERANCE
    assert wire.accepted.keys() == set(wire.roster.indices)


@pytest.mark.thorough
@pytest.mark.parametrize(("mode", "suite"), list(zip(Mode, Suite, strict=True)))
def test_a_sum_is_that_of_all_and_then_that_of_the_survivors(mode: Mode, suite: Suite) -> None:
    wire = sparse_wire(mode=mode, suite=suite)
    wire.round(updates_of(wire))
    check(wire, set())
    for silent, missing in (
        ({(7, Kind.UNMASK_SHARES)}, set()),
        ({(3, Kind.UPLOAD)}, {3}),
        ({(3, Kind.UPLOAD), (7, Kind.UNMASK_SHARES)}, {3}),
        ({(3, Kind.UPLOAD), (7, Kind.PAIR_MASKS)}, {3, 7}),
    ):
        wire.silent = silent
        wire.round(updates_of(wire))
        check(wire, missing)


def test_only_neighbours_share_keys_masks_and_shares() -> None:
    wire = sparse_wire()
    ring = ring_of(wire)
    for member, site in wire.sites.items():
        assert set(site.session.chains) == set(ring.neighbours(member))
    for one, other in itertools.permutations(wire.roster.indices, 2):
        assert (other in ring.neighbours(one)) == (one in ring.neighbours(other))
    keys = {site.session.check_key.reveal() for site in wire.sites.values() if site.session is not None}
    assert len(keys) == 1


def test_a_member_without_enough_neighbours_counts_as_missing() -> None:
    wire = sparse_wire()
    ring, lonely = ring_of(wire), 1
    away = set(ring.neighbours(lonely)[:3])
    wire.silent = {(member, Kind.UPLOAD) for member in away}
    wire.round(updates_of(wire))
    assert ring.lonely(set(wire.roster.indices) - away) >= {lonely}
    if wire.opened is not None:
        check(wire, away | ring.lonely(set(wire.roster.indices) - away))
    else:
        assert isinstance(wire.aborted, RoundAborted)


def test_an_evaluation_needs_every_member_and_no_vote() -> None:
    wire = sparse_wire()
    wire.updates = dict(updates_of(wire))  # type: ignore[arg-type]
    wire.deliver(wire.server.start_round("evaluation", wire.model, (1.0,), wire.roster.indices, unanimous=True))
    check(wire, set())
    assert not [kind for _, kind in wire.trace if kind is Kind.CONSISTENCY_CHECK]
    wire.opened, wire.silent = None, {(4, Kind.UNMASK_SHARES)}
    wire.updates = dict(updates_of(wire))  # type: ignore[arg-type]
    wire.deliver(wire.server.start_round("evaluation", wire.model, (1.0,), wire.roster.indices, unanimous=True))
    wire.deliver(wire.server.deadline())
    assert wire.opened is None
    assert wire.aborted is not None


def test_the_committee_votes_in_every_round_and_nobody_else() -> None:
    wire = sparse_wire()
    for missing in (set(), {5}):
        wire.trace, wire.silent = [], {(member, Kind.UPLOAD) for member in missing}
        wire.round(updates_of(wire))
        check(wire, missing)
        voters = {member for member, kind in wire.trace if kind is Kind.CONSISTENCY_CHECK}
        assert voters == set(ring_of(wire).committee) - missing


def test_sites_that_start_again_in_the_middle_of_a_round_finish_it() -> None:
    wire = sparse_wire()
    wire.silent = {(3, Kind.UPLOAD)}
    wire.updates = dict(updates_of(wire))  # type: ignore[arg-type]
    to_server = wire.to_server

    def restarting(member: int, send: object) -> list[object]:
        wire.restart(member)
        return to_server(member, send)  # type: ignore[arg-type, return-value]

    wire.to_server = restarting  # type: ignore[assignment, method-assign]
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), wire.roster.indices))
    wire.deliver(wire.server.deadline())
    assert set(wire.opened.survivors) == set(wire.roster.indices) - {3}


@pytest.mark.parametrize("missing", [set(), {3}])
def test_another_aggregator_opens_the_same_round_again_from_its_record(missing: set[int]) -> None:
    wire = sparse_wire()
    wire.silent = {(m, Kind.UPLOAD) for m in missing} | {(m, Kind.UNMASK_SHARES) for m in wire.roster.indices}
    wire.round(updates_of(wire))
    assert wire.aborted.reopens
    record = wire.server.round_record
    kept = RoundRecord.decode(record.encode())
    assert kept.encode() == record.encode()
    wire.server = Server(wire.roster, wire.plan, wire.shapes, wire.randomness, np.dtype(np.float32))
    wire.silent = {(m, Kind.UPLOAD) for m in missing}
    wire.deliver(wire.server.reopen(kept))
    check(wire, missing)


def test_whoever_does_not_reveal_ends_the_attempt_and_the_others_draw_again() -> None:
    wire = Wire(MEMBERS, replace(terms_of(MEMBERS), neighbours=NEIGHBOURS), {"training": shape_of(MEMBERS)})
    revealing: list[int] = []
    take_reveal = wire.server._set_up.take_reveal

    def noted(sender: int, raw: bytes) -> None:
        revealing.append(sender)
        take_reveal(sender, raw)

    wire.server._set_up.take_reveal = noted  # type: ignore[method-assign]
    wire.silent = {(member, Kind.REVEAL) for member in wire.roster.indices}
    wire.deliver(wire.server.open_session(wire.roster.indices))
    assert wire.server.state is ServerState.REVEALS
    first = wire.server.awaited
    assert len(first) == HONEST_DRAWERS
    before, (kept_back, *others) = wire.server.session_id, first
    wire.silent = set()
    for member in others:
        wire.deliver(wire.server.returned(member))
    wire.deliver(wire.server.deadline())
    assert wire.server.state is ServerState.READY
    assert wire.server.session_id != before
    assert set(wire.server.members) == set(wire.roster.indices) - {kept_back}
    assert kept_back not in ring_of(wire)
    again = set(revealing[len(others) :])
    for member in wire.server.members:
        assert wire.sites[member]._history.drawn_graphs == (member in others) + (member in again)


def test_every_order_is_as_likely() -> None:
    # 24 orders of four members in 2400 draws: each 100 times, with a standard deviation below ten.
    terms = GraphTerms(2, 2, 1, 1, graph_terms(12, 0, 6).secrecy, graph_terms(12, 0, 6).loss)  # type: ignore[union-attr]
    orders = Counter(
        SessionGraph((1, 2, 3, 4), terms, drawn_session(bytes(32), {1: number.to_bytes(32)}))._order
        for number in range(2400)
    )
    assert len(orders) == math.factorial(4)
    assert all(50 < count < 150 for count in orders.values())


def test_an_aggregator_that_tries_again_and_again_gains_no_more_than_the_bound_allows() -> None:
    # 40 members, 8 colluders, k = 8: how often does an honest member get more than five colluders for neighbours?
    members, colluders, near, tries = 40, 8, 5, 1500
    terms = GraphTerms(8, 8, 5, 3, more_than(0, 2, 1, 1), more_than(0, 2, 1, 1))
    draw, bad = random.Random(1), 0  # noqa: S311 - which nonces
    for _ in range(tries):
        ring = SessionGraph(range(1, members + 1), terms, drawn_session(bytes(32), {1: draw.randbytes(32)}))
        counts = (sum(one <= colluders for one in ring.neighbours(m)) for m in range(colluders + 1, members + 1))
        bad += max(counts) > near
    bound = (members - colluders) * more_than(near, members - 1, colluders, 8)
    # The bound adds up events that overlap, so the share of bad graphs lies below it, but for four deviations.
    assert 0 < bad <= tries * bound + 4 * math.sqrt(tries * bound)


def test_a_site_helps_to_draw_so_many_graphs_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = sparse_wire()
    monkeypatch.setattr("fedfair.secagg.participant.MAX_DRAWN_GRAPHS", 2)
    assert check_of(set_up_again_and_again, wire) is Check.GRAPH
    drawn = {member: site._history.drawn_graphs for member, site in wire.sites.items()}
    assert max(drawn.values()) == 2
    for member, graphs in drawn.items():
        wire.restart(member)
        assert wire.sites[member]._history.drawn_graphs == graphs


def test_a_set_up_ends_in_a_complete_graph_where_too_few_come() -> None:
    wire = Wire(MEMBERS, replace(terms_of(MEMBERS), neighbours=NEIGHBOURS), {"training": shape_of(MEMBERS)})
    effects = wire.server.open_session(range(1, 8))
    wire.deliver(effects)
    assert [one for one in effects if isinstance(one, SendTo)]
    assert wire.server.state is ServerState.READY
    assert ring_of(wire).terms is None
    assert not [one for one in effects if isinstance(one, SessionReady)]


# ---- the numbers of a sparse graph, against slow and obvious versions that count every outcome


def counted(count: int, members: int, marked: int, drawn: int) -> Fraction:
    """Return the same probability by going through every set that can be drawn."""
    sets = list(itertools.combinations(range(members), drawn))
    return Fraction(sum(sum(one < marked for one in each) > count for each in sets), len(sets))


def one_by_one(count: int, members: int, marked: int, drawn: int) -> Fraction:
    """Return the same probability by drawing one after the other: a Markov chain, for any number of members."""
    found = [Fraction(1)]
    for place in range(drawn):
        after = [Fraction(0)] * (len(found) + 1)
        for seen, probability in enumerate(found):
            hit = Fraction(max(marked - seen, 0), members - place)
            after[seen + 1] += probability * hit
            after[seen] += probability * (1 - hit)
        found = after
    return sum(found[count + 1 :], Fraction(0))


@pytest.mark.parametrize(("members", "drawn"), [(5, 3), (8, 4), (9, 6)])
def test_a_tail_is_the_share_of_the_sets_that_it_speaks_of(members: int, drawn: int) -> None:
    for marked, count in itertools.product(range(members + 1), range(drawn + 1)):
        exact = counted(count, members, marked, drawn)
        assert more_than(count, members, marked, drawn) == exact == one_by_one(count, members, marked, drawn)


@pytest.mark.parametrize("most", [Fraction(1, 2), Fraction(1, 50), Fraction(0)])
def test_the_most_colluders_among_those_drawn_is_the_least_that_the_odds_allow(most: Fraction) -> None:
    for members, colluders, drawn in itertools.product(range(4, 9), range(4), range(1, 4)):
        within = [c for c in range(drawn + 1) if counted(c, members, colluders, drawn) <= most]
        assert colluders_among(members, colluders, drawn, most) == within[0]


@pytest.mark.parametrize(("members", "colluders"), [(129, 0), (300, 6), (1000, 20)])
def test_both_probabilities_are_those_of_drawing_one_member_after_the_other(members: int, colluders: int) -> None:
    terms = graph_terms(members, colluders)
    k, honest, gone = terms.neighbours, members - colluders, -(-members // 10)
    near = terms.shares - k // 2 - 2
    # 2 * votes > q + c_q leaves one of two numbers for c_q; the smaller gives the larger probability.
    bribed = 2 * terms.votes - terms.committee - 2
    secrecy = honest * one_by_one(near, members - 1, colluders, k)
    assert terms.secrecy <= DRAWS * (secrecy + one_by_one(bribed, members, colluders, terms.committee))
    assert terms.secrecy >= DRAWS * secrecy
    lost = members * one_by_one(k - terms.shares, members - 1, gone, k)
    lost += one_by_one(terms.committee - terms.votes, members, gone, terms.committee)
    assert terms.loss == lost
    assert terms.secrecy <= SECRECY
    assert terms.loss <= LOSS


@pytest.mark.parametrize(("members", "colluders"), [(200, 0), (500, 5)])
def test_no_smaller_number_of_neighbours_would_do(members: int, colluders: int) -> None:
    fewer = graph_terms(members, colluders, graph_terms(members, colluders).neighbours - 2)
    assert fewer is None or fewer.loss > LOSS


def test_the_thresholds_are_those_that_the_proof_asks_for() -> None:
    for members, colluders in itertools.product((129, 150, 400, 1000), (0, 1, 3, 12)):
        terms = graph_terms(members, colluders)
        assert 0 <= (terms.shares - terms.neighbours // 2 - 2) <= colluders
        assert terms.neighbours % 2 == 0
        assert terms.neighbours < members // 2
        assert terms.shares <= terms.neighbours
        assert terms.votes <= terms.committee <= members


def test_small_sessions_keep_the_complete_graph_and_so_do_those_with_many_colluders() -> None:
    for members in range(2, COMPLETE_MEMBERS + 1):
        assert graph_terms(members, 0) is None
    assert graph_terms(COMPLETE_MEMBERS + 1, 0) is not None
    assert graph_terms(600, 200) is None
    assert graph_terms(MAX_MEMBERS, 0, ALL) is None


def test_a_stated_number_of_neighbours_is_taken_where_it_is_safe() -> None:
    assert (found := graph_terms(12, 0, 6)) is not None
    assert (found.neighbours, found.shares) == (6, 5)
    assert graph_terms(12, 5, 6) is None
    assert graph_terms(7, 0, 6) is None


def test_what_a_thousand_sites_take_is_worked_by_hand() -> None:
    # Nobody colludes: c = 0, so T = k / 2 + 2, and a mask is lost where k / 2 - 1 of k neighbours vanish.
    assert (found := graph_terms(1000, 0, AUTO)) is not None
    assert (found.shares, found.committee, found.votes) == (found.neighbours // 2 + 2, 23, 12)
    assert (found.neighbours, found.secrecy, Fraction(1, 10)) == (40, 0, VANISHING)


# ---- the digest of all members, and the proofs of what some of them have advertised


def leaves_of(members: list[int]) -> dict[int, bytes]:
    return {member: leaf(member, (b"key %d" % member,)) for member in members}


some_members = st.lists(st.integers(1, 1000), min_size=1, max_size=40, unique=True).map(sorted)


def test_a_tree_of_three_by_hand() -> None:
    one, two, three = (leaf(member, (b"k",)) for member in (2, 5, 9))
    tree = MemberTree({2: one, 5: two, 9: three})
    assert tree.root == digest("members", one, digest("members", two, three))
    assert (tree.proof((5,)), tree.proof((2,))) == ((one, three), (digest("members", two, three),))
    assert tree.proof((2, 5, 9)) == ()


@given(some_members, st.data())
def test_whoever_is_shown_some_members_finds_the_one_root(members: list[int], data: st.DataObject) -> None:
    leaves = leaves_of(members)
    tree = MemberTree(leaves)
    shown = sorted(data.draw(st.sets(st.sampled_from(members), min_size=1)))
    proof = tree.proof(shown)
    assert root_of(members, {one: leaves[one] for one in shown}, proof) == tree.root
    assert DIGEST_BYTES * len(proof) <= _proof(len(members), len(shown))


@given(some_members, st.data())
def test_another_advertisement_proof_or_member_gives_another_root(members: list[int], data: st.DataObject) -> None:
    leaves = leaves_of(members)
    tree = MemberTree(leaves)
    shown = sorted(data.draw(st.sets(st.sampled_from(members), min_size=1)))
    known, proof = {one: leaves[one] for one in shown}, tree.proof(shown)
    liar = data.draw(st.sampled_from(shown))
    assert root_of(members, {**known, liar: leaf(liar, (b"another key",))}, proof) != tree.root
    assert leaf(liar, (b"key",)) != leaf(liar + 1, (b"key",))
    for place in range(len(proof)):
        changed = (*proof[:place], hashlib.sha256(proof[place]).digest(), *proof[place + 1 :])
        assert root_of(members, known, changed) != tree.root
    for wrong in (proof[:-1] if proof else (bytes(DIGEST_BYTES),), (*proof, bytes(DIGEST_BYTES))):
        assert check_of(root_of, members, known, wrong) is Check.ENCODING


def test_a_node_is_no_leaf() -> None:
    # Two members that advertised what looks like a node would otherwise stand for four.
    leaves = leaves_of([1, 2, 3, 4])
    tree = MemberTree(leaves)
    left, right = tree.proof((3, 4))[0], tree.proof((1, 2))[0]
    assert MemberTree({1: left, 2: right}).root == tree.root
    assert leaf(1, (leaves[1], leaves[2])) != left
