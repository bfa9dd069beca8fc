"""A federation whose sums are masked, played in memory: real participants, one `Federation`, no socket."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collaborator.preparation import masking_policy
from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.masking_terms import check_protection, guarantee, roster_of, session_plan, session_terms
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.round_subject import SumKey, round_subject
from fedfair.aggregation.running_sum import PlainSum
from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.public_keys import format_public_key
from fedfair.plan.purpose import Purpose
from fedfair.plan.schema import Plan, SecureAggregationSection
from fedfair.policy.site_config import SitePolicy as SiteFile
from fedfair.rounds import events
from fedfair.rounds.federation import Federation
from fedfair.rounds.phases import Phase
from fedfair.rounds.secagg_session import RunIdentity, SecaggSession
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Contribute, Send, SiteEffect
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.participant import Participant
from fedfair.secagg.session import SessionSite
from fedfair.secagg.transcript import RoundSubject
from tests import plans
from tests.secagg.federation_in_memory import draws_of

LAYOUT = Layout([LayoutEntry("weight", (5,), True)], np.dtype(np.float64))
SCHEMA = FeatureSchema((2,), 2, (0, 1), ("a", "b"))
RUN = RunIdentity("0" * 32, bytes(32))
LAST_EVALUATION = (Purpose.EVALUATION, 2, 1)
"""Of a run of two rounds: its purpose, its round, and how many evaluations came before it."""


def keys(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def make_plan(
    count: int,
    *,
    quorum: int | None = None,
    colluders: int = 0,
    rounds: int = 4,
    every: int = 100,
    standardize: str = "none",
    **protection: object,
) -> Plan:
    names = [f"clinic-{letter}" for letter in "abcde"[:count]]
    roster = {name: format_public_key(keys(name).public_key().public_bytes_raw()) for name in names}
    return plans.parsed(
        names,
        federation={"roster": roster, "min_collaborators": quorum},
        task={"standardize": standardize},
        training={"rounds": rounds, "precision": "fp64"},
        secure_aggregation={"colluders": colluders, "most_records": 16, **protection},
        evaluation={"every": every, "bins": 8, "loss_range": 1.0},
    )


class Play:
    """Carries every message until nobody has anything to say."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.training_run = TrainingRun(plan, LAYOUT, SCHEMA, np.zeros(5))
        self.hours = 0.0
        protection = SecaggSession(plan, RUN, LAYOUT, SCHEMA, secrets.token_bytes, lambda: 3600 * self.hours)
        self.federation = Federation(plan, self.training_run, PlainSum, protection=protection)
        self.names = [ParticipantId(name) for name in plan.federation.collaborators]
        self.sites = {name: self.site(name) for name in self.names}
        self.said: list[tuple[ParticipantId, Kind]] = []
        self.effects: list[events.Effect] = []
        self.questions: dict[ParticipantId, events.SendSum] = {}
        self.vectors: dict[bytes, bytes] = {}
        self.deadlines: dict[events.DeadlineToken, int] = {}
        self.silent: Callable[[ParticipantId, Kind], bool] = lambda _name, _kind: False
        self.size: Callable[[int], float] = lambda _rounds_done: 0.5
        self.threshold: Callable[[], float] = lambda: 0.0

    def site(self, name: ParticipantId) -> Participant:
        member, shapes = self.names.index(name) + 1, sum_shapes(self.plan, LAYOUT, SCHEMA)
        policy = masking_policy(self.plan, SiteFile())
        agreed = session_plan(self.plan, RUN.plan_digest)
        site = SessionSite(member, roster_of(self.plan), keys(name), agreed, policy, shapes)
        return Participant(site, secrets.token_bytes)

    def tell(self, event: events.Event) -> None:
        pending = self.federation.receive(event)
        while pending:
            effect = pending.pop(0)
            self.effects.append(effect)
            match effect:
                case events.SendSum(participant):
                    self.questions[participant] = effect
                case events.SendMessage(participant, message, vector) if participant in self.federation.connected:
                    self.vectors[message] = vector
                    for answer in self.answers(participant, message):
                        pending += self.federation.receive(answer)
                case events.SetDeadline(token, seconds):
                    self.deadlines[token] = seconds
                case events.CancelDeadline(token):
                    self.deadlines.pop(token, None)

    def answers(self, name: ParticipantId, message: bytes) -> list[events.Event]:
        sends = self.carry_out(name, self.heard(name, message))
        self.said += [(name, kind_of(send.message)) for send in sends]
        return [
            events.MessageArrived(name, send.message, send.vector)
            for send in sends
            if not self.silent(name, kind_of(send.message))
        ]

    def heard(self, name: ParticipantId, message: bytes) -> list[SiteEffect]:
        """Return what a site does with a message and with the vector beside it."""
        vector = self.vectors.get(message, b"")
        return self.sites[name].receive(message, self.subject(name), vector=vector)

    def subject(self, name: ParticipantId) -> RoundSubject:
        request = self.questions[name].request
        key = SumKey(RUN.run_id, request.purpose, int(request.round), request.query)
        return round_subject(key, self.training_run.model, self.training_run.scaling)

    def carry_out(self, name: ParticipantId, effects: list[SiteEffect]) -> list[Send]:
        sends = []
        for effect in effects:
            match effect:
                case Contribute(number, purpose, _):
                    update = self.update(name, number, purpose)
                    sends += self.carry_out(name, self.sites[name].contribute(update, draws_of(update)))
                case Send():
                    sends.append(effect)
        return sends

    def update(self, name: ParticipantId, number: int, purpose: str) -> Update:
        """Return the unit vector of a site in training; one record with loss 0.5 in an evaluation."""
        if purpose == Purpose.TRAINING.value:
            body = np.zeros(5)
            body[self.names.index(name)] = self.size(self.training_run.rounds_done)
            return Update(np.array([self.threshold(), 1e-9 * number]), body, 1)
        if purpose == Purpose.STANDARDISATION.value:
            # One record (1, 2): three counts, the whole parts of two sums and two sums of squares, their rests.
            return Update(np.array([1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 4.0, 0.0, 0.0, 0.0, 0.0]), np.zeros(0), 1)
        counts = np.zeros(2 + 9)
        counts[[0, 1, 2 + 4]] = 1.0  # one record, correct, in bin 4 of 8
        reals = np.zeros(1 + 9)
        reals[[0, 1 + 4]] = 0.5
        matrices = np.zeros((3, 2, 2))
        matrices[0, 1, 1] = 1.0
        empty = np.concatenate([np.zeros(2 * (2 + 9)), matrices.ravel()])
        rests = np.concatenate([reals, np.zeros(20)])
        return Update(np.concatenate([counts, empty, np.zeros(30), rests]), np.zeros(0), 1)

    def begin(self) -> None:
        self.tell(events.Started())
        for name in self.names:
            self.tell(events.Connected(name))

    def pass_deadline(self, kind: events.DeadlineKind) -> None:
        token = next(token for token in self.deadlines if token.kind is kind)
        del self.deadlines[token]
        self.tell(events.DeadlinePassed(token))

    def set_ups(self) -> int:
        return sum(kind is Kind.KEY_ADVERTISEMENT and name == self.names[0] for name, kind in self.said)


