"""Anything may happen to messages and sites, in any order; what must hold then, always holds.

The network loses, repeats, reorders and replays; sites are killed and restarted from their logs; the aggregator's
deadlines pass at any moment. Members contribute unit vectors, so a sum says by itself who is in it.
"""

import itertools
import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedfair.errors import PlanError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import RoundAborted, Send, SendTo, ServerEffect, SessionReady, SumOpened
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import (
    Mode,
    SecaggPolicy,
    drop_outs_survived,
    guarantee_in_words,
    least_survivors,
    threshold,
)
from fedfair.secagg.round_messages import ConsistencyCheck, UnmaskShares, Upload
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.session import renewal_reason
from fedfair.secagg.shape import HeaderRun, SumShape, layout_digest, packed_bytes
from fedfair.secagg.signing import Member, Roster
from tests.conftest import REPOSITORY
from tests.secagg.federation_in_memory import ANY_COHORT, Wire, roster_of, shape_of, terms_of, unit_update

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
            for fresh in (message.commitment, message.vector_digest, *(tag[1] for tag in message.tags[:1])):
                assert (member, fresh) not in self.promises  # no seed is used twice by anybody
                self.promises.add((member, fresh))
        self.said.setdefault(about, set()).add((send.message, bytes(send.vector)))


TestStorm = pytest.mark.thorough(Storm.TestCase)
TestStorm.settings = settings(
    deadline=None,
    max_examples=25,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


# ---- drop-outs at every step by every subset; the unit vectors say who is in the sum, an oracle says who must be

# The step at which a member vanishes. Only the moment at which the aggregator learns of it differs between "after
# upload" and "before masks": at once, or when a wait is over.
STEPS = ("before upload", "after upload", "before masks", "before vote", "before answer")


def _expected(steps: dict[int, str], colluders: int, mode: Mode) -> tuple[int, ...] | None:
    """Return the survivors of a round, or None where it must be aborted."""
    members = len(steps)
    survivors = tuple(m for m, step in steps.items() if step != "before upload")
    needed = threshold(mode, members, colluders)
    if len(survivors) < least_survivors(mode, members, colluders):
        return None
    if len(survivors) < members:
        # Only they know the masks that they share with the missing, so they are missing too.
        survivors = tuple(m for m in survivors if steps[m] not in {"after upload", "before masks"})
        if len(survivors) < least_survivors(mode, members, colluders):
            return None
    voting = [m for m in survivors if steps[m] not in {"after upload", "before masks", "before vote"}]
    voted = len(survivors) == members or mode is Mode.SEMI_HONEST or len(voting) >= needed
    answering = [m for m in voting if steps[m] != "before answer"]
    return survivors if voted and len(answering) >= needed else None


def _run(wire: Wire, steps: dict[int, str]) -> tuple[int, ...] | None:
    """Run one round in which members vanish, and return who is in the sum."""
    wire.silent = set()
    for member, step in steps.items():
        kinds = {
            "before upload": (Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "after upload": (Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "before masks": (Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "before vote": (Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "before answer": (Kind.UNMASK_SHARES,),
            "": (),
        }[step]
        wire.silent |= {(member, kind) for kind in kinds}
    wire.leaving = {(member, Kind.UPLOAD) for member, step in steps.items() if step == "after upload"}
    opened = wire.round({m: unit_update(m, len(steps)) for m in steps})
    for member in steps:
        wire.server.returned(member)
    if opened is None:
        return None
    counted = np.rint(opened.body).astype(int)
    assert np.abs(opened.body - counted).max() < opened.errors[0]
    assert set(counted) <= {0, 1}
    assert opened.weight == opened.contributors == counted.sum()
    return tuple(int(m) for m in np.flatnonzero(counted) + 1)


def _wire(members: int, colluders: int, mode: Mode) -> Wire:
    policy = SecaggPolicy(greatest_attempts=1_000_000, any_cohort=ANY_COHORT)
    wire = Wire(members, terms_of(members, colluders, mode=mode), {"training": shape_of(members)}, policy)
    wire.set_up()
    return wire


def _matrix(members: int, colluders: int, mode: Mode, cases: list[dict[int, str]]) -> Counter[str]:
    """Run every case against the oracle and count the outcomes."""
    outcomes: Counter[str] = Counter()
    wire = _wire(members, colluders, mode)
    for number, steps in enumerate(cases):
        if number % 100 == 99:
            wire.set_up()  # a session is renewed every hundred rounds
        expected = _expected(steps, colluders, mode)
        assert _run(wire, steps) == expected, steps
        outcomes["aborted" if expected is None else "summed"] += 1
    return outcomes


SLOW = [pytest.param(*case, mode, marks=pytest.mark.slow) for case in ((4, 0), (5, 0), (5, 1)) for mode in Mode]


@pytest.mark.parametrize(
    ("members", "colluders", "mode"),
    # Three members of a malicious mode vanish below, each at a step of its own.
    [(3, 0, Mode.SEMI_HONEST), *((4, 1, mode) for mode in Mode), *SLOW],
)
def test_every_subset_at_every_step(members: int, colluders: int, mode: Mode) -> None:
    everybody = range(1, members + 1)
    cases = [
        {member: step if member in gone else "" for member in everybody}
        for size in range(members + 1)
        for gone in itertools.combinations(everybody, size)
        for step in STEPS
    ]
    outcomes = _matrix(members, colluders, mode, cases)
    # A subset that vanishes at one step is survived exactly up to n - max(t, n_C + 2) members.
    survived = members - least_survivors(mode, members, colluders)
    sums = sum(len(list(itertools.combinations(everybody, size))) for size in range(survived + 1))
    steps = len(STEPS)
    assert outcomes == Counter(summed=steps * sums, aborted=steps * (2**members - sums))


def test_every_member_of_three_at_any_step_of_its_own() -> None:
    cases = [dict(zip((1, 2, 3), steps, strict=True)) for steps in itertools.product(("", *STEPS), repeat=3)]
    # By hand for 3 members, of which 2 are needed: nobody, or one of them at one of 5 steps.
    assert _matrix(3, 0, Mode.MALICIOUS, cases) == Counter(summed=1 + 3 * 5, aborted=6**3 - 1 - 3 * 5)


def _arranged(members: int, least: int, seed: int) -> list[dict[int, str]]:
    """Return each choice of steps at which so many members or more vanish: who takes which step is drawn."""
    draw = random.Random(seed)  # noqa: S311 - an order, not a key
    return [
        dict(enumerate(draw.sample(steps, members), start=1))
        for steps in itertools.combinations_with_replacement(("", *STEPS), members)
        if members - steps.count("") >= least
    ]


@pytest.mark.slow
def test_members_of_four_at_any_steps_of_their_own() -> None:
    nobody = dict.fromkeys(range(1, 5), "")
    one = [{**nobody, gone: step} for gone in nobody for step in STEPS]
    # Three of four are needed.
    assert _matrix(4, 0, Mode.MALICIOUS, [nobody, *one]) == Counter(summed=1 + 4 * 5)
    several = [*_arranged(4, 2, seed=1), *_arranged(4, 2, seed=2)]
    assert _matrix(4, 0, Mode.MALICIOUS, several) == Counter(aborted=2 * (15 + 35 + 70))


@pytest.mark.slow
def test_two_of_five_members_at_any_step_of_their_own() -> None:
    # Each pair of members, and each pair of steps in both orders.
    pairs = list(itertools.combinations(range(1, 6), 2))
    cases = [
        {**dict.fromkeys(range(1, 6), ""), **dict(zip(pairs[place % len(pairs)], steps, strict=True))}
        for place, steps in enumerate(3 * list(itertools.product(STEPS, repeat=2)))
    ]
    # Three answers are needed, so that every two may vanish.
    assert _matrix(5, 0, Mode.MALICIOUS, cases) == Counter(summed=3 * 25)


def test_the_departure_of_the_last_one_waited_for_closes_the_phase() -> None:
    wire = _wire(4, 0, Mode.MALICIOUS)
    wire.updates = {m: unit_update(m, 4) for m in (1, 2, 3)}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), (1, 2, 3, 4)))
    assert wire.opened is None
    wire.deliver(wire.server.gone(4))
    assert wire.opened.survivors == (1, 2, 3)


def test_a_member_that_returns_is_asked_again_and_answers_byte_for_byte() -> None:
    wire = _wire(4, 0, Mode.MALICIOUS)
    wire.updates = {m: unit_update(m, 4) for m in (1, 2, 3, 4)}
    wire.silent = {(4, Kind.UPLOAD)}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), (1, 2, 3, 4)))
    wire.silent = set()
    wire.deliver(wire.server.returned(4))
    assert wire.opened.survivors == (1, 2, 3, 4)


