"""A site's side of masked sums: what it may not add to, it leaves for everybody to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from collaborator.masked_worker import MaskedWorker
from collaborator.write_ahead import WriteAheadLog
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.masked_totals import MaskedTotals
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.round_subject import round_subject
from fedfair.ids import RoundNumber, SumNumber
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.secagg.client import Uploaded
from fedfair.secagg.effects import SendTo
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import SecaggPolicy
from fedfair.secagg.round_messages import UnmaskRequest
from fedfair.secagg.sealing import ENVELOPE_BYTES
from fedfair.secagg.session import SessionSite
from fedfair.secagg.shape import SumShape
from fedfair.secagg.transcript import RoundSubject
from fedfair.statistics.table import Purpose
from fedfair.terms.local_change import LocalChange
from fedfair.training.client import TrainingClient
from fedfair.wire.codec import encode_collaborator_frame
from fedfair.wire.frames import Abstain, Chunk, CollaboratorFrame, SecaggMessage, SumStart
from fedfair.wire.receiving import ReceivedRequest
from tests.actors.followed_run import SCHEMA, FollowedRun, layout_of, plan_of, run_before_round_1
from tests.attacks.harness import Lies
from tests.secagg.federation_in_memory import PLAN, shape_of, signing_key

MODEL = GlobalModel(np.zeros(5), 0.5)


class Task:
    """Adds a change of its own; has no records, or fails, where a test wants it."""

    change: LocalChange | None = LocalChange(1, 0.25, np.ones(5))
    last_fault = ""
    scaling: FeatureScaling | None = None

    def __init__(self) -> None:
        self.drawn: Callable[[int], object] = lambda _: None
        self.fresh = False

    def draws(self, purpose: Purpose, round_number: RoundNumber, attempt: int) -> bytes:
        del purpose, round_number
        return (attempt if self.fresh else 0).to_bytes(32)

    def summable_change(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> LocalChange | None:
        del model, round_number
        self.drawn(attempt)
        return self.change

    def noised_numbers(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> NDArray[np.int64]:
        del model
        self.drawn(attempt)
        return np.array([int(round_number), attempt, 3, 4, 5])

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        raise NotImplementedError

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        self.scaling = scaling


class OneSite:
    """Member 1 as it is deployed, next to four that speak for themselves, and an aggregator between them."""

    def __init__(
        self,
        folder: Path,
        shape: SumShape | None = None,
        task: TrainingClient | None = None,
        model: GlobalModel = MODEL,
        plan: Plan | None = None,
    ) -> None:
        self.lies, self.task = Lies(), Task()
        plan, layout = plan or plan_of(masked=True), layout_of(len(model.vector))
        state = replace(run_before_round_1(plan, layout).state, model=model)
        self.run = FollowedRun(folder / "run", task or self.task, plan, layout, state, PLAN)
        self.lies.model = self.subject
        self.lies.shapes = {
            **sum_shapes(plan, layout, SCHEMA),
            "training": shape or shape_of(len(model.vector), 2),
        }
        self.lies.__post_init__()
        self.refusal: Refusal | None = None
        site = SessionSite(1, self.lies.roster, signing_key(1), self.lies.plan, self.lies.policy, self.lies.shapes)
        self.answers = MaskedWorker(
            task or self.task,
            {},
            MaskedTotals(plan, layout, SCHEMA),
            lambda _: self.refusal or self.rounds,
            site,
            WriteAheadLog(folder / "site.secagg"),
            self.run.follower,
        )
        self.rounds = 0

    @property
    def subject(self) -> RoundSubject:
        """Return what the sum that is due is about."""
        due = self.run.replica.training_run.next_sum()
        assert due is not None
        return round_subject(self.run.replica.digest, due)

    def round(self) -> list[CollaboratorFrame]:
        """Give the round before up, start a training round, and return what member 1 says to it."""
        self.rounds += 1
        if not self.lies.server.members:
            self._deliver(list(self.lies.server.open_session(self.lies.roster.indices)))
        self.lies.server.deadline()
        effects = self.lies.server.start_round("training", self.lies.model, (1.0,), self.lies.roster.indices)
        (start,) = (effect.message for effect in effects if isinstance(effect, SendTo) and effect.member == 1)
        return self._hear(start)

    def start_of(self, subject: RoundSubject) -> bytes:
        """Return the start of the next round, about whatever the aggregator says."""
        self.round()
        self.answers._participant.drop_out()
        return self.lies.start(session_id=self.lies.server.session_id, subject=subject)

    def _hear(self, message: bytes, start: SumStart | None = None) -> list[CollaboratorFrame]:
        question = ReceivedRequest(start or self.run.start(self.rounds, self.rounds))
        self.answers.sums.expect(question)
        return self.answers._hear(question, message)

    def _deliver(self, pending: list[object]) -> None:
        while pending:
            effect = pending.pop(0)
            if isinstance(effect, SendTo) and effect.member == 1:
                for frame in self._hear(effect.message):
                    assert isinstance(frame, SecaggMessage)
                    pending += self.lies.server.receive(1, frame.message)
            elif isinstance(effect, SendTo):
                for send in self.lies.carry_out(effect.member, self.lies.hand_over(effect.member, effect.message)):
                    pending += self.lies.server.receive(effect.member, send.message)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OneSite]:
    one = OneSite(tmp_path)
    yield one
    one.answers.close()


def test_noised_numbers_are_uploaded_whatever_became_of_training_and_only_the_owner_hears_of_it(
    tmp_path: Path,
) -> None:
    one = OneSite(tmp_path, SumShape((), (5,), 0.5))
    one.task.last_fault = "the model fails on a batch"
    (frame, *_) = one.round()
    assert isinstance(frame, SecaggMessage)
    assert kind_of(frame.message) is Kind.UPLOAD
    assert one.answers.sums.fault == "the model fails on a batch"
    one.answers.close()


def test_an_update_is_uploaded(site: OneSite) -> None:
    (frame, *_) = site.round()
    assert isinstance(frame, SecaggMessage)
    assert kind_of(frame.message) is Kind.UPLOAD


def test_a_site_without_records_takes_part_with_nothing_and_nobody_can_tell(site: OneSite) -> None:
    site.task.fresh = True
    (frame, *_) = site.round()
    site.task.change = None
    (empty, *_) = site.round()
    assert isinstance(frame, SecaggMessage)
    assert isinstance(empty, SecaggMessage)
    assert kind_of(empty.message) is Kind.UPLOAD
    assert len(empty.message) == len(frame.message)


def test_what_the_sites_policy_forbids_is_refused_in_the_open_not_answered_with_nothing(site: OneSite) -> None:
    site.refusal = Refusal("the policy of clinic-1 allows 3 rounds, this is round 4", "max_rounds")
    assert site.round() == [Abstain(SumNumber(1), RefusalReason.POLICY_MAX_ROUNDS)]
    assert site.answers.sums.refused == site.refusal


def test_an_update_that_must_not_leave_is_refused_in_the_open(site: OneSite) -> None:
    site.round()
    (refusal,) = site.round()
    assert refusal == Abstain(SumNumber(2), RefusalReason.SECAGG_REUSED_UPDATE)
    assert site.answers.sums.refused is not None
    assert "these very draws was part of an earlier attempt" in site.answers.sums.refused.reason


def test_an_envelope_that_does_not_open_is_refused_with_the_place_of_its_sender_and_nothing_is_answered(
    site: OneSite,
) -> None:
    site.round()
    phase, cohort = site.answers._participant.phase, site.lies.roster.indices
    assert isinstance(phase, Uploaded)
    envelopes = tuple((peer, bytes(ENVELOPE_BYTES)) for peer in cohort[1:])
    garbage = UnmaskRequest(phase.context.transcript, cohort, (), envelopes)
    assert site._hear(garbage.encode()) == [Abstain(SumNumber(1), RefusalReason.SECAGG_ENVELOPE, accused=2)]
    assert site.answers.sums.refused is not None
    assert site.answers.sums.refused.reason == "envelope: the envelope from clinic-2 does not open"
    # An envelope that is lacking is the aggregator's fault, and accuses nobody.
    lacking = replace(garbage, envelopes=envelopes[1:])
    assert site._hear(lacking.encode()) == [Abstain(SumNumber(1), RefusalReason.SECAGG_ENVELOPE)]
    assert site.answers._participant.phase is phase


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
def test_a_change_that_is_not_finite_looks_like_any_other_and_only_the_owner_hears_of_it(
    site: OneSite, value: float
) -> None:
    site.task.fresh = True
    honest = [form(frame) for frame in site.round()]
    site.task.change = LocalChange(1, value, np.full(5, value))
    site.task.last_fault = "values that are no numbers"
    assert [form(frame) for frame in site.round()] == honest
    assert site.answers.sums.refused is None
    assert site.answers.sums.fault == "values that are no numbers"


def form(frame: CollaboratorFrame) -> tuple[str, int]:
    """Return what anybody sees of a frame without its key: what it is, and how long."""
    return type(frame).__name__, len(encode_collaborator_frame(frame))


def test_a_masked_vector_that_is_kept_is_not_in_the_memory_that_the_next_change_is_made_in(site: OneSite) -> None:
    buffer = np.ones(5)
    site.task.change = LocalChange(1, 0.25, buffer)
    (_, *chunks) = site.round()
    assert all(isinstance(chunk, Chunk) for chunk in chunks)
    kept = [bytes(chunk.data) for chunk in chunks]
    buffer[:] = -3.0
    site.round()
    assert [bytes(chunk.data) for chunk in chunks] == kept
    assert not any(np.shares_memory(np.frombuffer(chunk.data, np.uint8), buffer) for chunk in chunks)


SCALING, OTHER = (FeatureScaling(np.zeros(2), np.array([1.0, scale])) for scale in (1.0, 1e300))


def test_a_round_about_another_scaling_than_this_sites_own_is_refused(site: OneSite) -> None:
    start = site.start_of(site.subject)
    site.run.move(replace(site.run.replica.state, scaling=OTHER))
    (refusal,) = site._hear(start)
    assert isinstance(refusal, Abstain)
    assert refusal.reason is RefusalReason.SECAGG_STATE


def test_the_features_are_scaled_as_the_state_says_whatever_scaled_them_before(site: OneSite) -> None:
    site.round()
    site.answers._participant.drop_out()
    site.run.move(replace(site.run.replica.state, scaling=SCALING))
    site.task.scaling = OTHER
    (frame, *_) = site._hear(site.lies.start(session_id=site.lies.server.session_id, subject=site.subject))
    assert isinstance(frame, SecaggMessage)
    assert site.task.scaling is SCALING


def test_the_policy_is_asked_about_this_sites_own_state(site: OneSite) -> None:
    asked: list[AggregationRequest] = []
    site.answers._rule = lambda request: asked.append(request) or Refusal("no")
    site.round()
    (request,) = asked
    assert request.state == site.run.replica.digest
    assert request.model_sha256 == MODEL.vector_sha256
    assert (request.purpose, request.round) == (Purpose.TRAINING, 1)


def test_what_is_the_same_in_every_run_is_opened_for_one_set_of_sites_whatever_the_run_is_called(
    site: OneSite,
) -> None:
    """An aggregator names runs as it likes, and may move a model by next to nothing where it has a site in it."""

    def computed(run: str, done: int, value: float = 0.0, *, on_demand: bool = False) -> bytes:
        model = GlobalModel(np.full(5, value), 0.5)
        state = replace(site.run.replica.state, stage=Purpose.EVALUATION, model=model)
        site.run.move(replace(state, rounds_done=RoundNumber(done)))
        return site.answers._begun(replace(site.run.question(1), run_id=run, on_demand=on_demand))[1]

    same = computed("a", 1)
    assert computed("b", 1, 1e-12) == same
    assert computed("a", 2) != same
    saved = computed("c", 1, on_demand=True)
    assert computed("d", 2, 3.0, on_demand=True) == saved
    site.task.fresh = True
    assert computed("a", 1) == computed("b", 1), "a run is a name, and the state is the same"
    assert computed("a", 1) != computed("a", 1, 1e-12)


def test_a_second_sum_about_one_state_is_refused_for_other_sites(site: OneSite) -> None:
    site.lies.policy = SecaggPolicy(greatest_attempts=1_000_000)
    site.answers._participant._site = replace(site.answers._participant._site, policy=site.lies.policy)
    site.round()
    history = site.answers._participant._history
    _, computed = site.answers._begun(site.run.question(1))
    history.answered(bytes(32), computed, (1, 2, 3, 4))
    (refusal,) = site.round()
    assert isinstance(refusal, Abstain)
    assert refusal.reason is RefusalReason.SECAGG_COHORT


@pytest.mark.parametrize("noised", [False, True])
def test_what_is_drawn_is_decided_by_the_sites_own_count_of_attempts(tmp_path: Path, noised: bool) -> None:
    site = OneSite(tmp_path, SumShape((), (5,), 0.5) if noised else None)
    drawn: list[int] = []
    site.task.drawn = drawn.append
    site.answers._rule = lambda _: 41
    site.round()
    assert drawn == [41]
    site.answers.close()
