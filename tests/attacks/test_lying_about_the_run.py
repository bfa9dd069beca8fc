"""An aggregator that lies about the run to a site as it is deployed: each lie is refused by a named check.

Member 1 is a real worker with its own copy of the run; four more are real in secure aggregation. The liar forges
what it likes. Whatever it states, nothing of that round is answered, nothing is drawn, and the site's copy of the
run stays where it was.

    lie                                        check that refuses it
    -----------------------------------------  ---------------------------------------------------------------
    another scaling of the features            STATE
    another plan, a variant of it              PLAN
    another model                              STATE
    another threshold                          STATE
    another stage, or round                    STATE
    another query                              STATE; REQUEST where only the round start names it
    another attempt                            none: it is not read; the same draws once more are REUSED_UPDATE
    another clip                               STATE; POLICY beyond the plan's own
    another weight bound, ring, suite          POLICY
    an opened sum wrong by one unit            SUM, and the site leaves the run
    an opened sum over other survivors         SURVIVORS, and the site leaves the run
    a sum shown differently to two sites       SUM at whoever is shown the false one; without the check of sums,
                                               STATE at whoever is asked about the other state
    a stale snapshot that was never held       STATE
    a snapshot of the past that was held       COHORT for any other sites than before
    a snapshot with t - 1 signatures           STATE
    an evaluation left out, to sum one model   COHORT for any other sites than before
    a second time
"""

import copy
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.quantile_query import ExactQuery, QueryStep
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.aggregation.round_subject import request_digest, round_subject
from fedfair.aggregation.running_sum import Totals
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
from fedfair.plan.sections import ReleaseAuditSection, SlicesSection
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.run.kept_sum import KeptSum
from fedfair.run.packed_state import pack_state
from fedfair.run.progress import FinalStage
from fedfair.run.replica import OutOfStepError, RunReplica, Unkept
from fedfair.run.rules import RunRules
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, SendTo, ServerEffect, SumOpened
from fedfair.secagg.params import SecaggPolicy, Suite
from fedfair.secagg.recovery import Announcement
from fedfair.secagg.round_messages import OpenedMessage
from fedfair.secagg.setup_messages import Proposal
from fedfair.secagg.transcript import RoundSubject
from fedfair.statistics.table import Purpose
from fedfair.terms.local_change import LocalChange
from fedfair.training.binding import plan_binding
from fedfair.training.masked_update import training_update
from fedfair.wire.frames import NO_SUM, Abstain, Chunk, CollaboratorFrame, SecaggMessage, SumStart
from fedfair.wire.receiving import ReceivedSum
from tests.actors.followed_run import PLAN_DIGEST, ROUNDS, SCHEMA, layout_of, plan_of
from tests.actors.site_play import played, small
from tests.actors.test_masked_worker import MODEL, OneSite
from tests.held_terms import holding
from tests.secagg.federation_in_memory import PLAN

EVERYBODY = (1, 2, 3, 4, 5)


