"""An aggregator that asks for what a site's policy forbids, and says of it whatever it likes: one test per term.

The liar speaks frames to the real receiving half of a stream, and the real worker answers: with an upload, or with
the term that refuses.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from collaborator.participation import worker_of
from collaborator.plain_worker import PlainWorker
from collaborator.preparation import Readiness, make_ready
from collaborator.request_record import RequestRecord
from collaborator.worker import Granted
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.requests import FeatureScaling
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import FedfairError, PlanError, RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.plan.purpose import Purpose
from fedfair.policy.decision import SiteRules
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import MASKED_EVALUATIONS_ON_DEMAND, MASKED_RUNS
from fedfair.policy.site_config import SitePolicy
from fedfair.wire.chunking import broadcast_frames
from fedfair.wire.frames import BroadcastKind, SumStart, Welcome
from fedfair.wire.receiving import ReceivedRequest, Receiver, RunScalings
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
        file = workspace.folder / "clinic-a.yaml"
        stated = yaml.safe_load(file.read_text())
        stated["policy"] |= policy
        own = folder / "clinic-a.yaml"
        stated["cert_folder"] = str(workspace.folder / "cert")
        stated["approval"] = str(workspace.folder / stated["approval"])
        own.write_text(yaml.safe_dump(stated))
        self.ready = make_ready(read_site("clinic-a", own, workspace.plan, None))
        self.numbers = itertools.count(1)
        self.answers = self._started()

    def _started(self) -> PlainWorker:
        answers = worker_of(self.ready)
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
        question = self.question(purpose, round_number, attempt, run, bit, threshold, on_demand=on_demand)
        self.answers.standing.expect(question)
        return self.answers._compute(question)

    def question(
        self,
        purpose: Purpose,
        round_number: int,
        attempt: int,
        run: int,
        bit: int,
        threshold: float,
        *,
        on_demand: bool,
    ) -> ReceivedRequest:
        """Return what one site understands of the frames."""
        receiver = Receiver(self.ready.shapes, SumNumber(0), RunScalings())
        receiver.take(Welcome(f"{run:032x}", 0, ROUNDS, on_demand))
        vector = np.array(self.ready.binding.vector)
        vector.view(np.uint64)[0] += bit
        raw = vector.astype("<f8").tobytes()
        digest = hashlib.sha256(raw).digest()
        for frame in broadcast_frames(BroadcastKind.MODEL, raw, digest, threshold):
            receiver.take(frame)
        digest = b"" if purpose is Purpose.STANDARDISATION else digest
        query = QueryStep(1, ()) if purpose is EXACT else None
        start = SumStart(SumNumber(next(self.numbers)), purpose, round_number, attempt, digest, 60, query)
        question = receiver.take(start)
        assert isinstance(question, ReceivedRequest)
        return question


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


@pytest.mark.parametrize("on_demand", [False, True])
def test_a_sum_that_the_plan_does_not_have(liar_for: type, on_demand: bool) -> None:
    site = liar_for()
    answer = site.ask(Purpose.STANDARDISATION, 0)
    assert refused(answer) == ("purposes", "standardisation", "training, evaluation, exact-evaluation")
    plain = site.ready.site.plan
    histogram = plain.evaluation.model_copy(update={"method": "histogram"})
    stated = plain.model_copy(update={"evaluation": histogram})
    specs = {purpose: spec for purpose, spec in site.ready.specs.items() if purpose is not EXACT}
    site.ready = replace(site.ready, site=replace(site.ready.site, plan=stated), specs=specs)
    site.restart()
    answer = site.ask(EXACT, ROUNDS, on_demand=on_demand)
    assert refused(answer) == ("purposes", "exact-evaluation", "training, evaluation")


def test_a_round_number_beyond_the_plan_ends_the_stream(liar_for: type) -> None:
    site = liar_for()
    for number in (ROUNDS + 1, 10**9):
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
    for attempt, bit in ((1, 0), (1, 1), (7, 1)):
        assert answered(site.ask(TRAINING, 1, attempt=attempt, bit=bit))
        site.restart()
    assert refused(site.ask(TRAINING, 1, attempt=1, bit=2)) == ("max_attempts", "attempt 4", "at most 3")
    assert answered(site.ask(TRAINING, 1, attempt=7, bit=1)), "the very same question has the very same answer"
    assert answered(site.ask(TRAINING, 2))


def test_a_run_too_many(liar_for: type) -> None:
    site = liar_for(max_runs=2)
    for run in (0, 1):
        assert answered(site.ask(EVALUATION, 0, run=run))
    site.restart()
    for purpose in (TRAINING, EVALUATION):
        assert refused(site.ask(purpose, 2, run=2)) == ("max_runs", "run 3", "at most 2")
    assert answered(site.ask(TRAINING, 1, run=1))


@pytest.mark.parametrize("number", [1, 3])
def test_an_evaluation_that_the_plan_does_not_make_due(liar_for: type, number: int) -> None:
    term, asked, allowed = refused(liar_for().ask(EVALUATION, number))
    assert (term, asked) == ("evaluation.every", f"round {number}")
    assert allowed == f"before round 1, after every {EVERY} rounds and after round {ROUNDS}"


@pytest.mark.parametrize("change", [{"bit": 1}, {"threshold": 0.25}])
def test_a_model_that_differs_in_one_bit_is_another_evaluation(liar_for: type, change: dict[str, float]) -> None:
    site = liar_for()
    assert answered(site.ask(EVALUATION, 2))
    assert answered(site.ask(EVALUATION, 2, attempt=2)), "the same model, after a sum that was lost"
    for _ in range(2):
        term, asked, allowed = refused(site.ask(EVALUATION, 2, **change))
        assert (term, asked, allowed) == ("evaluation.every", "model 2 of round 2", "1")
        site.restart()


def test_a_round_that_was_trained_again_after_a_crash_is_evaluated_again(liar_for: type) -> None:
    site = liar_for()
    for bit in (1, 2):
        assert answered(site.ask(TRAINING, 2, bit=bit))
        assert answered(site.ask(EVALUATION, 2, bit=10 + bit))
    assert refused(site.ask(EVALUATION, 2, bit=20))[0] == "evaluation.every"


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


def test_training_in_what_was_announced_as_an_evaluation_ends_the_stream(liar_for: type) -> None:
    with pytest.raises(RemoteProtocolError, match="announced as an evaluation only"):
        liar_for().ask(TRAINING, 1, on_demand=True)


class Masked:
    """The record of one masked site, in a process of its own for each question."""

    def __init__(self, ready: Readiness, path: Path, **policy: object) -> None:
        self._made = partial(_record, ready, path, policy)

    def ask(self, question: ReceivedRequest) -> Refusal | Granted:
        with closing(self._made()) as record:
            return record.admit(question)

    def objection(self, question: ReceivedRequest) -> Refusal | None:
        said = self.ask(question)
        return said if isinstance(said, Refusal) else None

    def attempt(self, question: ReceivedRequest) -> int:
        said = self.ask(question)
        assert isinstance(said, Granted)
        return said.attempt


def _record(ready: Readiness, path: Path, policy: Mapping[str, object]) -> RequestRecord:
    plan = ready.site.plan
    stated = plan.model_copy(
        update={"secure_aggregation": plan.secure_aggregation.model_copy(update={"mode": "malicious"})}
    )
    rules = SiteRules(stated, ready.binding.schema, SitePolicy.model_validate(policy), "clinic-a")
    return RequestRecord(path, rules)


def test_masked_runs_and_evaluations_on_demand_are_limited_where_a_policy_says_nothing(
    liar_for: type, tmp_path: Path
) -> None:
    site = liar_for()
    allowance = Masked(site.ready, tmp_path / "record")
    for on_demand, most, term in (
        (False, MASKED_RUNS, "max_runs"),
        (True, MASKED_EVALUATIONS_ON_DEMAND, "max_evaluations_on_demand"),
    ):
        asked = [site.question(EVALUATION, 0, 1, n, n, 0.0, on_demand=on_demand) for n in range(most + 1)]
        assert [allowance.objection(question) for question in asked[:most]] == [None] * most
        refusal = allowance.objection(asked[most])
        assert refusal is not None
        assert refusal.term == term


def test_another_scaling_of_the_features_is_another_model(liar_for: type, tmp_path: Path) -> None:
    site = liar_for()
    allowance = Masked(site.ready, tmp_path / "record")
    question = site.question(EVALUATION, EVERY, 1, 0, 0, 0.0, on_demand=False)
    assert allowance.objection(question) is None
    refusal = allowance.objection(replace(question, scaling=FeatureScaling(np.zeros(1), np.ones(1))))
    assert refusal is not None
    assert refusal.asked == f"model 2 of round {EVERY}"


def test_what_was_answered_survives_and_what_was_spoiled_is_refused(liar_for: type, tmp_path: Path) -> None:
    site, path = liar_for(), tmp_path / "record"
    question = site.question(TRAINING, 1, 1, 0, 0, 0.0, on_demand=False)
    assert Masked(site.ready, path, max_rounds=1).objection(question) is None
    allowance = Masked(site.ready, path, max_rounds=1)
    assert allowance.objection(question) is None
    assert allowance.objection(site.question(TRAINING, 2, 1, 0, 0, 0.0, on_demand=False)) is not None
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


def test_an_evaluation_over_other_sites_than_the_first_is_refused_where_a_site_says_so(
    liar_for: type, tmp_path: Path
) -> None:
    site, path = liar_for(), tmp_path / "record"

    def ask(round_number: int, openers: tuple[int, ...]) -> Refusal | None:
        question = site.question(EVALUATION, round_number, 1, 0, round_number, 0.0, on_demand=False)
        allowance = Masked(site.ready, path, evaluation_cohort="same")
        return allowance.objection(replace(question, openers=openers))

    assert ask(0, (1, 2, 3)) is None
    for openers, found in (((1, 2), "1 2"), ((1, 3), "1 3"), ((), "any large enough part of a set")):
        refusal = ask(2, openers)
        assert refusal is not None
        assert (refusal.term, refusal.asked, refusal.allowed) == ("evaluation_cohort", found, "1 2 3")
    assert ask(2, (1, 2, 3)) is None


def test_an_evaluation_that_a_part_of_those_asked_could_open_is_no_first_one_either(
    liar_for: type, tmp_path: Path
) -> None:
    site = liar_for()
    question = site.question(EVALUATION, 0, 1, 0, 0, 0.0, on_demand=False)
    refusal = Masked(site.ready, tmp_path / "record", evaluation_cohort="same").objection(question)
    assert refusal is not None
    assert refusal.allowed == "one set of sites, all together"


# ------------------------------------------------------------------ the site's own count of attempts


def test_every_masked_training_sum_is_another_attempt_whatever_the_aggregator_calls_it(
    liar_for: type, tmp_path: Path
) -> None:
    site, counted = liar_for(), []
    for stated, bit in ((1, 0), (1, 0), (1, 1)):
        question = site.question(TRAINING, 1, stated, 0, bit, 0.0, on_demand=False)
        counted.append(Masked(site.ready, tmp_path / "record").attempt(question))
    assert counted == [1, 2, 3]
    refusal = Masked(site.ready, tmp_path / "record").objection(question)
    assert refusal is not None
    assert (refusal.term, refusal.asked) == ("max_attempts", "attempt 4")
    # Another round begins anew, and so does another run: what a simulation draws, an undisturbed run draws.
    for number, run in ((2, 0), (1, 1)):
        question = site.question(TRAINING, number, 7, run, 0, 0.0, on_demand=False)
        assert Masked(site.ready, tmp_path / "record").attempt(question) == 1


def test_the_same_question_in_the_clear_is_the_same_attempt_and_has_the_same_answer(liar_for: type) -> None:
    site = liar_for()
    first, second = (site.ask(TRAINING, 1, attempt=stated) for stated in (1, 2))
    site.restart()
    again = site.ask(TRAINING, 1, attempt=1)
    assert first != second
    assert first == again
    # The numbers that the aggregator states are names and nothing more.
    assert site.ask(TRAINING, 2, attempt=5) != site.ask(TRAINING, 2, attempt=9)


def test_the_stated_attempt_draws_nothing(liar_for: type) -> None:
    site = liar_for()
    first = site.ask(TRAINING, 1, attempt=1)
    site.ready = replace(site.ready, site=replace(site.ready.site, state=site.ready.site.state / "other"))
    site.restart()
    assert first == site.ask(TRAINING, 1, attempt=200)