def test_a_whole_run_needs_one_session_and_adds_everybodys_change() -> None:
    play = Play(make_plan(4))
    play.begin()
    assert play.federation.phase is Phase.FINISHED
    assert play.set_ups() == 1
    # The mean of four unit vectors times 0.5 is 0.125 in each coordinate; four rounds. The error of a mean is less
    # than n C W 2^-f / (sum of w) = 4 * 16 * 2^-28 / 4 in each round (f = 28: 4 * 2^28 <= 2^31 - 1).
    np.testing.assert_allclose(
        play.training_run.model.vector, 4 * np.array([0.125] * 4 + [0.0]), atol=4 * 16 * 2.0**-28
    )
    evaluation = play.training_run.result().evaluation
    assert evaluation is not None
    assert evaluation.splits["train"].mean == 0.5


def test_a_hybrid_session_adds_up_and_survives_a_drop_out() -> None:
    play = Play(make_plan(4, quorum=3, rounds=2, key_agreement="x25519-mlkem768"))
    play.silent = lambda name, kind: (
        name == "clinic-d" and kind is Kind.UPLOAD and play.training_run.rounds_done == 1
    )
    play.begin()
    play.pass_deadline(events.DeadlineKind.SUM)
    assert play.federation.phase is Phase.FINISHED
    # The bound of the test above, with 3 contributors in the second of two rounds.
    expected = np.array([0.125] * 4 + [0.0]) + np.array([0.5 / 3] * 3 + [0.0] * 2)
    np.testing.assert_allclose(play.training_run.model.vector, expected, atol=2 * 4 * 16 * 2.0**-28 / 3)