class LiedTo(OneSite):
    """A site with an aggregator that forges what it likes; its sums are those of the plan."""

    def __init__(self, folder: Path) -> None:
        plan = plan_of(masked=True, method="exact")
        shape = sum_shapes(plan, layout_of(len(MODEL.vector)), SCHEMA)["training"]
        super().__init__(folder, shape, plan=plan)
        self.lies.policy = SecaggPolicy(greatest_attempts=1_000_000)
        self.lies.sites = {index: self.lies.site(index) for index in self.lies.roster.indices}
        self.answers._participant._site = replace(self.answers._participant._site, policy=self.lies.policy)
        self.drawn: list[int] = []
        self.refusals: list[Abstain] = []
        self.task.drawn = self.drawn.append
        self.task.fresh = True

    # -------------------------------------------------------------- honest messages

    def set_up(self) -> None:
        """Agree on keys."""
        self.rounds += 1
        self.carry(self.lies.server.open_session(EVERYBODY))
        assert self.lies.server.members == EVERYBODY

    def open(self) -> Announcement:
        """Open one honest training sum, and tell nobody."""
        self.rounds += 1
        change = LocalChange(1, 0.125, np.full(5, 0.5))
        self.lies.updates = {index: training_update(change) for index in EVERYBODY}
        (opened,) = self.carry(self.lies.server.start_round("training", self.subject, (1.0,), EVERYBODY))
        assert isinstance(opened, SumOpened)
        self.lies.server.take_sum()
        assert self.lies.server.announcement is not None
        return self.lies.server.announcement

    def carry(
        self, effects: list[ServerEffect], holds: Callable[[int], RoundSubject] | None = None
    ) -> list[ServerEffect]:
        """Carry every message; return what was done beside sending. Others hold what `holds` says of them."""
        pending, found = list(effects), list[ServerEffect]()
        while pending:
            effect = pending.pop(0)
            if not isinstance(effect, SendTo):
                found.append(effect)
                continue
            if effect.member == 1:
                said = self._hear(effect.message)
                self.refusals += [frame for frame in said if isinstance(frame, Abstain)]
                sends = sent([frame for frame in said if not isinstance(frame, Abstain)])
            else:
                self.lies.model = holds(effect.member) if holds else self.subject
                sends = self.lies.carry_out(effect.member, self.lies.hand_over(effect.member, effect.message))
            for send in sends:
                pending += self.lies.server.receive(effect.member, send.message, send.vector)
        return found

    def tell(self, told: Announcement) -> list[CollaboratorFrame]:
        """Tell the site of an opened sum."""
        return list(self.answers._hear_sum(ReceivedSum(told.message, bytes(told.vector))))

    # -------------------------------------------------------------- lies

    def offer(self, state: RunState) -> None:
        """Send a state of the run, as the aggregator does to whoever is not in step."""
        self.run.replica.offer(b"".join(pack_state(state)))

    def about(self, state: RunState) -> tuple[SumStart, RoundSubject]:
        """Return the request and the subject of a round about a state, with digests that fit it."""
        due, digest = self.run.replica.rules.next_request(state), state.digest(PLAN)
        start = replace(self.run.start(self.rounds + 1), purpose=due.purpose, round=int(due.round), state=digest)
        return start, round_subject(digest, due)

    def reason_of(self, start: SumStart | None = None, **changes: object) -> RefusalReason:
        """Start a round with lies; return the reason of the one abstention that is all that the site says."""
        self.rounds += 1
        held, session, drawn = self.run.replica.digest, self.answers._participant.session, list(self.drawn)
        before, kept = (session.last_round, session.rounds), self.answers._participant.phase
        forged = self.lies.start(
            **{
                "session_id": session.session_id,
                "round": session.last_round + 1,
                "subject": self.subject,
                **changes,
            }
        )
        if start is not None:
            start = replace(start, sum_number=self.run.start(self.rounds).sum_number)
        (said,) = self._hear(forged, start)
        assert isinstance(said, Abstain)
        assert self.run.replica.digest == held, "the copy of the run was moved by a word"
        assert (session.last_round, session.rounds) == before, "the round was entered"
        assert self.answers._participant.phase is kept
        assert self.drawn == drawn, "something was computed"
        return said.reason


def sent(frames: list[CollaboratorFrame]) -> list[Send]:
    """Return the messages of secure aggregation with the vectors that follow them."""
    found: list[Send] = []
    for frame in frames:
        if isinstance(frame, Chunk):
            found[-1] = Send(found[-1].message, bytes(found[-1].vector) + bytes(frame.data))
        else:
            assert isinstance(frame, SecaggMessage), frame
            found.append(Send(frame.message))
    return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LiedTo]:
    one = LiedTo(tmp_path)
    one.set_up()
    yield one
    one.answers.close()


# ------------------------------------------------------------------ another state


def with_model(state: RunState, further: float = 0.0, higher: float = 0.0) -> RunState:
    return replace(state, model=GlobalModel(state.model.vector + further, state.model.threshold + higher))


