"""Anything may happen to messages and sites, in any order; what must hold then, always holds.

The network loses, repeats, reorders and replays; sites are killed and restarted from their logs; the aggregator's
deadlines pass at any moment. Members contribute unit vectors, so a sum says by itself who is in it.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedfair.secagg.checks import SecaggError
from fedfair.secagg.effects import RoundAborted, Send, SendTo, ServerEffect, SessionReady, SumOpened
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import SecaggPolicy
from fedfair.secagg.round_messages import ConsistencyCheck, UnmaskShares, Upload
from fedfair.secagg.server_state import ServerState
from tests.secagg.federation_in_memory import ANY_COHORT, Wire, shape_of, terms_of, unit_update

MEMBERS = 4
PARTS = {
    Kind.UPLOAD: Upload.decode,
    Kind.CONSISTENCY_CHECK: ConsistencyCheck.decode,
    Kind.UNMASK_SHARES: UnmaskShares.decode,
}


class Storm(RuleBasedStateMachine):
    """A federation of four in bad weather."""

    def __init__(self) -> None:
        super().__init__()
        policy = SecaggPolicy(greatest_attempts=1_000_000, any_cohort=ANY_COHORT)
        self.wire = Wire(MEMBERS, terms_of(MEMBERS), {"training": shape_of(MEMBERS)}, policy)
        self.wire.updates = {}
        self.to_sites: list[tuple[int, bytes]] = []
        self.to_server: list[tuple[int, Send]] = []
        self.past: list[tuple[int, bytes]] = []
        self.said: dict[tuple[int, Kind, bytes], set[tuple[bytes, bytes]]] = {}
        self.promises: set[tuple[int, bytes]] = set()

    @initialize()
    def set_up(self) -> None:
        self.wire.set_up()

    # ------------------------------------------------------------ what the aggregator does

    @precondition(lambda self: self.wire.server.state is ServerState.READY)
    @rule()
    def start_a_round(self) -> None:
        self.obey(self.wire.server.start_round("training", self.wire.model, (1.0,), self.wire.server.members))

    @rule()
    def a_deadline_passes(self) -> None:
        self.obey(self.wire.server.deadline())

    @precondition(lambda self: self.wire.server.state in (ServerState.READY, ServerState.IDLE))
    @rule()
    def renew_the_session(self) -> None:
        self.obey(self.wire.server.open_session(self.wire.roster.indices))

    @rule(member=st.integers(1, MEMBERS))
    def a_member_is_lost(self, member: int) -> None:
        self.obey(self.wire.server.gone(member))

    @rule(member=st.integers(1, MEMBERS))
    def a_member_is_back(self, member: int) -> None:
        self.obey(self.wire.server.returned(member))

    # ------------------------------------------------------------ what the network does

    @precondition(lambda self: self.to_sites)
    @rule(at=st.integers(0, 1 << 16), repeated=st.booleans())
    def a_site_receives(self, at: int, repeated: bool) -> None:
        member, raw = self.to_sites[at % len(self.to_sites)]
        if not repeated:
            self.to_sites.remove((member, raw))
        self.hand_over(member, raw)

    @precondition(lambda self: self.to_sites)
    @rule()
    def everything_arrives_at_the_sites(self) -> None:
        while self.to_sites:
            self.hand_over(*self.to_sites.pop(0))

    @precondition(lambda self: self.to_server)
    @rule(at=st.integers(0, 1 << 16), repeated=st.booleans())
    def the_aggregator_receives(self, at: int, repeated: bool) -> None:
        member, send = self.to_server[at % len(self.to_server)]
        if not repeated:
            del self.to_server[at % len(self.to_server)]
        self.deliver(member, send)

    @precondition(lambda self: self.to_server)
    @rule()
    def everything_arrives_at_the_aggregator(self) -> None:
        while self.to_server:
            self.deliver(*self.to_server.pop(0))

    @precondition(lambda self: self.to_server)
    @rule(at=st.integers(0, 1 << 16))
    def a_message_is_lost(self, at: int) -> None:
        del self.to_server[at % len(self.to_server)]

    @rule(unheard=st.integers(0, MEMBERS))
    def all_is_calm_but_one_member_is_not_heard(self, unheard: int) -> None:
        while self.to_sites or self.to_server:
            self.everything_arrives_at_the_sites()
            self.to_server = [(member, send) for member, send in self.to_server if member != unheard]
            self.everything_arrives_at_the_aggregator()

    @precondition(lambda self: self.past)
    @rule(at=st.integers(0, 1 << 16), member=st.integers(1, MEMBERS))
    def an_old_message_is_replayed_to_anybody(self, at: int, member: int) -> None:
        self.hand_over(member, self.past[at % len(self.past)][1])

    @rule(member=st.integers(1, MEMBERS))
    def a_site_is_killed_and_restarted(self, member: int) -> None:
        self.wire.restart(member)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def nobody_says_two_things_about_one_round(self) -> None:
        assert all(len(found) == 1 for found in self.said.values())

    def obey(self, effects: list[ServerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendTo(member, message):
                    self.to_sites.append((member, message))
                    self.past.append((member, message))
                case SumOpened(_, survivors):
                    opened = self.wire.server.take_sum()
                    counted = np.rint(opened.body).astype(int)
                    assert set(np.flatnonzero(counted) + 1) == set(survivors)
                    assert set(counted) <= {0, 1}
                    assert opened.weight == len(survivors) >= 2
                    event(f"a sum over {len(survivors)} was opened")
                case RoundAborted() as aborted:
                    event("a round was aborted")
                    assert "combine" not in aborted.reason
                    assert "lies outside" not in aborted.reason
                case SessionReady() | _:
                    pass

    def hand_over(self, member: int, raw: bytes) -> None:
        self.wire.updates = {member: unit_update(member, MEMBERS)}
        try:
            effects = self.wire.hand_over(member, raw)
        except SecaggError:
            return
        for send in self.wire.carry_out(member, effects):
            self.overhear(member, send)
            self.to_server.append((member, send))

    def deliver(self, member: int, send: Send) -> None:
        try:
            self.obey(self.wire.server.receive(member, send.message, send.vector))
        except SecaggError:
            return

    def overhear(self, member: int, send: Send) -> None:
        kind = kind_of(send.message)
        if kind not in PARTS:
            return
        message = PARTS[kind](send.message)
        about = (member, kind, message.transcript)
        if kind is Kind.UPLOAD and about not in self.said:
            assert isinstance(message, Upload)
            for fresh in (message.commitment, message.vector_digest, *(tag[1] for tag in message.tags[:1])):
                assert (member, fresh) not in self.promises  # no seed is used twice by anybody
                self.promises.add((member, fresh))
        self.said.setdefault(about, set()).add((send.message, bytes(send.vector)))


TestStorm = pytest.mark.thorough(Storm.TestCase)
TestStorm.settings = settings(
    deadline=None,
    max_examples=40,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