@pytest.mark.parametrize(
    "other",
    [
        {"key_agreement": "x25519"},
        {"mode": "semi-honest"},
        {"colluders": 0},
        {"colluders": 2},
        {"ring_bits": 16},
        {"most_records": 1 << 20},
        {"most_records": 1},
    ],
)
def test_an_aggregator_that_proposes_other_terms_than_the_plan_is_refused(other: dict[str, object]) -> None:
    plan = make_plan(5, key_agreement="x25519-mlkem768", colluders=1)
    approved = session_plan(plan, bytes(32))
    approved.check(bytes(32), session_terms(plan))
    stated = plan.secure_aggregation.model_dump() | other
    terms = session_terms(plan.model_copy(update={"secure_aggregation": SecureAggregationSection(**stated)}))
    with pytest.raises(SecaggError) as refusal:
        approved.check(bytes(32), terms)
    assert refusal.value.check is Check.POLICY


def test_the_automatic_clip_follows_the_changes_up_and_down_and_never_beyond_what_the_plan_allows() -> None:
    sizes = [0.5, 2.0**-10, 2.0**-10, 100.0, 100.0, 0.25]
    play = Play(make_plan(4, rounds=6, clip="auto", max_clip=64.0))
    play.size = sizes.__getitem__
    play.begin()
    assert play.federation.phase is Phase.FINISHED
    reports = [e for e in play.effects if isinstance(e, events.Report) and e.clipping is not None]
    clips = [e.clipping.clip for e in reports if e.clipping]
    # Four times the next power of two: 0.5 lies below 1 = 2^0, 2^-10 below 2^-9 and 100 below 128.
    assert clips == [1.0, 4.0, 2.0**-7, 2.0**-7, 64.0, 64.0]
    assert [e.clipping.clipped for e in reports if e.clipping] == [0, 0, 0, 4, 4, 0]
    assert play.federation.clip == 4 * 0.5
    # In each round the mean is off by less than n C W 2^-f / (sum of w), with f = 28 and a sum of weights of 4.
    counted = sum(min(size, clip) for size, clip in zip(sizes, clips, strict=True)) / 4
    bound = sum(4 * clip * 16 * 2.0**-28 / 4 for clip in clips)
    np.testing.assert_allclose(play.training_run.model.vector, np.array([counted] * 4 + [0.0]), atol=bound)


def test_a_total_that_is_refused_leaves_the_clip_where_it_was() -> None:
    play = Play(make_plan(4, rounds=2, clip="auto"))
    play.size = [0.25, 100.0].__getitem__
    # In their first upload all four move the threshold by 16, which no honest site does; each can have 1 at most.
    lies = iter([16.0] * 4)
    play.threshold = lambda: next(lies, 0.0)
    play.begin()
    assert play.federation.phase is Phase.FINISHED
    lost = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert ["would move the threshold by" in effect.reason for effect in lost] == [True]
    reports = [e.clipping for e in play.effects if isinstance(e, events.Report) and e.clipping is not None]
    # The refused total was over changes of 0.25, whose clip is 2; the second attempt still has the first one.
    assert [clipping.clip for clipping in reports] == [1.0, 2.0]


