"""The aggregator is killed at every message, and the run ends as if nothing had happened: no sum is made twice.

The sites contribute the same update whenever they are asked about the same model, as with full batches, so a round
that is repeated instead of opened again would be refused.
"""

import re
import secrets
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fedfair.aggregation.running_sum import PlainSum
from fedfair.ids import ParticipantId
from fedfair.news.run import waiting_words
from fedfair.plan.schema import Plan
from fedfair.rounds import events
from fedfair.rounds.federation import Federation
from fedfair.rounds.phases import Phase
from fedfair.rounds.secagg_session import SecaggSession, is_due
from fedfair.rounds.state_steps import LastOpened
from fedfair.run.snapshot import RunSnapshot
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.effects import Send
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.round_record import RoundRecord
from fedfair.statistics.table import Purpose
from tests.rounds.masked_play import LAYOUT, PLAN_DIGEST, SCHEMA, make_plan
from tests.rounds.test_masked_federation_in_any_order import WaitingPlay

A, B, C, D = (ParticipantId(f"clinic-{letter}") for letter in "abcd")


SET_UP = 12
"""By then every site has its keys. One that was to have them from a process that is gone misses a sum."""

Silence = frozenset[tuple[ParticipantId, Kind, int]]
"""Messages that are lost on their way: of whom, of which kind, and after how many rounds."""


def copied(training_run: TrainingRun) -> RunSnapshot:
    """Return what a journal would hold of a training run."""
    snapshot = training_run.snapshot()
    return RunSnapshot(snapshot.state, {name: vector.copy() for name, vector in snapshot.vectors.items()})


