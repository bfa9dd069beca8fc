"""An aggregator that asks for what a site's policy forbids, and says of it whatever it likes: one test per term.

The liar speaks frames to the real receiving half of a stream, and the real worker answers: with an upload, or with
the term that refuses. The sums are plain, so the site takes any state of the run that the plan can come to on the
aggregator's word; what is left to the site then is to count.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from collaborator.known_models import ModelPlaces, approve_model
from collaborator.participation import worker_of
from collaborator.plain_worker import PlainWorker
from collaborator.preparation import Readiness, make_ready
from collaborator.site_history import RequestRecord
from fedfair.aggregation.quantile_query import ExactQuery, QueryStep
from fedfair.aggregation.requests import GlobalModel
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ApprovalError, FedfairError, PlanError, RemoteProtocolError
from fedfair.ids import RoundNumber, SumNumber
from fedfair.plan.digest import format_digest
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.decision import SiteRules
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import MASKED_EVALUATIONS_ON_DEMAND, MASKED_RUNS
from fedfair.policy.site_config import SitePolicy
from fedfair.run.packed_state import pack_state
from fedfair.run.replica import OutOfStepError
from fedfair.run.saved_model import TrainedModel
from fedfair.run.state import RunState
from fedfair.statistics.table import Purpose
from fedfair.wire.chunking import broadcast_frames
from fedfair.wire.frames import BroadcastKind, SumStart, Welcome
from fedfair.wire.receiving import ReceivedRequest, ReceivedState, Receiver
from tests.plans import small_plan
from tests.site_reading import read_site

ROUNDS, EVERY = 5, 2
TRAINING, EVALUATION, EXACT = Purpose.TRAINING, Purpose.EVALUATION, Purpose.EXACT_EVALUATION


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    torch.set_num_threads(1)
    plan = small_plan(rounds=ROUNDS)
    task, evaluation = plan["task"], plan["evaluation"]
    assert isinstance(task, dict)
    assert isinstance(evaluation, dict)
    plan["task"] = {**task, "standardize": "none"}
    plan["evaluation"] = {**evaluation, "every": EVERY, "method": "exact"}
    return prepare(tmp_path_factory.mktemp("lies"), plan)


class Liar:
    """An aggregator with one site at its mercy; every stream is a new one, and so may the site's process be."""

    def __init__(self, workspace: Workspace, folder: Path, policy: Mapping[str, object]) -> None:
        stated = yaml.safe_load((workspace.folder / "clinic-a.yaml").read_text())
        stated["policy"] |= policy
        own = folder / "clinic-a.yaml"
        stated["cert_folder"] = str(workspace.folder / "cert")
        stated["approval"] = str(workspace.folder / stated["approval"])
        own.write_text(yaml.safe_dump(stated))
        self.ready = make_ready(read_site("clinic-a", own, workspace.plan, None))
        self.numbers = itertools.count(1)
        self.answers = self._started()

    def _started(self) -> PlainWorker:
        answers = worker_of(self.ready, self.ready.site.state / "logs")
        assert isinstance(answers, PlainWorker)
        return answers

    def restart(self) -> None:
        """Kill the site's process and start it again."""
        self.answers.close()
        self.answers = self._started()

    def ask(
        self,
        purpose: Purpose,
        round_number: int,
        *,
        attempt: int = 1,
        run: int = 0,
        bit: int = 0,
        threshold: float = 0.0,
        on_demand: bool = False,
    ) -> Refusal | bytearray | None:
        """Ask for one sum on a new stream, about the initial model with so many units added to its first value."""
        state = self.state(purpose, round_number, bit, threshold)
        if on_demand:
            return self.ask_about_saved(purpose, round_number, run, self.approve(state, round_number))
        return asyncio.run(self._ask(Welcome(f"{run:032x}", 0, ROUNDS), state, (purpose, round_number, attempt)))

    def ask_about_saved(
        self, purpose: Purpose, round_number: int, run: int, digest: bytes
    ) -> Refusal | bytearray | None:
        """Ask for a sum about a saved model."""
        welcome = Welcome(f"{run:032x}", 0, ROUNDS, evaluation_only=True, model=digest)
        return asyncio.run(self._ask(welcome, None, (purpose, round_number, 1)))

    async def _ask(
        self, welcome: Welcome, state: RunState | None, asked: tuple[Purpose, int, int]
    ) -> Refusal | bytearray | None:
        receiver = Receiver(self.ready.shapes, SumNumber(0))
        receiver.take(welcome)
        await self.answers.join(welcome)
        if state is not None:
            raw = b"".join(pack_state(state))
            frames = broadcast_frames(BroadcastKind.STATE, raw, hashlib.sha256(raw).digest())
            (said,) = (taken for frame in frames if (taken := receiver.take(frame)) is not None)
            assert isinstance(said, ReceivedState)
            await self.answers.frames(said)
        number = SumNumber(next(self.numbers))
        question = receiver.take(SumStart(number, *asked, self.answers.held.digest, 60))
        assert isinstance(question, ReceivedRequest)
        self.answers.sums.expect(question)
        return await self.answers.answer(question)

    @property
    def initial(self) -> RunState:
        """Return the state before the first sum."""
        return self.answers._follower.replica.training_run.initial

    def state(self, purpose: Purpose, round_number: int, bit: int = 0, threshold: float = 0.0) -> RunState:
        """Return a state that asks for this sum."""
        vector = np.array(self.ready.binding.vector)
        vector.view(np.uint64)[0] += bit
        sizes = self.answers._follower.replica.rules.evaluator.group_sizes
        return replace(
            self.initial,
            stage=purpose,
            rounds_done=RoundNumber(round_number - (purpose is TRAINING)),
            model=GlobalModel(vector, threshold),
            query=ExactQuery.of(sizes) if purpose is Purpose.EXACT_EVALUATION else None,
        )

    def approve(self, state: RunState, done: int) -> bytes:
        """Let the site approve the evaluation of a saved model; return its digest."""
        places = ModelPlaces.of_site(self.ready.site, self.ready.binding)
        digest = format_digest(self.ready.binding.digest)
        saved = TrainedModel(state.model, RoundNumber(done), digest, state.scaling)
        approve_model(places, saved, datetime.now(UTC))
        return places.identity(saved)

    def request(
        self,
        purpose: Purpose,
        round_number: int,
        *,
        run: int = 0,
        bit: int = 0,
        on_demand: bool = False,
        openers: tuple[int, ...] = (),
    ) -> AggregationRequest:
        """Return a request as the rules of a site see it."""
        state = self.state(purpose, round_number, bit)
        query = QueryStep(1, ()) if purpose is EXACT else None
        about = (state.digest(self.ready.binding.digest), state.model.vector_sha256, openers)
        return AggregationRequest(f"{run:032x}", on_demand, purpose, round_number, query, *about)


