"""A site's side of masked sums: what it may not add to, it leaves visibly."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from collaborator.masked_worker import MaskedWorker
from collaborator.plain_worker import PlainWorker
from collaborator.worker import Rule
from collaborator.write_ahead import WriteAheadLog
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.masked_encoding import MaskedTotals, sum_shapes
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.round_subject import round_subject
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import RemoteProtocolError, TrainingError
from fedfair.ids import RoundNumber, SumNumber
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.run.opened_totals import OpenedTotals
from fedfair.run.replica import OutOfStepError
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
from fedfair.wire.receiving import ReceivedRequest, ReceivedSum, ReceivedTotals
from tests.actors.followed_run import SCHEMA, FollowedRun, layout_of, plan_of, run_before_round_1
from tests.attacks.harness import Lies
from tests.patience import PATIENCE
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
                    pending += self.lies.server.receive(1, frame.message)
            elif isinstance(effect, SendTo):
                for send in self.lies.carry_out(effect.member, self.lies.hand_over(effect.member, effect.message)):
                    pending += self.lies.server.receive(effect.member, send.message)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OneSite]:
    one = OneSite(tmp_path)
    yield one
    one.answers.close()


def test_noised_numbers_are_uploaded_whatever_became_of_training(tmp_path: Path) -> None:
    one = OneSite(tmp_path, SumShape((), (5,), 0.5))
    one.task.last_fault = "the model fails on a batch"
    (frame, *_) = one.round()
    assert (kind_of(frame.message), one.answers.sums.fault) == (Kind.UPLOAD, "the model fails on a batch")
    one.answers.close()


def test_a_site_without_records_takes_part_with_nothing_and_nobody_can_tell(site: OneSite) -> None:
    site.task.fresh = True
    (frame, *_) = site.round()
    site.task.change = None
    (empty, *_) = site.round()
    assert (kind_of(empty.message), len(empty.message)) == (Kind.UPLOAD, len(frame.message))


def test_what_the_sites_policy_forbids_is_refused_in_the_open_not_answered_with_nothing(site: OneSite) -> None:
    site.refusal = Refusal("the policy of clinic-1 allows 3 rounds, this is round 4", "max_rounds")
    assert site.round() == [Abstain(SumNumber(1), RefusalReason.POLICY_MAX_ROUNDS)]
    assert site.answers.sums.refused == site.refusal


def test_an_update_that_must_not_leave_is_refused_in_the_open(site: OneSite) -> None:
    site.round()
    (refusal,) = site.round()
    assert refusal == Abstain(SumNumber(2), RefusalReason.SECAGG_REUSED_UPDATE)
    assert "these very draws was part of an earlier attempt" in site.answers.sums.refused.reason


def test_an_envelope_that_does_not_open_is_refused_with_the_place_of_its_sender(site: OneSite) -> None:
    site.round()
    phase, cohort = site.answers._participant.phase, site.lies.roster.indices
    envelopes = tuple((peer, bytes(ENVELOPE_BYTES)) for peer in cohort[1:])
    garbage = UnmaskRequest(phase.context.transcript, cohort, (), envelopes)
    assert site._hear(garbage.encode()) == [Abstain(SumNumber(1), RefusalReason.SECAGG_ENVELOPE, accused=2)]
    assert site.answers.sums.refused.reason == "envelope: the envelope from clinic-2 does not open"
    # An envelope that is lacking is the aggregator's fault, and accuses nobody.
    lacking = replace(garbage, envelopes=envelopes[1:])
    assert site._hear(lacking.encode()) == [Abstain(SumNumber(1), RefusalReason.SECAGG_ENVELOPE)]
    assert site.answers._participant.phase is phase


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
def test_a_change_that_is_not_finite_looks_like_any_other_to_others(site: OneSite, value: float) -> None:
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
    assert (request.state, request.model_sha256) == (site.run.replica.digest, MODEL.vector_sha256)
    assert (request.purpose, request.round) == (Purpose.TRAINING, 1)


def test_what_is_the_same_in_every_run_is_opened_for_one_set_of_sites(site: OneSite) -> None:
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


T = TypeVar("T")
Answered = bytearray | Refusal | None


class CountingTask:
    """Adds its call count; may wait for a gate, or fail."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.calls = 0
        self.gate = threading.Event()
        self.gate.set()
        self.fault = fault
        self.threads = set()

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        del model
        self.gate.wait(PATIENCE)
        self.threads.add(threading.current_thread())
        self.calls += 1
        if self.fault:
            raise self.fault
        return Contribution(np.array([1.0, float(request.round)]), np.full(2, float(self.calls)))

    scaling: FeatureScaling | None = None

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        del scaling


class Site:
    """A worker in the clear, with a copy of a run that stands before round 1."""

    def __init__(self, folder: Path, task: CountingTask | None = None, rule: Rule = lambda _: 1) -> None:
        self.task = task or CountingTask()
        self.run = FollowedRun(folder, self.task)
        self.answers = PlainWorker(self.task, self.run.specs, rule, self.run.follower)

    async def asked(self, one: ReceivedRequest) -> Answered:
        self.answers.sums.expect(one)
        return await self.answers.answer(one)


def played(scenario: Callable[[Site], Coroutine[object, object, T]], site: Site) -> T:
    async def play() -> T:
        try:
            return await scenario(site)
        finally:
            site.answers.close()

    return asyncio.run(asyncio.wait_for(play(), PATIENCE))