def test_an_aggregator_that_starts_again_goes_on_with_the_clip_it_had() -> None:
    def first_clip(**stated: object) -> float | None:
        return TrainingRun(make_plan(3, **stated), LAYOUT, SCHEMA, np.zeros(5)).state.clip

    assert first_clip(clip="auto") == 1.0
    assert first_clip(clip="auto", max_clip=0.5) == 0.5
    assert first_clip(clip=3.0) == 3.0
    play = Play(make_plan(4, rounds=2, clip="auto"))
    play.size = [0.5, 2.0**-10].__getitem__
    play.begin()
    again = TrainingRun(play.plan, LAYOUT, SCHEMA, np.zeros(5))
    again.restore(play.training_run.snapshot())
    assert again.state.clip == 2.0**-7


def test_a_round_whose_clip_is_beyond_what_a_site_approved_is_not_contributed_to() -> None:
    play = Play(make_plan(3, rounds=1, clip="auto", max_clip=2.0))
    assert play.federation._protection is not None
    play.training_run.state = replace(play.training_run.state, clip=4.0)
    with pytest.raises(SecaggError) as refusal:
        play.begin()
    assert refusal.value.check is Check.POLICY
    assert "a clip of 4, this site demands more than 0 and at most 2" in refusal.value.message


def test_a_session_ends_after_a_day() -> None:
    play = Play(make_plan(3, rounds=2))
    play.silent = lambda name, kind: (
        name == "clinic-c" and kind is Kind.UPLOAD and play.training_run.rounds_done == 1
    )
    play.begin()
    assert play.federation.phase is Phase.SUMMING
    play.hours = 25.0
    play.silent = lambda _name, _kind: False
    play.pass_deadline(events.DeadlineKind.SUM)
    assert play.federation.phase is Phase.FINISHED
    assert play.set_ups() == 2


def test_a_sum_below_the_quorum_is_lost_before_anything_is_opened_and_changes_nothing() -> None:
    play = Play(make_plan(3))
    play.silent = lambda name, kind: (
        name == "clinic-c" and kind is Kind.UPLOAD and play.training_run.rounds_done == 1
    )
    play.begin()
    before = play.training_run.model.vector.copy()
    answers = sum(kind is Kind.UNMASK_SHARES for _, kind in play.said)
    play.silent = lambda _name, _kind: True
    play.pass_deadline(events.DeadlineKind.SUM)
    lost = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert [effect.reason for effect in lost] == ["2 of 3 contributed, 3 are needed"]
    assert np.array_equal(play.training_run.model.vector, before)
    assert sum(kind is Kind.UNMASK_SHARES for _, kind in play.said) == answers
    assert play.federation.request is not None
    assert play.federation.request.attempt == 2


@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        ((Kind.UPLOAD, Kind.UPLOAD), "cde"),
        ((Kind.UPLOAD, Kind.CONSISTENCY_CHECK), "bcde"),
        ((Kind.UNMASK_SHARES, Kind.UNMASK_SHARES), "abcde"),
    ],
)
def test_sites_that_fall_silent_at_a_step_are_done_without(steps: tuple[Kind, Kind], counted: str) -> None:
    play = Play(make_plan(5, quorum=3, rounds=2))
    fatal = set(zip(("clinic-a", "clinic-b"), steps, strict=True))
    play.silent = lambda name, kind: play.training_run.rounds_done == 1 and (name, kind) in fatal
    play.begin()
    while play.federation.phase is Phase.SUMMING:
        play.pass_deadline(next(reversed(play.deadlines)).kind)
    assert play.federation.phase is Phase.FINISHED
    second = [0.5 / len(counted) if letter in counted else 0.0 for letter in "abcde"]
    # As above with n = 5 and 3 contributors in the worst case, over two rounds.
    np.testing.assert_allclose(
        play.training_run.model.vector, 0.1 + np.array(second), atol=2 * 5 * 16 * 2.0**-28 / 3
    )


