"""Masked sums in any order that hypothesis can think of: drop-outs, restarts, deadlines, messages that wait."""

import hashlib
import secrets
from collections import defaultdict

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.rounds import events
from fedfair.rounds.phases import Phase
from fedfair.run.packed_state import pack_state
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.effects import Log, Remember, ReplaceLog, Send, SiteEffect
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.participant import Participant
from fedfair.statistics.table import Purpose
from tests.rounds.masked_play import PLAN_DIGEST, Play, make_plan

NAMES = tuple(ParticipantId(f"clinic-{letter}") for letter in "abcd")
QUORUM = 3
CHANGE = 0.5
LATEST = 40


class WaitingPlay(Play):
    """A federation whose messages wait until somebody delivers them; sites keep logs and can be killed."""

    def __init__(self, plan: Plan | None = None) -> None:
        super().__init__(plan or make_plan(4, quorum=QUORUM, rounds=3, every=2, clip=1.0))
        self.logs: dict[ParticipantId, bytes] = defaultdict(bytes)
        self.remembered: dict[ParticipantId, dict[bytes, bytes]] = defaultdict(dict)
        self.waiting: dict[ParticipantId, list[bytes]] = defaultdict(list)
        self.said_of: dict[tuple[ParticipantId, Kind, bytes], set[bytes]] = defaultdict(set)
        self.sent: list[events.MessageArrived] = []
        self.draws = 0
        self.moved: list[tuple[np.ndarray, events.Report]] = []
        self.states = {self.training_run.state.digest(PLAN_DIGEST)}

    def tell(self, event: events.Event) -> None:
        before = self.training_run.model.vector.copy()
        for effect, state in self.received(event):
            self.states.add(state.digest(PLAN_DIGEST))
            self.effects.append(effect)
            match effect:
                case events.SendSum(participant):
                    self.questions[participant] = effect
                case events.SendState(participant):
                    self.copies[participant].offer(b"".join(pack_state(state)))
                case events.SendMessage(participant, message, vector):
                    self.vectors[message] = vector
                    self.waiting[participant].append(message)
                case events.SetDeadline(token, seconds):
                    self.deadlines[token] = seconds
                case events.CancelDeadline(token):
                    self.deadlines.pop(token, None)
                case events.Refuse():
                    raise AssertionError(f"an honest site was sent away: {effect.message}")
                case events.Suspected():
                    raise AssertionError(f"an honest site accuses another: {effect.reason}")
                case events.Report():
                    self.moved.append((self.training_run.model.vector - before, effect))

    def deliver(self, name: ParticipantId) -> None:
        """Hand a site the oldest message that waits for it, and the federation what the site says to it."""
        message, question = self.waiting[name].pop(0), self.questions[name]
        try:
            sends = self.carry_out(name, self.heard(name, message))
        except SecaggError as refusal:
            self.tell(events.Abstained(name, question.sum_number, refusal.message, accused=refusal.accused))
            return
        for send in sends:
            self.note(name, send)
            self.sent.append(events.MessageArrived(name, send.message, send.vector))
            self.tell(self.sent[-1])

    def note(self, name: ParticipantId, send: Send) -> None:
        """Remember what a site said about which round; T_r is in front of an upload, a vote and an answer."""
        kind = kind_of(send.message)
        if kind in (Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES):
            said = hashlib.sha256(send.message + bytes(send.vector)).digest()
            self.said_of[name, kind, send.message[2:34]].add(said)

    def carry_out(self, name: ParticipantId, effects: list[SiteEffect]) -> list[Send]:
        for effect in effects:
            if isinstance(effect, ReplaceLog):
                self.logs[name] = b"".join(effect.parts)
            elif isinstance(effect, Log):
                self.logs[name] += b"".join(effect.parts)
            elif isinstance(effect, Remember):
                self.remembered[name].update(effect.rows)
        return super().carry_out(name, effects)

    def update(self, name: ParticipantId, number: int, purpose: str) -> Update:
        self.draws += 1
        made = super().update(name, number, purpose)
        # As fresh batches are: no two updates of a site are alike.
        fresh = np.array([0.0, 1e-9 * self.draws]) if purpose == Purpose.TRAINING.value else made.header
        return Update(fresh, made.body, made.weight)

    def kill(self, name: ParticipantId) -> None:
        old = self.sites[name]._site
        self.sites[name] = Participant(old, secrets.token_bytes, self.logs[name], self.remembered[name])
        self.copies[name] = self.copy(name)

    def connect(self, name: ParticipantId) -> None:
        self.waiting[name].clear()
        super().connect(name)

    def disconnect(self, name: ParticipantId) -> None:
        self.waiting[name].clear()
        self.tell(events.Disconnected(name))