@pytest.fixture
def liar_for(workspace: Workspace, tmp_path: Path) -> Iterator[type]:
    made: list[Liar] = []

    class Ready(Liar):
        def __init__(self, **policy: object) -> None:
            super().__init__(workspace, tmp_path, policy)
            made.append(self)

    yield Ready
    for liar in made:
        liar.answers.close()


def refused(answer: Refusal | bytearray | None) -> tuple[str, str, str]:
    assert isinstance(answer, Refusal), "the site has answered"
    assert answer.reason
    return answer.term, answer.asked, answer.allowed


def answered(answer: Refusal | bytearray | None) -> bool:
    assert not isinstance(answer, Refusal), answer
    return answer is not None


def test_every_sum_of_an_honest_run_is_answered(liar_for: type) -> None:
    site = liar_for(max_rounds=ROUNDS, max_runs=1, max_attempts=3, max_evaluations=4)
    assert answered(site.ask(EVALUATION, 0))
    for number in range(1, ROUNDS + 1):
        assert answered(site.ask(TRAINING, number, bit=number - 1))
        if number % EVERY == 0 or number == ROUNDS:
            assert answered(site.ask(EVALUATION, number, bit=number))


def test_a_sum_for_a_purpose_that_is_not_allowed(liar_for: type) -> None:
    site = liar_for(purposes=["evaluation"])
    assert refused(site.ask(TRAINING, 1)) == ("purposes", "training", "evaluation")
    assert answered(site.ask(EVALUATION, 0))


def test_a_sum_that_makes_known_what_is_not_allowed(liar_for: type) -> None:
    site = liar_for(reveals=["loss-sums", "loss-quantiles"])
    assert refused(site.ask(TRAINING, 1)) == ("reveals", "update-sums", "loss-sums, loss-quantiles")
    assert answered(site.ask(EVALUATION, 0))