def evaluations(play: Play) -> list[tuple[int, int]]:
    """Return (round, contributors) of every evaluation that was taken."""
    reports = (effect.progress for effect in play.effects if isinstance(effect, events.Report))
    return [(p.round, p.contributors) for p in reports if p.purpose is Purpose.EVALUATION]


def silent_at(play: Play, name: str, kind: Kind, rounds_done: int) -> None:
    """Swallow one kind of message of one site during the evaluation of a round."""

    def silent(who: ParticipantId, said: Kind) -> bool:
        evaluating = play.questions[who].request.purpose is not Purpose.TRAINING
        return (who, said, play.training_run.rounds_done) == (name, kind, rounds_done) and evaluating

    play.silent = silent


def test_an_evaluation_that_lacks_an_upload_is_repeated_without_that_site() -> None:
    play = Play(make_plan(4, quorum=3, rounds=4, every=2))
    silent_at(play, "clinic-d", Kind.UPLOAD, 2)
    play.begin()
    play.pass_deadline(events.DeadlineKind.SUM)
    assert play.federation.phase is Phase.FINISHED
    assert evaluations(play) == [(0, 4), (2, 3), (4, 4)]


def test_an_evaluation_that_lost_an_answer_is_left_out_and_training_goes_on() -> None:
    play = Play(make_plan(4, quorum=3, rounds=4, every=2))
    silent_at(play, "clinic-d", Kind.UNMASK_SHARES, 2)
    play.begin()
    play.pass_deadline(events.DeadlineKind.SUM)
    assert play.federation.phase is Phase.FINISHED
    assert evaluations(play) == [(0, 4), (4, 4)]
    assert play.training_run.result().left_out == (2,)
    (skipped,) = [effect for effect in play.effects if isinstance(effect, events.Skipped)]
    assert skipped.reason == "3 answers, 4 are needed"


def lose_the_last_answer(play: Play, name: str, rounds_done: int) -> None:
    silent_at(play, name, Kind.UNMASK_SHARES, rounds_done)
    play.begin()
    play.tell(events.Disconnected(ParticipantId(name)))
    play.pass_deadline(events.DeadlineKind.GRACE)
    assert play.federation.phase is Phase.WAITING
    assert play.federation.waiting_for == (name,)


@pytest.mark.parametrize(("standardize", "lost_at"), [("none", 2), ("secure", 0)])
def test_a_sum_that_cannot_be_done_without_waits_for_the_very_sites_that_opened_it(
    standardize: str, lost_at: int
) -> None:
    play = Play(make_plan(4, quorum=3, rounds=2, standardize=standardize))
    lose_the_last_answer(play, "clinic-d", lost_at)
    play.silent = lambda _name, _kind: False
    play.tell(events.Connected(ParticipantId("clinic-d")))
    assert play.federation.phase is Phase.FINISHED
    assert play.training_run.result().left_out == ()
    assert [n for n, _ in evaluations(play)] == [0, 2]


@pytest.mark.parametrize(
    ("standardize", "lost_at", "words"),
    [("none", 2, "the evaluation sum of round 2"), ("secure", 0, "the standardisation sum of round 0")],
)
def test_a_sum_whose_sites_do_not_come_back_ends_the_run_in_words(
    standardize: str, lost_at: int, words: str
) -> None:
    play = Play(make_plan(4, quorum=3, rounds=2, standardize=standardize))
    lose_the_last_answer(play, "clinic-d", lost_at)
    play.pass_deadline(events.DeadlineKind.JOIN)
    assert play.federation.phase is Phase.ABORTED
    (ending,) = [effect for effect in play.effects if isinstance(effect, events.Abort)]
    assert ending.reason == (
        f"{words} was interrupted, and only clinic-a, clinic-b, clinic-c, clinic-d together can open it from what "
        "they have sent; the join deadline has passed without clinic-d"
    )
    assert "start the aggregator again once they are back" in ending.remedy
    assert play.training_run.rounds_done == lost_at