class MaskedInAnyOrder(RuleBasedStateMachine):
    """Four honest sites, a quorum of three, and a network without manners.

    Failure conditions, written first: somebody is counted twice or in part; a sum is opened over fewer than the
    quorum; the model changes otherwise than by a whole total; a site's copy comes to a state in which the run
    never was; a site says two different things about one round; an honest site is sent away; the run hangs without
    a deadline.
    """

    @initialize()
    def begin(self) -> None:
        self.play = WaitingPlay()
        self.seen = 0
        self.play.tell(events.Started())
        for name in NAMES:
            self.play.connect(name)

    def running(self) -> bool:
        return self.play.federation.phase not in (Phase.FINISHED, Phase.ABORTED)

    def reachable(self) -> list[ParticipantId]:
        return [name for name in self.play.federation.connected if self.play.waiting[name]]

    @precondition(lambda self: self.reachable())
    @rule(data=st.data())
    def deliver_one(self, data: st.DataObject) -> None:
        self.play.deliver(data.draw(st.sampled_from(self.reachable())))

    @precondition(lambda self: self.reachable())
    @rule(times=st.integers(5, 40))
    def deliver_many(self, times: int) -> None:
        for _ in range(times):
            if self.reachable():
                self.play.deliver(self.reachable()[0])

    def old(self) -> list[events.MessageArrived]:
        return [said for said in self.play.sent[-LATEST:] if said.participant in self.play.federation.connected]

    @precondition(lambda self: self.old())
    @rule(data=st.data())
    def deliver_something_old(self, data: st.DataObject) -> None:
        """A site is slow, and the others have gone on meanwhile: what it says comes too late, and is no lie."""
        self.play.tell(data.draw(st.sampled_from(self.old())))

    @precondition(lambda self: self.running() and self.play.federation.connected)
    @rule(data=st.data(), killed=st.booleans())
    def lose(self, data: st.DataObject, killed: bool) -> None:
        name = data.draw(st.sampled_from(self.play.federation.connected))
        self.play.disconnect(name)
        if killed:
            self.play.kill(name)

    @precondition(lambda self: self.running() and len(self.play.federation.connected) < len(NAMES))
    @rule()
    def let_everybody_in(self) -> None:
        for name in NAMES:
            if name not in self.play.federation.connected:
                self.play.connect(name)

    @precondition(lambda self: self.running())
    @rule(name=st.sampled_from(NAMES))
    def connect_again(self, name: ParticipantId) -> None:
        self.play.connect(name)

    @precondition(lambda self: self.play.deadlines)
    @rule(data=st.data(), give_up=st.integers(0, 9))
    def let_a_deadline_pass(self, data: st.DataObject, give_up: int) -> None:
        token = data.draw(st.sampled_from(tuple(self.play.deadlines)))
        # A join deadline mostly ends the run; most runs should see more than that.
        if token.kind is not events.DeadlineKind.JOIN or give_up == 0:
            del self.play.deadlines[token]
            self.play.tell(events.DeadlinePassed(token))

    @precondition(lambda self: not self.running())
    @rule(name=st.sampled_from(NAMES))
    def say_more_after_the_end(self, name: ParticipantId) -> None:
        assert self.play.federation.receive(events.Connected(name)) == []

    @invariant()
    def every_total_is_of_whole_sites_each_once(self) -> None:
        for change, report in self.play.moved[self.seen :]:
            progress = report.progress
            assert progress.contributors >= QUORUM
            if progress.purpose is Purpose.EVALUATION:
                assert progress.evaluation.splits["train"].n == progress.contributors
                continue
            # Each site in the sum moves its own coordinate by CHANGE / contributors; the error of a mean is below
            # n C W 2^-f / contributors, with n <= 4, C = 1, W = 16 and f >= 28.
            error = 4 * 16 * 2.0**-28 / progress.contributors
            counts = change[:4] * progress.contributors / CHANGE
            assert np.abs(counts - np.rint(counts)).max() <= error * progress.contributors / CHANGE
            assert set(np.rint(counts)) <= {0.0, 1.0}
            assert np.rint(counts).sum() == progress.contributors
            assert abs(change[4]) <= error
        self.seen = len(self.play.moved)

    @invariant()
    def nobody_says_two_things_about_one_round(self) -> None:
        assert all(len(said) == 1 for said in self.play.said_of.values())

    @invariant()
    def every_site_holds_a_state_in_which_the_run_was(self) -> None:
        assert {copy.digest for copy in self.play.copies.values()} <= self.play.states

    @invariant()
    def a_run_that_goes_on_has_a_deadline(self) -> None:
        assert bool(self.play.deadlines) == self.running()


MaskedInAnyOrder.TestCase.settings = settings(
    deadline=None, max_examples=15, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
test_masked_sums_survive_any_order_of_events = MaskedInAnyOrder.TestCase