def test_a_state_in_which_no_run_of_the_plan_can_be_ends_the_stream(liar_for: type) -> None:
    """Such as a sum of columns without a range, or an evaluation that the plan does not make due."""
    site = liar_for()
    for purpose, number in ((Purpose.STANDARDISATION, 0), (EVALUATION, 1), (EVALUATION, 3), (EXACT, 2)):
        with pytest.raises(OutOfStepError, match="which no run of this plan reaches"):
            site.ask(purpose, number)
    histogram = site.ready.site.plan.evaluation.model_copy(update={"method": "histogram"})
    asked = site.state(EXACT, ROUNDS)
    stated = site.ready.site.plan.model_copy(update={"evaluation": histogram})
    specs = {purpose: spec for purpose, spec in site.ready.specs.items() if purpose is not EXACT}
    site.ready = replace(site.ready, site=replace(site.ready.site, plan=stated), specs=specs)
    site.restart()
    site.state = lambda *_: asked
    with pytest.raises(OutOfStepError, match="a state at exact-evaluation after 5 rounds was sent"):
        site.ask(EXACT, ROUNDS)


def test_a_sum_that_the_policy_of_the_plan_would_not_have_is_refused_whatever_the_state(liar_for: type) -> None:
    site = liar_for()
    rules = SiteRules(site.ready.site.plan, site.ready.binding.schema, SitePolicy(), "clinic-a", 100)
    refusal = rules.decide(replace(site.request(EVALUATION, 0), purpose=Purpose.STANDARDISATION), {})
    assert isinstance(refusal, Refusal)
    assert refused(refusal) == ("purposes", "standardisation", "training, evaluation, exact-evaluation")


@pytest.mark.parametrize(("purpose", "number"), [(EVALUATION, 1), (EVALUATION, 0), (TRAINING, 1), (EXACT, 5)])
def test_a_sum_that_the_state_does_not_ask_for_is_refused(liar_for: type, purpose: Purpose, number: int) -> None:
    site = liar_for()
    honest = site.state(TRAINING, 2)
    site.state = lambda *_: honest
    term, _, _ = refused(site.ask(purpose, number))
    assert term == "protocol"
    assert answered(site.ask(TRAINING, 2))


def test_a_round_number_beyond_the_plan_ends_the_stream(liar_for: type) -> None:
    site = liar_for()
    for number in (ROUNDS + 1, 10**9):
        honest = site.state(TRAINING, ROUNDS)
        site.state = lambda *_, honest=honest: honest
        with pytest.raises(
            RemoteProtocolError, match=f"training sum of round {number} follows round 0 of {ROUNDS}"
        ):
            site.ask(TRAINING, number)


def test_rounds_that_are_all_called_round_1_are_counted_by_the_site(liar_for: type) -> None:
    site = liar_for(max_rounds=5, max_attempts=2)
    for run in range(5):
        assert answered(site.ask(TRAINING, 1, run=run, bit=run))
    assert refused(site.ask(TRAINING, 1, run=5, bit=5)) == ("max_rounds", "round 6", "at most 5")
    site.restart()
    assert refused(site.ask(TRAINING, 2, run=0, bit=7)) == ("max_rounds", "round 6", "at most 5")


def test_an_attempt_too_many_at_one_round_whatever_its_number_and_model(liar_for: type) -> None:
    site = liar_for(max_attempts=3)
    for attempt, bit in ((1, 0), (1, 1), (7, 2)):
        assert answered(site.ask(TRAINING, 1, attempt=attempt, bit=bit))
        site.restart()
    assert refused(site.ask(TRAINING, 1, attempt=1, bit=3)) == ("max_attempts", "attempt 4", "at most 3")
    assert answered(site.ask(TRAINING, 1, attempt=8, bit=2)), "the very same question has the very same answer"
    assert answered(site.ask(TRAINING, 2))


def test_a_run_too_many(liar_for: type) -> None:
    site = liar_for(max_runs=2)
    for run in (0, 1):
        assert answered(site.ask(EVALUATION, 0, run=run))
    site.restart()
    for purpose in (TRAINING, EVALUATION):
        assert refused(site.ask(purpose, 2, run=2)) == ("max_runs", "run 3", "at most 2")
    assert answered(site.ask(TRAINING, 1, run=1))


def test_a_model_that_differs_in_one_bit_is_another_evaluation(liar_for: type) -> None:
    site = liar_for(max_evaluations=1)
    assert answered(site.ask(EVALUATION, 2))
    assert answered(site.ask(EVALUATION, 2, attempt=2)), "the same model, after a sum that was lost"
    for _ in range(2):
        term, asked, allowed = refused(site.ask(EVALUATION, 2, bit=1))
        assert (term, asked, allowed) == ("max_evaluations", "evaluation 2", "at most 1")
        site.restart()