def test_a_round_below_the_threshold_is_aborted_in_words() -> None:
    wire = _wire(5, 1, Mode.MALICIOUS)
    wire.silent = {(member, Kind.UPLOAD) for member in (1, 2)}
    assert wire.round({m: unit_update(m, 5) for m in range(1, 6)}) is None
    assert wire.aborted.reason == "3 of 5 contributed, 4 are needed"
    assert not wire.aborted.answered


@pytest.mark.parametrize(
    ("members", "colluders", "needed", "dropped"),
    [
        (3, 0, 2, 1), (3, 1, 3, 0), (4, 1, 3, 1), (5, 1, 4, 1), (7, 2, 5, 2), (10, 3, 7, 3), (20, 6, 14, 6),
        (50, 16, 34, 16), (100, 33, 67, 33),
    ],
)  # fmt: skip
def test_the_table_of_thresholds(members: int, colluders: int, needed: int, dropped: int) -> None:
    assert threshold(Mode.MALICIOUS, members, colluders) == needed
    assert drop_outs_survived(Mode.MALICIOUS, members, colluders) == dropped


@given(st.integers(2, 200), st.integers(0, 198))
def test_two_sets_of_survivors_can_never_both_be_opened(members: int, colluders: int) -> None:
    if colluders > members - 2:
        with pytest.raises(PlanError):
            threshold(Mode.MALICIOUS, members, colluders)
        return
    t = threshold(Mode.MALICIOUS, members, colluders)
    assert 2 * t > members + colluders
    assert t <= least_survivors(Mode.MALICIOUS, members, colluders) <= members
    assert least_survivors(Mode.SEMI_HONEST, members, colluders) == colluders + 2


