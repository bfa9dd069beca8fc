"""The bytes that are promised before a run are the bytes that travel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfair.secagg.effects import Send, ServerEffect, SiteEffect
from fedfair.secagg.graph_terms import graph_terms
from fedfair.secagg.message_costs import set_up_bytes, site_bytes, vote_bytes
from fedfair.secagg.messages import Kind
from fedfair.secagg.params import Suite
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of, unit_update


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