def test_saved_models_are_evaluated_as_often_as_the_site_allows(liar_for: type) -> None:
    site = liar_for(max_evaluations_on_demand=2)
    for number in range(2):
        assert answered(site.ask(EVALUATION, 3, run=number, bit=number, on_demand=True))
        site.restart()
    term = ("max_evaluations_on_demand", "model 3", "at most 2")
    assert refused(site.ask(EVALUATION, 3, run=9, bit=2, on_demand=True)) == term
    assert answered(site.ask(EVALUATION, 3, run=9, bit=1, on_demand=True)), "a model that was evaluated already"


def test_no_saved_model_is_evaluated_where_a_site_allows_none(liar_for: type) -> None:
    answer = liar_for(max_evaluations_on_demand=0).ask(EVALUATION, 3, on_demand=True)
    assert refused(answer) == ("max_evaluations_on_demand", "model 1", "at most 0")


def test_all_evaluations_together_are_as_many_as_the_site_allows(liar_for: type) -> None:
    site = liar_for(max_evaluations=2)
    assert answered(site.ask(EVALUATION, 0))
    assert answered(site.ask(EVALUATION, 3, run=1, bit=1, on_demand=True))
    site.restart()
    for options in ({"run": 2, "on_demand": True}, {}):
        assert refused(site.ask(EVALUATION, 2, bit=2, **options))[:2] == ("max_evaluations", "evaluation 3")
    assert answered(site.ask(TRAINING, 1))


def test_training_in_what_was_announced_as_an_evaluation_is_refused(liar_for: type) -> None:
    site = liar_for()
    digest = site.approve(site.state(EVALUATION, 3), 3)
    with pytest.raises(RemoteProtocolError, match="announced as an evaluation only"):
        site.ask_about_saved(TRAINING, 3, 0, digest)
    assert answered(site.ask_about_saved(EVALUATION, 3, 0, digest))


def test_a_saved_model_that_the_site_neither_has_nor_has_approved(liar_for: type) -> None:
    site = liar_for()
    digest = site.approve(site.state(EVALUATION, 3), 3)
    with pytest.raises(ApprovalError, match="neither has from a run of its own nor has approved"):
        site.ask_about_saved(EVALUATION, 3, 0, bytes(digest[:-1]) + bytes([digest[-1] ^ 1]))


class Masked:
    """The record of one masked site, in a process of its own for each question."""

    def __init__(self, ready: Readiness, path: Path, **policy: object) -> None:
        self._made = partial(_record, ready, path, policy)

    def ask(self, question: AggregationRequest) -> Refusal | int:
        with closing(self._made()) as record:
            return record.admit(question)

    def objection(self, question: AggregationRequest) -> Refusal | None:
        said = self.ask(question)
        return said if isinstance(said, Refusal) else None

    def attempt(self, question: AggregationRequest) -> int:
        said = self.ask(question)
        assert isinstance(said, int)
        return said


def _record(ready: Readiness, path: Path, policy: Mapping[str, object]) -> RequestRecord:
    plan = ready.site.plan
    stated = plan.model_copy(
        update={"secure_aggregation": plan.secure_aggregation.model_copy(update={"mode": "malicious"})}
    )
    rules = SiteRules(stated, ready.binding.schema, SitePolicy.model_validate(policy), "clinic-a", 100)
    return RequestRecord(path, rules)


def test_masked_runs_and_evaluations_on_demand_are_limited_by_default(liar_for: type, tmp_path: Path) -> None:
    site = liar_for()
    allowance = Masked(site.ready, tmp_path / "record")
    for on_demand, most, term in (
        (False, MASKED_RUNS, "max_runs"),
        (True, MASKED_EVALUATIONS_ON_DEMAND, "max_evaluations_on_demand"),
    ):
        asked = [site.request(EVALUATION, 0, run=n, bit=n, on_demand=on_demand) for n in range(most + 1)]
        assert [allowance.objection(question) for question in asked[:most]] == [None] * most
        assert allowance.objection(asked[most]).term == term