STATES: Mapping[str, Callable[[RunState], RunState]] = {
    "scaling": lambda state: replace(state, scaling=FeatureScaling(np.zeros(2), np.full(2, 1e300))),
    "model": lambda state: with_model(state, further=1e-12),
    "threshold": lambda state: with_model(
        state, state.model.vector, float(np.nextafter(state.model.threshold, 1))
    ),
    "stage": lambda state: replace(state, stage=Purpose.EVALUATION),
    "round": lambda state: replace(state, rounds_done=RoundNumber(1)),
    "query": lambda state: replace(
        state, stage=Purpose.EXACT_EVALUATION, rounds_done=RoundNumber(ROUNDS), query=ExactQuery.of((0.1, 0.3))
    ),
    "clip": lambda state: holding(state, clip=2.0),
    "an evaluation that was left out": lambda state: replace(state, left_out=(RoundNumber(0),)),
}


@pytest.mark.parametrize("lie", STATES)
def test_a_round_about_another_state_is_refused_whatever_fits_it(site: LiedTo, lie: str) -> None:
    start, subject = site.about(STATES[lie](site.run.replica.state))
    assert start.state != site.run.replica.digest
    # Everything fits; then only the round start lies, and then only the request before it.
    purpose = start.purpose.value
    assert site.reason_of(start, subject=subject, purpose=purpose) is RefusalReason.SECAGG_STATE
    lone = replace(subject, request_digest=site.subject.request_digest)
    assert site.reason_of(subject=lone) is RefusalReason.SECAGG_STATE
    assert site.reason_of(start) is RefusalReason.SECAGG_STATE


@pytest.mark.parametrize("lie", STATES)
def test_a_state_that_nobody_vouches_for_is_refused_after_it_was_sent_too(site: LiedTo, lie: str) -> None:
    state, rules = STATES[lie](site.run.replica.state), site.run.replica.rules
    if rules.may_be(state):
        site.offer(state)
    start, subject = site.about(state)
    assert site.reason_of(start, subject=subject, purpose=start.purpose.value) is RefusalReason.SECAGG_STATE


@pytest.mark.parametrize("lie", [{"purpose": Purpose.EVALUATION}, {"round": 2}], ids=str)
def test_another_stage_or_round_of_the_true_state_is_refused(site: LiedTo, lie: dict[str, object]) -> None:
    start = replace(site.run.start(1), **lie)  # type: ignore[arg-type]
    assert site.reason_of(start) is RefusalReason.SECAGG_STATE


@pytest.mark.parametrize("step", [QueryStep(2, (0,) * 9), QueryStep(1, (0,))], ids=str)
def test_another_query_than_that_of_the_true_state_is_refused(site: LiedTo, step: QueryStep) -> None:
    sizes = site.run.replica.rules.evaluator.group_sizes
    state = replace(
        site.run.replica.state,
        stage=Purpose.EXACT_EVALUATION,
        rounds_done=RoundNumber(ROUNDS),
        query=ExactQuery.of(sizes),
    )
    site.run.move(state)
    due = site.run.replica.rules.next_request(state)
    asked = replace(site.subject, request_digest=request_digest(replace(due, query=step)))
    found = site.reason_of(subject=asked, purpose=due.purpose.value, clips=())
    assert found is RefusalReason.SECAGG_REQUEST


@pytest.mark.parametrize("clip", [1e-300, 0.5, float(np.nextafter(1.0, 2.0)), 2.0])
def test_another_clip_than_that_of_the_state_is_refused(site: LiedTo, clip: float) -> None:
    assert (site.run.replica.state.clip, site.reason_of(clips=(clip,))) == (1.0, RefusalReason.SECAGG_STATE)


# ------------------------------------------------------------------ another plan, other terms


PROPOSALS: Mapping[str, tuple[Callable[[Proposal], Proposal], RefusalReason]] = {
    "plan": (lambda honest: replace(honest, plan_digest=bytes(32)), RefusalReason.SECAGG_PLAN),
    "weight bound": (
        lambda honest: replace(honest, terms=replace(honest.terms, greatest_weight=1)),
        RefusalReason.SECAGG_POLICY,
    ),
    "ring": (
        lambda honest: replace(honest, terms=replace(honest.terms, ring_bits=16)),
        RefusalReason.SECAGG_POLICY,
    ),
    "suite": (
        lambda honest: replace(honest, terms=replace(honest.terms, suite=Suite.X25519_MLKEM768)),
        RefusalReason.SECAGG_POLICY,
    ),
    "no check of sums": (
        lambda honest: replace(honest, terms=replace(honest.terms, check_sums=False)),
        RefusalReason.SECAGG_POLICY,
    ),
}