def test_the_same_question_gets_the_same_bytes_without_a_second_computation(tmp_path: Path) -> None:
    async def scenario(site: Site) -> tuple[Answered, Answered]:
        return await site.asked(site.run.question(1)), await site.asked(site.run.question(1))

    site = Site(tmp_path)
    first, again = played(scenario, site)
    assert (first, site.task.calls) == (again, 1)


def test_the_same_question_in_another_run_is_put_to_the_policy_and_answered_anew(tmp_path: Path) -> None:
    async def scenario(site: Site) -> tuple[Answered, Answered]:
        first = await site.asked(site.run.question(1))
        return first, await site.asked(replace(site.run.question(1), run_id="another run"))

    first, again = played(scenario, Site(tmp_path))
    assert first != again


def test_a_computation_outlives_the_stream_that_asked_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.task.gate.clear()

    async def scenario(site: Site) -> Answered:
        question = site.run.question(1)
        site.answers.sums.expect(question)
        stream = asyncio.create_task(site.answers.answer(question))
        await asyncio.sleep(0)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        site.task.gate.set()
        return await site.asked(question)

    assert isinstance(played(scenario, site), bytearray)
    assert site.task.calls == 1


def test_a_newer_question_makes_the_older_answer_worthless(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.task.gate.clear()

    async def scenario(site: Site) -> tuple[Answered, Answered]:
        questions = [site.run.question(number) for number in (1, 2)]
        site.answers.sums.expect(questions[0])
        older = asyncio.create_task(site.answers.answer(questions[0]))
        await asyncio.sleep(0)
        site.answers.sums.expect(questions[1])
        newer = asyncio.create_task(site.answers.answer(questions[1]))
        site.task.gate.set()
        return await older, await newer

    older, newer = played(scenario, site)
    assert older is None
    assert isinstance(newer, bytearray)
    assert len(site.task.threads) == 1


def test_a_fault_of_training_becomes_a_reason_and_nothing_is_sent(tmp_path: Path) -> None:
    task = CountingTask(TrainingError("the body holds 3 values that are NaN"))
    assert played(lambda site: site.asked(site.run.question(1)), Site(tmp_path, task)) == Refusal(
        "the body holds 3 values that are NaN", "values"
    )


def test_any_other_fault_stays_at_the_site(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        played(lambda site: site.asked(site.run.question(1)), Site(tmp_path, CountingTask(ZeroDivisionError())))


def test_the_policy_is_asked_before_anything_is_computed(tmp_path: Path) -> None:
    site = Site(tmp_path, rule=lambda one: Refusal(f"not round {one.round}"))
    assert played(lambda site: site.asked(site.run.question(1)), site) == Refusal("not round 1")
    assert site.task.calls == 0


# ------------------------------------------------------------------ the site's own copy of the run


@pytest.mark.parametrize("lie", [{"state": bytes(32)}, {"round": 2}, {"purpose": Purpose.EVALUATION}], ids=str)
def test_a_request_that_the_own_state_does_not_make_is_refused_first(
    tmp_path: Path, lie: dict[str, object]
) -> None:
    asked: list[object] = []
    site = Site(tmp_path, rule=lambda one: asked.append(one) or 1)  # type: ignore[func-returns-value]
    start = replace(site.run.start(1), **lie)  # type: ignore[arg-type]
    answer = played(lambda site: site.asked(ReceivedRequest(start)), site)
    assert (answer.term, asked, site.task.calls) == ("protocol", [], 0)


def test_an_opened_sum_moves_the_copy_of_the_run_and_one_about_another_state_does_not(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        totals = Totals(np.array([3.0, 0.0]), np.full(2, 6.0), 2)
        opened = OpenedTotals(site.answers.held.digest, ("clinic-a", "clinic-b"), totals)
        told = ReceivedTotals(memoryview(opened.encode()))
        assert await site.answers.frames(told) == ()
        assert site.run.replica.state.model.vector.tolist() == [2.0, 2.0]
        assert site.answers.held.rounds_done == 1
        with pytest.raises(OutOfStepError, match="an opened sum about state"):
            await site.answers.frames(told)
        assert site.answers.held.rounds_done == 1

    played(scenario, Site(tmp_path))


def test_a_message_of_secure_aggregation_ends_the_part_of_a_site_whose_sums_are_plain(tmp_path: Path) -> None:
    with pytest.raises(RemoteProtocolError, match="the plan's sums are plain"):
        played(lambda site: site.answers.frames(ReceivedSum(b"\x01")), Site(tmp_path))


class BufferingTask(CountingTask):
    """Makes every contribution in the same memory, as a model does whose change is copied from a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2)

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        made = super().contribution(request, model)
        self.buffer[:] = made.body
        return Contribution(made.header, self.buffer)


def test_an_answer_that_is_kept_is_not_in_the_memory_that_the_next_one_is_made_in(tmp_path: Path) -> None:
    task = BufferingTask()

    async def scenario(site: Site) -> tuple[Answered, Answered]:
        kept = await site.asked(site.run.question(1))
        assert isinstance(kept, bytearray)
        before, newer = bytes(kept), await site.asked(site.run.question(2))
        assert bytes(kept) == before
        return kept, newer

    kept, newer = played(scenario, Site(tmp_path, task))
    assert kept != newer
    assert not np.shares_memory(np.frombuffer(kept, np.uint8), task.buffer)