def test_a_training_sum_that_some_have_helped_to_open_is_repeated_by_the_very_same_sites() -> None:
    play = Play(make_plan(5, quorum=3, rounds=2))
    away = ("clinic-c", "clinic-d", "clinic-e")
    play.silent = lambda name, kind: (
        play.training_run.rounds_done == 1 and kind is Kind.UNMASK_SHARES and name in away
    )
    play.begin()
    play.tell(events.Disconnected(ParticipantId("clinic-e")))
    play.pass_deadline(events.DeadlineKind.GRACE)
    play.pass_deadline(events.DeadlineKind.SUM)
    (lost,) = [effect for effect in play.effects if isinstance(effect, events.SumLost)]
    assert lost.reason == "2 answers, 3 are needed"
    # Four are connected, more than a quorum; but two of them open this sum for all five only.
    assert play.federation.phase is Phase.WAITING
    assert play.federation.waiting_for == ("clinic-e",)
    play.silent = lambda _name, _kind: False
    play.tell(events.Connected(ParticipantId("clinic-e")))
    assert play.federation.phase is Phase.FINISHED
    trained = [e.progress for e in play.effects if isinstance(e, events.Report) and e.clipping is not None]
    assert [progress.contributors for progress in trained] == [5, 5]


def test_the_output_model_is_evaluated_by_the_sites_that_evaluated_the_last_one() -> None:
    """To a site both are the evaluation after round 2, which it opens for one set of sites only."""
    plan = make_plan(4, quorum=3, rounds=2)
    play = Play(plan.model_copy(update={"training": plan.training.model_copy(update={"output": "average"})}))
    receive, leaver = play.federation.receive, ParticipantId("clinic-a")

    def leaving(event: events.Event) -> list[events.Effect]:
        effects = receive(event)
        if isinstance(event, events.MessageArrived) and event.participant == leaver:
            asked, answers = play.questions[leaver].request, kind_of(event.message) is Kind.UNMASK_SHARES
            if answers and (asked.purpose, asked.round, len(evaluations(play))) == LAST_EVALUATION:
                effects += receive(events.Disconnected(leaver))
        return effects

    play.federation.receive = leaving  # type: ignore[method-assign]  # a site that leaves when it has answered
    play.begin()
    assert play.federation.phase is Phase.WAITING
    assert play.federation.waiting_for == (leaver,)
    play.tell(events.Connected(leaver))
    assert play.federation.phase is Phase.FINISHED
    assert evaluations(play) == [(0, 4), (2, 4), (2, 4)]


def test_what_a_plan_promises_and_what_it_cannot() -> None:
    words = guarantee(make_plan(5, quorum=4, colluders=1))
    assert words.startswith("an aggregator that may do anything, together with up to 1 of 5 collaborators, learns")
    assert "1 drop-out is survived" in words
    assert "allows" not in words
    assert "ML-KEM" not in words
    assert "min_collaborators: 4 lets the aggregator leave 1 of 5 sites out of a round" in words
    assert "exactly where one batch holds all records" in words
    assert "unless its policy.evaluation_cohort is same" in words
    assert "leave" not in guarantee(make_plan(5, colluders=1))
    hybrid = guarantee(make_plan(5, key_agreement="x25519-mlkem768"))
    assert hybrid.endswith("must break both X25519 and ML-KEM-768 to read them later")
    assert "min_collaborators: 5 allows 0 of them" in guarantee(make_plan(5, colluders=1))
    with pytest.raises(PlanError, match="a sum over 2 of 5 collaborators, 1 of whom may collude"):
        check_protection(make_plan(5, quorum=2, colluders=1))
