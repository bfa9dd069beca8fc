"""Sessions with a sparse graph: who is whose neighbour, what vanishing members cost, and what starts again."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import RoundAborted, SendTo, SessionReady
from fedfair.secagg.graph_terms import GraphTerms, graph_terms, more_than
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import Mode, Suite
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server import Server
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.session_graph import HONEST_DRAWERS, SessionGraph, drawn_session
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
    assert opened is not None
    assert set(opened.survivors) == set(wire.roster.indices) - missing
    expected = [0.0 if member in missing else 1.0 for member in wire.roster.indices]
    assert np.abs(opened.body - expected).max() < TOLERANCE
    assert wire.accepted.keys() == set(wire.roster.indices)


@pytest.mark.thorough
@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize("mode", Mode)
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
        assert site.session is not None
        assert set(site.session.chains) == set(ring.neighbours(member))
    for one, other in itertools.permutations(wire.roster.indices, 2):
        assert (other in ring.neighbours(one)) == (one in ring.neighbours(other))
    keys = {site.session.check_key.reveal() for site in wire.sites.values() if site.session is not None}
    assert len(keys) == 1


def test_a_member_without_enough_neighbours_counts_as_missing() -> None:
    wire = sparse_wire()
    ring = ring_of(wire)
    lonely = 1
    away = set(ring.neighbours(lonely)[:3])
    wire.silent = {(member, Kind.UPLOAD) for member in away}
    wire.round(updates_of(wire))
    assert ring.lonely(set(wire.roster.indices) - away) >= {lonely}
    if wire.opened is not None:
        check(wire, away | ring.lonely(set(wire.roster.indices) - away))
    else:
        assert isinstance(wire.aborted, RoundAborted)


def test_an_evaluation_needs_everybody_and_no_vote() -> None:
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
    assert wire.opened is not None
    assert set(wire.opened.survivors) == set(wire.roster.indices) - {3}


@pytest.mark.parametrize("missing", [set(), {3}])
def test_another_aggregator_opens_the_same_round_again_from_its_record(missing: set[int]) -> None:
    wire = sparse_wire()
    wire.silent = {(m, Kind.UPLOAD) for m in missing} | {(m, Kind.UNMASK_SHARES) for m in wire.roster.indices}
    wire.round(updates_of(wire))
    assert wire.aborted is not None
    assert wire.aborted.reopens
    record = wire.server.round_record
    assert record is not None
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
    with pytest.raises(SecaggError) as refused:
        set_up_again_and_again(wire)
    assert refused.value.check is Check.GRAPH
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