@pytest.mark.parametrize("lie", PROPOSALS)
def test_a_proposal_of_another_plan_or_of_other_terms_is_refused(site: LiedTo, lie: str) -> None:
    (effect, *_) = site.lies.server.open_session(EVERYBODY)
    forge, reason = PROPOSALS[lie]
    (said,) = site._hear(forge(Proposal.decode(effect.message)).encode())
    assert said.reason is reason


# ------------------------------------------------------------------ the attempt


def test_the_stated_attempt_is_not_read_and_the_same_draws_are_not_sent_twice(site: LiedTo) -> None:
    def begun(attempt: int, own: int) -> list[CollaboratorFrame]:
        site.rounds += 1
        site.answers._rule = lambda _: own
        site.lies.server.deadline()
        effects = site.lies.server.start_round("training", site.subject, (1.0,), EVERYBODY)
        (message,) = (effect.message for effect in effects if isinstance(effect, SendTo) and effect.member == 1)
        return site._hear(message, site.run.start(site.rounds, attempt))

    assert sent(begun(99, 1))
    assert sent(begun(1, 2))
    assert site.drawn == [1, 2]
    (said,) = begun(3, 1)
    assert said.reason is RefusalReason.SECAGG_REUSED_UPDATE


# ------------------------------------------------------------------ the opened sum


def told_wrong(told: Announcement) -> Iterator[Announcement]:
    """Yield the sum with each coordinate of its body changed by one unit, up and down."""
    for place in range(5):
        for by in (1, -1):
            words = np.frombuffer(told.vector, "<u4").copy()
            words[place : place + 1] += np.uint32(by % (1 << 32))
            yield Announcement(told.message, words.tobytes())


def test_an_opened_sum_that_is_wrong_by_one_unit_ends_this_sites_part_and_moves_nothing(site: LiedTo) -> None:
    told, held = site.open(), site.run.replica.digest
    for wrong in told_wrong(told):
        assert site.tell(wrong) == [Abstain(NO_SUM, RefusalReason.SECAGG_SUM, leaving=True)]
        assert site.run.replica.digest == held
        fault = site.answers.sums.exit_reason
        assert isinstance(fault, SecaggError)
        assert fault.check is Check.SUM
    # What is true is believed, and moves the copy of the run.
    assert (site.tell(told), site.run.replica.state.rounds_done) == ([], 1)
    np.testing.assert_allclose(site.run.replica.state.model.vector[0], 0.5, atol=0.3)


def test_an_opened_sum_over_other_survivors_ends_this_sites_part_and_moves_nothing(site: LiedTo) -> None:
    told, held = site.open(), site.run.replica.digest
    fewer = replace(OpenedMessage.decode(told.message), survivors=(1, 2, 3, 4)).encode()
    said = site.tell(Announcement(fewer, told.vector))
    assert said == [Abstain(NO_SUM, RefusalReason.SECAGG_SURVIVORS, leaving=True)]
    assert site.run.replica.digest == held


def test_two_sites_that_were_shown_two_sums_never_answer_one_round(site: LiedTo) -> None:
    """As if sums were not checked: each site believes what it is told, and they part."""
    true, false = (Totals(np.array([5.0, 0.0]), np.full(5, total), 5) for total in (1.0, 2.0))
    before = site.run.replica.state
    theirs = site.run.replica.rules.step(before, true).state
    site.run.move(site.run.replica.rules.step(before, false).state)
    start, subject = site.about(theirs)
    assert site.reason_of(start, subject=subject) is RefusalReason.SECAGG_STATE
    assert site.reason_of(subject=subject) is RefusalReason.SECAGG_STATE


# ------------------------------------------------------------------ snapshots


