"""Everything that can happen to a federation, in any order that hypothesis can think of."""

import contextlib

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedfair.errors import LocalProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.rounds import events
from tests.rounds.rounds_play import ENDED, NAMES, Play, plan_of, state_of

members = st.sampled_from(NAMES)


class AnyOrder(RuleBasedStateMachine):
    """Four collaborators, a quorum of one, two or all, and no manners at all.

    Failure conditions, written first: somebody is counted twice or though its upload was not accepted; a round
    advances with fewer uploads than the quorum; the model changes otherwise than by a total; a sum number returns;
    something is emitted after the end; the model differs from a plain loop over the same survivors. `Play` checks
    the third to fifth while it carries out effects.
    """

    @initialize(
        minimum=st.sampled_from([1, 2, 4]),
        standardize=st.sampled_from(["none", "secure"]),
        output=st.sampled_from(["last", "average", "best"]),
        attempts=st.sampled_from([2, 10]),
        present=st.sets(members, min_size=2),
    )
    def begin(
        self, minimum: int, standardize: str, output: str, attempts: int, present: set[ParticipantId]
    ) -> None:
        self.play = Play(
            plan_of(4, minimum, rounds=4, every=2, output=output, standardize=standardize, attempts=attempts)
        )
        self.asked_before: list[tuple[ParticipantId, SumNumber]] = []
        self.rounds = 0
        self.play.start(*(who for who in NAMES if who in present))

    def connected(self) -> tuple[ParticipantId, ...]:
        return self.play.federation.connected

    def running(self) -> bool:
        return self.play.federation.phase not in ENDED

    @rule(who=members)
    def connect(self, who: ParticipantId) -> None:
        self.play.connect(who)

    @rule()
    def let_everybody_in(self) -> None:
        self.play.connect(*(who for who in NAMES if who not in self.connected()))

    @precondition(lambda self: self.running() and self.connected())
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.play.disconnect(data.draw(st.sampled_from(self.connected())))

    @precondition(lambda self: self.running() and self.play.asked)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self._answer(data.draw(st.sampled_from(tuple(self.play.asked))))

    @precondition(lambda self: self.running() and self.play.asked)
    @rule(times=st.integers(1, 10))
    def answer_honestly(self, times: int) -> None:
        """Let those who are waited for, and connected, answer one after the other."""
        for _ in range(times):
            expected = [who for who in self.play.federation.waiting_for if who in self.play.asked]
            if self.running() and expected:
                self._answer(expected[0])

    def _answer(self, who: ParticipantId) -> None:
        self.asked_before.append((who, self.play.asked[who].sum_number))
        self.play.upload(who)

    @precondition(lambda self: self.running() and self.asked_before)
    @rule(data=st.data())
    def answer_again(self, data: st.DataObject) -> None:
        who, number = data.draw(st.sampled_from(self.asked_before))
        if who in self.connected():
            self.play.answer(who, number)

    @precondition(lambda self: self.running() and self.play.requests and self.connected())
    @rule(data=st.data())
    def answer_any_sum(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.play.requests)))
        self.play.answer(data.draw(st.sampled_from(self.connected())), number)

    @precondition(lambda self: self.running() and self.connected())
    @rule(data=st.data(), ahead=st.integers(1, 3), payload=st.binary(max_size=60))
    def invent_a_sum(self, data: st.DataObject, ahead: int, payload: bytes) -> None:
        who = data.draw(st.sampled_from(self.connected()))
        number = SumNumber(self.play.federation.sum_number + ahead)
        (refusal, *_) = self.play.tell(events.UploadArrived(who, number, payload))
        assert isinstance(refusal, events.Refuse)

    @precondition(lambda self: self.running() and self.play.asked)
    @rule(data=st.data(), payload=st.binary(max_size=40) | st.just(np.full(6, np.nan).tobytes()))
    def upload_rubbish(self, data: st.DataObject, payload: bytes) -> None:
        who = data.draw(st.sampled_from(tuple(self.play.asked)))
        self.play.tell(events.UploadArrived(who, self.play.asked[who].sum_number, payload))

    @precondition(lambda self: self.running() and self.play.asked)
    @rule(data=st.data())
    def abstain(self, data: st.DataObject) -> None:
        who, leaving = data.draw(st.sampled_from(tuple(self.play.asked))), data.draw(st.booleans())
        self.play.abstain(who, leaving=leaving)

    @precondition(lambda self: self.running() and self.connected())
    @rule(data=st.data())
    def misbehave(self, data: st.DataObject) -> None:
        self.play.tell(events.Misbehaved(data.draw(st.sampled_from(self.connected())), "broken frame", ""))

    @precondition(lambda self: self.play.deadlines)
    @rule(data=st.data(), give_up=st.integers(0, 9))
    def let_a_deadline_pass(self, data: st.DataObject, give_up: int) -> None:
        token = data.draw(st.sampled_from(tuple(self.play.deadlines)))
        hopeless = len(self.connected()) < self.play.quorum
        # A join deadline without a quorum ends the run; most runs should see more than that.
        if not (token.kind is events.DeadlineKind.JOIN and hopeless and give_up):
            self.play.tell(events.DeadlinePassed(token))

    @precondition(lambda self: self.play.cancelled)
    @rule(data=st.data())
    def let_a_cancelled_deadline_fire(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.play.cancelled))
        assert self.play.tell(events.DeadlinePassed(token)) == []

    @precondition(lambda self: self.running())
    @rule(who=members)
    def report_what_cannot_be(self, who: ParticipantId) -> None:
        impossible: list[events.Event] = [
            events.Started(),
            events.Connected(ParticipantId("stranger")),
            events.DeadlinePassed(events.DeadlineToken(events.DeadlineKind.SUM, 10**6)),
        ]
        if who not in self.connected():
            impossible.append(events.UploadArrived(who, self.play.federation.sum_number, b""))
        before = state_of(self.play.federation, self.play.training_run)
        for event in impossible:
            # A stream that was refused may still speak; that is heard by nobody and is no fault of ours.
            with contextlib.suppress(LocalProtocolError):
                assert self.play.federation.receive(event) == []
            assert state_of(self.play.federation, self.play.training_run) == before

    @rule(really=st.integers(0, 49))
    def stop(self, really: int) -> None:
        if really == 0:
            self.play.tell(events.StopRequested("enough"))

    @invariant()
    def nobody_is_counted_twice_or_unaccepted(self) -> None:
        for number, running in self.play.running.items():
            accepted = self.play.accepted.get(number, set())
            if not accepted:
                assert running._contributors == 0
            elif self.play.requests[number].purpose.value != "standardisation":
                indicator = [float(who in accepted) for who in NAMES]
                assert self.play.counted_in(number).tolist() == indicator
            else:
                assert running.totals().header[0] == len(accepted)

    @invariant()
    def a_round_advances_only_with_a_quorum(self) -> None:
        for outcome, number in self.play.story:
            accepted = self.play.accepted.get(number, set())
            assert outcome != "absorbed" or len(accepted) >= self.play.quorum
        assert self.play.training_run.rounds_done >= self.rounds
        self.rounds = self.play.training_run.rounds_done

    @invariant()
    def an_open_sum_has_a_deadline_and_so_has_every_wait(self) -> None:
        assert bool(self.play.deadlines) == self.running()

    def teardown(self) -> None:
        if not hasattr(self, "play"):
            return
        replay, training_run = self.play.replayed(), self.play.training_run
        assert replay.model.vector.tobytes() == training_run.model.vector.tobytes()
        assert replay.model.threshold == training_run.model.threshold
        assert replay.rounds_done == training_run.rounds_done
        assert (len(replay.history), replay.left_out) == (len(training_run.history), training_run.left_out)


AnyOrder.TestCase.settings = settings(
    deadline=None, max_examples=50, stateful_step_count=70, suppress_health_check=[HealthCheck.too_slow]
)
test_a_federation_survives_any_order_of_events = pytest.mark.slow(AnyOrder.TestCase)