def test_a_round_of_more_than_a_thousand_is_refused_in_words() -> None:
    assert threshold(Mode.MALICIOUS, 1000, 0) == 501
    with pytest.raises(PlanError, match="at most 1000"):
        threshold(Mode.MALICIOUS, 1001, 0)


def test_the_guarantee_is_said_in_words() -> None:
    for of, figures in (
        ((Mode.MALICIOUS, 5, 1), r"may do anything.* up to 1 of 5 .* at least 4 sites a round; 1 drop-out is"),
        ((Mode.MALICIOUS, 3, 1), r"no drop-out is survived: if one of 3 vanishes"),
        ((Mode.SEMI_HONEST, 4, 0), r"follows the protocol, alone, .* at least 2 sites a round; 2 drop-outs are"),
    ):
        assert re.search(figures, guarantee_in_words(*of))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""), ({"rounds": 100}, "100 rounds"), ({"hours": 24.0}, "24.0 hours"),
        ({"present": frozenset({1, 2, 9})}, "no keys"), ({"present": frozenset({1})}, ""),
        ({"restarted": True}, "restarted"),
    ],
)  # fmt: skip
def test_when_a_session_is_renewed(changes: dict[str, object], reason: str) -> None:
    calm: dict[str, object] = {
        "rounds": 99, "hours": 1.0, "members": frozenset({1, 2, 3}), "present": frozenset({1, 2}),
        "restarted": False,
    }  # fmt: skip
    found = renewal_reason(**{**calm, **changes})  # type: ignore[arg-type]
    assert (reason in found) if reason else found == ""


@pytest.mark.parametrize(
    "members",
    [
        [Member(1, "a", b"k" * 32)],
        [Member(1, "a", b"k" * 32), Member(1, "b", b"l" * 32)],
        [Member(1, "a", b"k" * 32), Member(2, "a", b"l" * 32)],
        [Member(1, "a", b"k" * 32), Member(2, "b", b"k" * 32)],
        [Member(0, "a", b"k" * 32), Member(2, "b", b"l" * 32)],
        [Member(1, "a", b"k" * 31), Member(2, "b", b"l" * 32)],
    ],
    ids=["alone", "index", "name", "key", "zero", "short key"],
)
def test_a_roster_that_cannot_be_is_refused(members: list[Member]) -> None:
    with pytest.raises(PlanError):
        Roster(members)


def test_a_rosters_digest_says_who_is_in_it() -> None:
    assert roster_of(3).digest == roster_of(3).digest != roster_of(4).digest
    assert (len(roster_of(3)), roster_of(3).name(2)) == (3, "clinic-2")


def test_shapes_differ_in_their_digests() -> None:
    shapes = [
        shape_of(0), shape_of(5), shape_of(5, 2), SumShape((HeaderRun(1, 100.0, whole=True),), (5,)),
        SumShape((), (2, 3)),
    ]  # fmt: skip
    assert len({shape.digest() for shape in shapes}) == len(shapes)
    assert layout_digest({"a": shapes[0]}) != layout_digest({"b": shapes[0]})


def test_a_shape_that_cannot_be_encoded_is_refused() -> None:
    for runs, groups in ((-1, (1,)), (1, (-1,)), (1 << 17, ())):
        with pytest.raises(PlanError):
            SumShape((HeaderRun(runs, 1.0, whole=True),), groups)
    with pytest.raises(PlanError):
        SumShape((HeaderRun(1, float("inf"), whole=False),), ())
    with pytest.raises(PlanError):
        packed_bytes(10, 31)


# ---- the table of attacks and the threat model of docs/explain/secure-aggregation.md, held against the checks

DOCUMENT = REPOSITORY / "docs" / "explain" / "secure-aggregation.md"


def test_the_attack_table_names_every_check_and_no_other() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("<!-- attacks -->")[1].split("<!-- /attacks -->")[0]
    named = {name for row in table.splitlines()[3:] for name in re.findall(r"`([^`]+)`", row.split("|")[-2])}
    assert named == {check.value for check in Check}