def later(site: LiedTo) -> RunState:
    """Return a state to which the run did not come, one round on."""
    totals = Totals(np.array([5.0, 0.0]), np.full(5, 3.0), 5)
    return site.run.replica.rules.step(site.run.replica.state, totals).state


def test_a_snapshot_of_a_past_that_this_site_never_held_is_not_believed(site: LiedTo) -> None:
    stale = later(site)
    site.tell(site.open())
    assert site.run.replica.state.rounds_done == 1
    held = site.run.replica.digest
    site.offer(stale)
    assert site.run.replica.digest == held
    start, subject = site.about(stale)
    assert site.reason_of(start, subject=subject) is RefusalReason.SECAGG_STATE


def test_a_snapshot_of_the_past_that_this_site_held_opens_no_second_sum_for_other_sites(site: LiedTo) -> None:
    beginning = site.run.replica.state
    site.tell(site.open())
    site.offer(beginning)
    assert site.run.replica.state.rounds_done == 0, "it has held the state, and anybody may be put back"
    assert site.reason_of(cohort=(1, 2, 3, 4)) is RefusalReason.SECAGG_COHORT


def test_an_evaluation_that_is_left_out_makes_no_other_sum_of_the_same_model(site: LiedTo) -> None:
    beginning = site.run.replica.state
    site.tell(site.open())
    site.run.replica.restore(site.run.replica.run_id, replace(beginning, left_out=(RoundNumber(0),)))
    assert site.run.replica.digest != beginning.digest(PLAN)
    assert site.reason_of(cohort=(1, 2, 3, 4)) is RefusalReason.SECAGG_COHORT


@pytest.mark.parametrize(("signers", "believed"), [(2, False), (3, True)])
def test_a_snapshot_is_believed_with_t_signatures_and_no_fewer(
    tmp_path: Path, signers: int, believed: bool
) -> None:
    site = LiedTo(tmp_path)
    site.rounds += 1
    state, held = later(site), site.run.replica.digest
    vouched = state.digest(PLAN)
    site.offer(state)

    def signed(member: int) -> RoundSubject:
        return RoundSubject(vouched if member <= 1 + signers else bytes([member]) * 32, b"")

    site.carry(site.lies.server.open_session(EVERYBODY), signed)
    assert (site.lies.terms.threshold, site.run.replica.digest) == (3, (vouched if believed else held))
    if not believed:
        start, subject = site.about(state)
        assert site.reason_of(start, subject=subject) is RefusalReason.SECAGG_STATE
    site.answers.close()


def test_a_site_that_was_sent_nothing_declines_a_session_whose_members_hold_another_state(tmp_path: Path) -> None:
    site = LiedTo(tmp_path)
    site.rounds += 1
    theirs = RoundSubject(later(site).digest(PLAN), b"")
    site.carry(site.lies.server.open_session(EVERYBODY), lambda _: theirs)
    assert [refusal.reason for refusal in site.refusals] == [RefusalReason.SECAGG_STATE]
    assert site.answers._participant.session is None
    site.answers.close()


# ---- an aggregator that sends anything as a state: it is refused in words, or a run can continue from it
# Nothing of a state that was sent is believed because of its bytes. But a site reads them before it knows whether
# to believe them, so they must neither end it with a traceback nor put it where no run of its plan can be.


def plan_with(output: str, method: str) -> Plan:
    plan = small(output=output)
    way = {"method": "exact" if "exact" in method else "histogram"}
    way |= {"slices": SlicesSection(bins=2, outcomes=True) if "slices" in method else None}
    way |= {"release_audit": ReleaseAuditSection() if "audit" in method else None}
    return plan.model_copy(update={"evaluation": plan.evaluation.model_copy(update=way)})


def states_of(plan: Plan, folder: Path) -> tuple[RunRules, list[RunState]]:
    """Return the rules of a run and every state that it comes to, from the first to the last."""
    found: list[RunState] = []
    run = played(plan, folder, lambda _, training_run, __: found.append(training_run.state)).training_run
    return run.rules, [run.initial, *found]


