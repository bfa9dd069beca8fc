"""Which state of the run the members of a set-up vouch for."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from fedfair.secagg.check_seed import check_seed, open_seed, seal_seed, seed_commitment
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, SendTo, SiteEffect, StateVouched
from fedfair.secagg.graph_terms import graph_terms
from fedfair.secagg.keys import Secret
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import Mode
from fedfair.secagg.transcript import NO_STATE, RoundSubject
from fedfair.secagg.vouching import vouched_state
from tests.secagg.federation_in_memory import MODEL, Wire, shape_of, terms_of

ONE, OTHER = (hashlib.sha256(word).digest() for word in (b"one", b"other"))


@pytest.mark.parametrize(
    ("members", "colluders", "mode", "needed"),
    [
        (3, 0, Mode.MALICIOUS, 2),
        (5, 1, Mode.MALICIOUS, 4),
        (7, 2, Mode.MALICIOUS, 5),
        (5, 1, Mode.SEMI_HONEST, 3),
    ],
)
def test_t_signatures_vouch_and_one_less_does_not(members: int, colluders: int, mode: Mode, needed: int) -> None:
    terms = terms_of(members, colluders, mode=mode)
    for signed in range(members + 1):
        states = {m: ONE if m <= signed else bytes([m]) * 32 for m in range(1, members + 1)}
        assert vouched_state(states, terms, None) == (ONE if signed >= needed else NO_STATE)


def test_no_state_and_two_states_vouch_for_nothing() -> None:
    assert vouched_state(dict.fromkeys(range(1, 6), NO_STATE), terms_of(5), None) == NO_STATE
    two = {m: ONE if m <= 3 else OTHER for m in range(1, 7)}
    assert vouched_state(two, terms_of(6, mode=Mode.SEMI_HONEST), None) == NO_STATE


def test_a_site_hears_of_another_state_before_its_confirm_and_can_decline() -> None:
    wire = Wire(4, terms_of(4), {"training": shape_of(2)})
    behind, replies = RoundSubject(OTHER, MODEL.request_digest), {}
    for effect in wire.server.open_session(wire.roster.indices):
        assert isinstance(effect, SendTo)
        (*_, advert) = wire.sites[effect.member].receive(effect.message, behind if effect.member == 4 else MODEL)
        assert isinstance(advert, Send)
        for said in wire.server.receive(effect.member, advert.message):
            assert isinstance(said, SendTo)
            replies[said.member] = wire.sites[said.member].receive(said.message, MODEL)
            last = said.message
    assert [type(effect) for effect in replies[1]] == [Send]
    vouched, confirm = replies[4]
    assert vouched == StateVouched(MODEL.state_digest)
    assert isinstance(confirm, Send)
    assert kind_of(confirm.message) is Kind.CONFIRM
    wire.sites[4].decline_session()
    with pytest.raises(SecaggError) as refused:
        wire.sites[4].receive(last, MODEL)
    assert refused.value.check is Check.OUT_OF_ORDER


def test_a_check_seed_is_sealed_for_one_member_of_one_session() -> None:
    seed, shared, session, proposal = Secret(b"g" * 32), Secret(b"s" * 32), b"i" * 32, b"proposal"
    promised = seed_commitment(seed, proposal, 1)
    sealed = seal_seed(seed, shared, session, (1, 2), b"key")
    assert open_seed(sealed, shared, session, (1, 2), b"key") == seed
    for lie in (
        (sealed, shared, session, (2, 1), b"key"),
        (sealed, shared, b"j" * 32, (1, 2), b"key"),
        (sealed, Secret(b"t" * 32), session, (1, 2), b"key"),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), shared, session, (1, 2), b"key"),
        (sealed, shared, session, (1, 2), b"another key"),
        (sealed, shared, session, (1, 2), b""),
    ):
        with pytest.raises(SecaggError) as refused:
            open_seed(*lie)
        assert refused.value.check is Check.CONFIRM
    check_seed(seed, proposal, 1, promised)
    for found, about, sender in (
        (seed, b"another", 1),
        (seed, proposal, 2),
        (Secret(b"h" * 32), proposal, 1),
    ):
        with pytest.raises(SecaggError) as refused:
            check_seed(found, about, sender, promised)
        assert refused.value.check is Check.CONFIRM


def test_the_committee_of_a_sparse_graph_vouches_with_as_many_as_decide_who_has_survived() -> None:
    graph = graph_terms(200, 4)
    assert graph is not None
    for signed in range(graph.committee + 1):
        states = {m: ONE if m <= signed else bytes([m]) * 32 for m in range(1, graph.committee + 1)}
        assert vouched_state(states, terms_of(200, 4), graph) == (ONE if signed >= graph.votes else NO_STATE)


def test_a_site_of_a_sparse_graph_hears_of_another_state_from_the_committee() -> None:
    wire = Wire(14, replace(terms_of(14), neighbours=6), {"training": shape_of(2)})
    heard: dict[int, list[StateVouched]] = {}
    hand_over = wire.hand_over

    def behind(member: int, message: bytes) -> list[SiteEffect]:
        wire.model = RoundSubject(OTHER, MODEL.request_digest) if member == 4 else MODEL
        effects = hand_over(member, message)
        heard.setdefault(member, []).extend(one for one in effects if isinstance(one, StateVouched))
        return effects

    wire.hand_over = behind  # type: ignore[method-assign]
    wire.set_up()
    assert heard.pop(4) == [StateVouched(MODEL.state_digest)]
    assert not any(heard.values())