class Restarting(WaitingPlay):
    """A federation whose aggregator can be killed; what its journal holds is all that the next one knows."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.written = copied(self.training_run)
        self.unfinished: events.UnfinishedSum | None = None
        self.opened_last: LastOpened | None = None
        self.messages = 0
        self.notes: list[str] = []

    def tell(self, event: events.Event) -> None:
        known = len(self.effects)
        super().tell(event)
        for effect in self.effects[known:]:
            match effect:
                case events.Report():
                    self.written, self.opened_last = copied(self.training_run), self.federation.steps.last
                case events.SaveUnfinished(unfinished):
                    self.unfinished = unfinished
                case events.SumLost(reason=reason):
                    self.notes.append(reason)

    def restart(self) -> None:
        """Kill the aggregator and start it again from its journal."""
        self.training_run = TrainingRun(self.plan, LAYOUT, SCHEMA, np.zeros(5))
        self.training_run.restore(self.written)
        unfinished = (
            self.unfinished
            if self.unfinished and is_due(self.unfinished, PLAN_DIGEST, self.training_run)
            else None
        )
        if unfinished is None and self.training_run.next_sum() is not None:
            self.training_run.retry()
        protection = SecaggSession(self.plan, PLAN_DIGEST, LAYOUT, SCHEMA, secrets.token_bytes, lambda: 0.0)
        last = self.federation.sum_number + 1000
        self.federation = Federation(
            self.plan,
            self.training_run,
            PlainSum,
            PLAN_DIGEST,
            protection=protection,
            last_sum_number=last,
            unfinished=unfinished,
            opened=self.opened_last,
        )
        self.deadlines.clear()
        for name in self.names:
            self.waiting[name].clear()

    def begin(self) -> None:
        self.tell(events.Started())
        for name in self.names:
            self.connect(name)

    def update(self, name: ParticipantId, number: int, purpose: str) -> Update:
        """Return what depends on nothing but the model, as with full batches."""
        del number
        made = super(WaitingPlay, self).update(name, 1, purpose)
        header = np.zeros(2) if purpose == "training" else made.header
        return Update(header, made.body, made.weight)

    def play(self, kill_at: int = 0, *, sites_too: bool = False, silent: Silence = frozenset()) -> None:
        """Deliver every message; kill the aggregator when the message of that number arrives."""
        while self.federation.phase not in (Phase.FINISHED, Phase.ABORTED):
            reachable = [name for name in self.federation.connected if self.waiting[name]]
            if not reachable:
                self.pass_deadline(next(iter(self.deadlines)).kind)
                continue
            self.deliver_one(reachable[0], kill_at, sites_too=sites_too, silent=silent)
        for name in self.federation.connected:  # The last sum is on its way still.
            while self.waiting[name]:
                assert self.said_to(name, self.waiting[name].pop(0)) == []

    def deliver_one(self, name: ParticipantId, kill_at: int, *, sites_too: bool, silent: Silence) -> None:
        message = self.waiting[name].pop(0)
        for send in self.said_to(name, message):
            self.messages += 1
            self.note(name, send)
            if (name, kind_of(send.message), self.training_run.rounds_done) in silent:
                continue
            if self.messages == kill_at:
                self.restart()
                if sites_too:
                    for each in self.names:
                        self.kill(each)
                self.begin()
                return
            self.tell(events.MessageArrived(name, send.message, send.vector))

    def said_to(self, name: ParticipantId, message: bytes) -> list[Send]:
        question = self.questions[name]
        try:
            return self.carry_out(name, self.heard(name, message))
        except SecaggError as refusal:
            self.tell(events.Abstained(name, question.sum_number, refusal.message, accused=refusal.accused))
            return []

    def sums(self) -> list[tuple[str, int, int]]:
        """Return purpose, round and contributors of every sum that was taken by a process that wrote it down."""
        reports = [effect.progress for effect in self.effects if isinstance(effect, events.Report)]
        return [(each.purpose.value, each.round, each.contributors) for each in reports]

    def model(self) -> tuple[bytes, float]:
        return self.training_run.model.vector.tobytes(), self.training_run.model.threshold

    def survivors(self) -> tuple[int, ...]:
        """Return the survivors of the sum under way, as far as the journal knows them."""
        return () if self.unfinished is None else RoundRecord.decode(self.unfinished.record).survivors

    def opened(self) -> int:
        """Return how many rounds of secure aggregation were answered by anybody."""
        return len({transcript for _, kind, transcript in self.said_of if kind is Kind.UNMASK_SHARES})


def played(plan: Plan, kill_at: int = 0, *, sites_too: bool = False, silent: Silence = frozenset()) -> Restarting:
    """Return a run that was played to its end."""
    play = Restarting(plan)
    play.begin()
    play.play(kill_at, sites_too=sites_too, silent=silent)
    return play


NOTHING_LOST: Silence = frozenset()
AN_UPLOAD_LOST: Silence = frozenset({(D, Kind.UPLOAD, 1)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quorum", "silent", "messages"),
    [(None, NOTHING_LOST, 56), (3, NOTHING_LOST, 56), (3, AN_UPLOAD_LOST, 61)],
    ids=["nobody may be missing", "one may be missing", "one is missing"],
)
def test_an_aggregator_killed_at_any_message_ends_alike(
    quorum: int | None, silent: Silence, messages: int
) -> None:
    plan = make_plan(4, quorum=quorum, rounds=3, every=2, clip=1.0)
    undisturbed = played(plan, silent=silent)
    assert (undisturbed.federation.phase, undisturbed.messages) == (Phase.FINISHED, messages)
    for kill_at in range(1 + messages % 3, messages + 1, 3):
        play = played(plan, kill_at, silent=silent)
        assert play.federation.phase is Phase.FINISHED, (kill_at, play.effects[-1])
        assert play.model() == undisturbed.model(), kill_at
        assert play.is_in_step(), kill_at
        if quorum is None or kill_at > SET_UP:
            assert play.sums() == undisturbed.sums(), kill_at
            assert play.opened() == undisturbed.opened(), f"a sum was made twice (message {kill_at})"
        assert all(len(said) == 1 for said in play.said_of.values())


@pytest.mark.slow
def test_an_aggregator_and_every_site_killed_at_any_message_still_end_with_the_same_model() -> None:
    plan = make_plan(4, rounds=3, every=2, clip=1.0)
    undisturbed = played(plan)
    for kill_at in range(2, undisturbed.messages + 1, 3):
        play = played(plan, kill_at, sites_too=True)
        assert play.federation.phase is Phase.FINISHED, (kill_at, play.effects[-1])
        assert play.model() == undisturbed.model(), kill_at
        assert play.is_in_step(), kill_at
        assert play.sums() == undisturbed.sums(), kill_at
        assert all(len(said) == 1 for said in play.said_of.values())


def interrupted(silent: Silence, *, quorum: int | None = None) -> Restarting:
    """Return a run whose second training sum lacks answers, after every site that may answer has done so."""
    play = Restarting(make_plan(4, quorum=quorum, rounds=3, every=2, clip=1.0))
    play.begin()
    while not play.notes:
        reachable = [name for name in play.federation.connected if play.waiting[name]]
        if reachable:
            play.deliver_one(reachable[0], 0, sites_too=False, silent=silent)
        else:
            play.pass_deadline(next(iter(play.deadlines)).kind)
    return play


TWO_ANSWERS_LOST: Silence = frozenset({(C, Kind.UNMASK_SHARES, 1), (D, Kind.UNMASK_SHARES, 1)})


def test_a_sum_that_lacks_answers_is_opened_again_for_the_same_survivors() -> None:
    undisturbed = played(make_plan(4, rounds=3, every=2, clip=1.0))
    play = interrupted(TWO_ANSWERS_LOST)
    assert play.notes == ["2 answers, 3 are needed"]
    play.play()
    assert (play.federation.phase, play.model()) == (Phase.FINISHED, undisturbed.model())
    assert play.opened() == undisturbed.opened(), "the sites answered the very same round"
    assert all(len(said) == 1 for said in play.said_of.values())


def test_a_reopened_sum_that_loses_a_survivor_again_names_those_who_were_never_in_it() -> None:
    lost = frozenset({(D, Kind.UPLOAD, 1), (B, Kind.UNMASK_SHARES, 1), (C, Kind.UNMASK_SHARES, 1)})
    play = interrupted(lost, quorum=3)
    play.play(silent=frozenset({(B, Kind.UPLOAD, 1)}))  # Of the three that are asked again.
    assert play.federation.phase in (Phase.FINISHED, Phase.ABORTED)
    assert all(len(said) == 1 for said in play.said_of.values())


def killed_after_the_uploads() -> Restarting:
    """Return a run whose aggregator was killed in round 2, after the uploads, and is back with three of four."""
    play = Restarting(make_plan(4, quorum=3, rounds=3, every=2, clip=1.0))
    play.begin()
    while not (play.training_run.rounds_done and play.survivors()):
        name = next(name for name in play.names if play.waiting[name])
        play.deliver_one(name, 0, sites_too=False, silent=frozenset())
    play.restart()
    play.tell(events.Started())
    for name in (A, B, C):
        play.connect(name)
    return play


def test_an_interrupted_sum_waits_for_its_survivors_and_says_for_whom_and_why() -> None:
    play = killed_after_the_uploads()
    assert play.federation.phase is Phase.WAITING
    waiting = [effect for effect in play.effects if isinstance(effect, events.Waiting)][-1]
    assert (waiting.missing, waiting.present, waiting.total, waiting.needed) == ((D,), 3, 4, 4)
    assert (waiting.only, waiting.reopens, waiting.then) == ((A, B, C, D), True, events.AfterWaiting.REPEAT)
    assert (waiting.request.purpose, waiting.request.round) == (Purpose.TRAINING, 2)
    undisturbed = played(make_plan(4, quorum=3, rounds=3, every=2, clip=1.0))
    play.connect(D)
    play.play()
    assert (play.federation.phase, play.model()) == (Phase.FINISHED, undisturbed.model())


WHO = "clinic-a, clinic-b, clinic-c, clinic-d"


@pytest.mark.parametrize(
    ("messages", "needed", "what", "then"),
    [
        (23, 3, f"training sum of round 2 .* and {WHO} can", "ending the run, which resumes when"),
        (28, 4, f"training sum of round 2 .* and only {WHO} together", "ending the run, which resumes when"),
        (36, 4, f"evaluation sum of round 2 .* only {WHO} together", "omitting the evaluation sum of round 2"),
    ],
    ids=["before all have uploaded", "after the uploads", "after the uploads of an evaluation"],
)
def test_the_operator_is_told_who_can_open_an_interrupted_sum_and_what_follows_without_them(
    messages: int, needed: int, what: str, then: str
) -> None:
    play = Restarting(make_plan(4, quorum=3, rounds=3, every=2, clip=1.0))
    play.begin()
    while play.messages < messages:
        name = next(name for name in play.names if play.waiting[name])
        play.deliver_one(name, 0, sites_too=False, silent=frozenset())
    play.restart()
    play.tell(events.Started())
    for name in (A, B):
        play.connect(name)
    waiting = [effect for effect in play.effects if isinstance(effect, events.Waiting)][-1]
    now = datetime(2031, 5, 6, 3, 5, 14, tzinfo=UTC)
    words = waiting_words(waiting, now + timedelta(minutes=10), now)
    present, until = f"2 of 4 sites are here, {needed} are needed", "clinic-c, clinic-d until 03:15:14 UTC, then"
    assert re.search(f"{present}.* {what}.* {until} {then}", words), words


def test_an_interrupted_sum_is_repeated_where_a_survivor_does_not_come_back() -> None:
    play = killed_after_the_uploads()
    play.pass_deadline(events.DeadlineKind.JOIN)
    (lost,) = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert lost.reason == (
        "the training sum of round 2 was interrupted, and only clinic-a, clinic-b, clinic-c, clinic-d together "
        "can open it from what they have sent; the join deadline has passed without clinic-d"
    )
    assert (play.federation.request.attempt, play.federation.waiting_for) == (2, (A, B, C))