@pytest.mark.parametrize("method", ["histogram", "exact", "slices", "slices, audit"])
@pytest.mark.parametrize("output", ["last", "best", "average"])
def test_every_state_that_a_run_comes_to_is_taken_from_the_others(
    tmp_path: Path, output: str, method: str
) -> None:
    rules, states = states_of(plan_with(output, method), tmp_path)
    assert {state.stage for state in states} >= {Purpose.STANDARDISATION, Purpose.EVALUATION, Purpose.TRAINING}
    assert (Purpose.EXACT_EVALUATION in {state.stage for state in states}) == (method == "exact")
    searches = {state.slices.number for state in states if state.slices is not None}
    assert searches == ({1, 2, 3, 4} if "slices" in method else set())
    assert [Purpose.RELEASE_AUDIT.value in state.kept for state in states].count(True) == ("audit" in method)
    for state in states:
        assert rules.may_be(state)
        if state.slices is not None:
            # A search belongs to its stage, unless it is over; then its stage is.
            assert not rules.may_be(replace(state, slices=replace(state.slices, number=5 - state.slices.number)))
            assert not rules.may_be(replace(state, stage=Purpose.EVALUATION))
            assert not rules.may_be(replace(state, slices=states[-1].slices, stage=Purpose.SLICES))
            kept = {Purpose.RELEASE_AUDIT.value: KeptSum(np.zeros(3), ("a",))}
            assert not rules.may_be(replace(state, kept=kept))
        if rules.may_skip(state):
            assert rules.may_be(rules.skip(state, "nobody came"))
        if state.stage is Purpose.RELEASE_AUDIT:
            # An audit that nobody comes to takes nothing of what was found before.
            assert rules.skip(state, "nobody came").slices is state.slices


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path, list[bytes]]:
    folder, plan = tmp_path_factory.mktemp("run"), plan_with("average", "exact, then slices")
    _, states = states_of(plan, folder)
    kept = (states[1], states[4], states[-5], *states[-3:])
    return plan, folder, [b"".join(pack_state(state)) for state in kept]


def replica_of(plan: Plan, folder: Path) -> RunReplica:
    binding = plan_binding(plan, folder)
    return RunReplica(TrainingRun(plan, binding.layout, binding.schema, binding.vector), PLAN_DIGEST, Unkept())


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=70),
    st.lists(st.integers(-3, 2**33), max_size=4), st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the way to every value in a JSON document."""
    found = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        found += places(child, (*path, key))
    return found


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_state_with_anything_else_in_its_words_is_refused_in_words_or_is_one_to_go_on_from(
    sound: tuple[Plan, Path, list[bytes]], data: st.DataObject
) -> None:
    plan, folder, packed = sound
    raw = data.draw(st.sampled_from(packed))
    (length,) = struct.unpack_from("<Q", raw)
    header = copy.deepcopy(json.loads(raw[8 : 8 + length]))
    path = data.draw(st.sampled_from(places(header)))
    inside: object = header
    for key in path[:-1]:
        inside = inside[key]  # type: ignore[index]
    inside[path[-1]] = data.draw(ANYTHING)  # type: ignore[index]
    changed = json.dumps(header).encode()
    taken(replica_of(plan, folder), struct.pack("<Q", len(changed)) + changed + raw[8 + length :])


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_state_with_flipped_or_missing_bytes_is_refused_in_words_or_is_one_to_go_on_from(
    sound: tuple[Plan, Path, list[bytes]], data: st.DataObject
) -> None:
    plan, folder, packed = sound
    raw = bytearray(data.draw(st.sampled_from(packed)))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    taken(replica_of(plan, folder), bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def taken(replica: RunReplica, raw: bytes) -> None:
    """Send a state to a site that takes it on the aggregator's word, and let it say what it would do next."""
    before = replica.digest
    try:
        replica.offer(raw)
    except OutOfStepError:
        assert replica.digest == before
        return
    replica.trust()
    state = replica.state
    assert replica.rules.may_be(state)
    assert (replica.rules.next_request(state) is None) == (state.stage is FinalStage.FINISHED)
    np.testing.assert_equal(state.digest(PLAN_DIGEST), replica.digest)
    replica.finish()