def test_what_was_answered_survives_and_what_was_spoiled_is_refused(liar_for: type, tmp_path: Path) -> None:
    site, path = liar_for(), tmp_path / "record"
    question = site.request(TRAINING, 1)
    assert Masked(site.ready, path, max_rounds=1).objection(question) is None
    allowance = Masked(site.ready, path, max_rounds=1)
    assert allowance.objection(question) is None
    assert allowance.objection(site.request(TRAINING, 2)) is not None
    path.write_text('{"run": "00", "rounds": 3}\n')
    with pytest.raises(
        FedfairError, match="cannot be used as this site's record of what it has answered"
    ) as fault:
        Masked(site.ready, path).ask(question)
    assert "copy it back from a backup" in fault.value.remedy
    path.unlink()
    assert Masked(site.ready, path, max_rounds=1).attempt(question) == 1, "without its file, a site begins anew"


def test_a_plan_beyond_a_term_is_refused_at_connection(workspace: Workspace, tmp_path: Path) -> None:
    broken: list[tuple[dict[str, object], str]] = [
        ({"max_rounds": 4}, "training.rounds: 5; this site's policy allows 4"),
        ({"min_collaborators": 4}, "as few as 3 collaborators; this site's policy wants 4"),
        ({"allow_plain_sums": False}, "this site's policy refuses plain sums"),
        ({"reveals": ["update-sums", "loss-sums"]}, "evaluation.method: exact reveals loss-quantiles"),
        ({"purposes": ["training", "standardisation"]}, "asks for evaluation sums"),
    ]
    for policy, words in broken:
        with pytest.raises(PlanError, match=words):
            Liar(workspace, tmp_path, policy)


def test_an_evaluation_over_other_sites_is_refused_where_a_site_says_so(liar_for: type, tmp_path: Path) -> None:
    site, path = liar_for(), tmp_path / "record"

    def ask(round_number: int, openers: tuple[int, ...]) -> Refusal | None:
        question = site.request(EVALUATION, round_number, bit=round_number, openers=openers)
        return Masked(site.ready, path, evaluation_cohort="same").objection(question)

    assert ask(0, (1, 2, 3)) is None
    for openers, found in (((1, 2), "1 2"), ((1, 3), "1 3"), ((), "any large enough part of a set")):
        refusal = ask(2, openers)
        assert (refusal.term, refusal.asked, refusal.allowed) == ("evaluation_cohort", found, "1 2 3")
    assert ask(2, (1, 2, 3)) is None


def test_an_evaluation_that_a_part_of_those_asked_could_open_is_no_first_one(
    liar_for: type, tmp_path: Path
) -> None:
    site = liar_for()
    question = site.request(EVALUATION, 0)
    refusal = Masked(site.ready, tmp_path / "record", evaluation_cohort="same").objection(question)
    assert refusal.allowed == "one set of sites, all together"


# ------------------------------------------------------------------ the site's own count of attempts


def test_every_masked_training_sum_is_another_attempt_whatever_it_is_called(
    liar_for: type, tmp_path: Path
) -> None:
    site, counted = liar_for(), []
    for bit in (0, 0, 1):
        question = site.request(TRAINING, 1, bit=bit)
        counted.append(Masked(site.ready, tmp_path / "record").attempt(question))
    assert counted == [1, 2, 3]
    refusal = Masked(site.ready, tmp_path / "record").objection(question)
    assert (refusal.term, refusal.asked) == ("max_attempts", "attempt 4")
    # Another round begins anew, and so does another run: what a simulation draws, an undisturbed run draws.
    for number, run in ((2, 0), (1, 1)):
        question = site.request(TRAINING, number, run=run)
        assert Masked(site.ready, tmp_path / "record").attempt(question) == 1


def test_the_same_question_in_the_clear_is_the_same_attempt_and_has_the_same_answer(liar_for: type) -> None:
    site = liar_for()
    first, second = (site.ask(TRAINING, 1, attempt=stated) for stated in (1, 2))
    site.restart()
    assert first == second == site.ask(TRAINING, 1, attempt=1)
    # The numbers that the aggregator states are names and nothing more.
    assert site.ask(TRAINING, 2, attempt=5) == site.ask(TRAINING, 2, attempt=9)
    assert site.ask(TRAINING, 1, threshold=0.25) != first


def test_the_stated_attempt_draws_nothing(liar_for: type) -> None:
    site = liar_for()
    first = site.ask(TRAINING, 1, attempt=1)
    site.ready = replace(site.ready, site=replace(site.ready.site, state=site.ready.site.state / "other"))
    site.restart()
    assert first == site.ask(TRAINING, 1, attempt=200)
