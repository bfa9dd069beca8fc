"""What a site has answered is counted by rows exactly as by sets in memory, and outlives every kill."""

import hashlib
import pickle
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collaborator.site_history import RequestRecord
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.privacy import PrivacySection, SampleLevelSection
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import key
from fedfair.policy.decision import SiteRules
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import Admitted, RequestLimits
from fedfair.policy.site_config import SitePolicy
from fedfair.statistics.table import Purpose
from tests.patience import PATIENCE
from tests.plans import small_plan
from tests.policy.slow_request_limits import SlowRequestLimits

PLAIN = Plan.model_validate(small_plan(rounds=6))
MASKED = Plan.model_validate(small_plan(rounds=6, protection={"mode": "malicious"}))
MASKED_SOME = MASKED.model_copy(
    update={"federation": MASKED.federation.model_copy(update={"min_collaborators": 2})}
)
NOISED = MASKED.model_copy(
    update={"privacy": PrivacySection(sample_level=SampleLevelSection(noise_multiplier=1.0))}
)
"""The rules ask whether the plan adds noise, and nothing more."""


def rules_of(plan: Plan, policy: SitePolicy) -> SiteRules:
    return SiteRules(plan, FeatureSchema((30,), 2, tuple(range(30))), policy, "clinic-a", 100)


def question(
    purpose: Purpose = Purpose.TRAINING,
    round_number: int = 1,
    state: int = 0,
    run: str = "a",
    model: int = 0,
    *,
    on_demand: bool = False,
    openers: tuple[int, ...] = (1, 2, 3),
    number: int = 1,
) -> AggregationRequest:
    step = QueryStep(number, () if number == 1 else (0, 0, 0))
    return AggregationRequest(
        run=run,
        on_demand=on_demand,
        purpose=purpose,
        round=round_number,
        query=step if purpose is Purpose.EXACT_EVALUATION else None,
        state=hashlib.sha256(b"state %d" % state).digest(),
        model_sha256=hashlib.sha256(b"model %d" % model).digest(),
        openers=openers,
    )


limits = st.none() | st.integers(1, 4)
policies = st.builds(
    lambda **stated: SitePolicy.model_validate(stated),
    max_rounds=limits,
    max_runs=limits,
    max_attempts=st.integers(1, 4),
    max_evaluations=limits,
    max_evaluations_on_demand=st.none() | st.integers(0, 4),
    evaluation_cohort=st.sampled_from(["any", "same"]),
)
questions = st.builds(
    question,
    st.sampled_from(Purpose),
    st.sampled_from([1, 5, 6]),
    st.integers(1, 2),
    st.sampled_from("abcd"),
    st.integers(0, 3),
    on_demand=st.booleans(),
    openers=st.sampled_from([(), (1, 2), (1, 2, 3)]),
    number=st.integers(1, 2),
)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([PLAIN, MASKED, MASKED_SOME, NOISED]), policies, st.lists(questions, max_size=25))
def test_rows_of_a_table_decide_as_sets_do(
    plan: Plan, policy: SitePolicy, asked: list[AggregationRequest]
) -> None:
    table: dict[bytes, bytes] = {}
    slow = SlowRequestLimits(plan, policy, "clinic-a")
    for each in asked:
        # A process that starts anew for each question: it knows nothing but the table.
        said, expected = RequestLimits(table, plan, policy, "clinic-a").decide(each), slow.objection(each)
        if isinstance(said, Admitted):
            assert expected is None
            assert said.attempt == slow.attempt(each)
            table.update(said.rows)
        else:
            assert said == expected


@pytest.mark.parametrize(
    ("plan", "attempts"),
    [(PLAIN, [1, 1, 1, 1]), (MASKED, [1, 2, 1, 3]), (MASKED_SOME, [1, 2, 3, 4])],
    ids=["plain", "masked", "of some"],
)
def test_a_round_about_another_state_is_another_attempt_but_in_the_clear(plan: Plan, attempts: list[int]) -> None:
    # A plain sum depends on the order of arrival, so a round that a crash repeats may be about another state. If
    # some sites suffice, another run is another attempt as well.
    table: dict[bytes, bytes] = {}
    for expected, run, state in zip(attempts, "aaba", (0, 1, 0, 0), strict=True):
        asked = question(run=run, state=state, model=state)
        said = RequestLimits(table, plan, SitePolicy(), "clinic-a").decide(asked)
        assert said.attempt == expected
        table.update(said.rows)


def test_a_record_knows_the_states_about_which_it_has_answered_also_in_a_new_process(tmp_path: Path) -> None:
    path, asked, refused = tmp_path / "a.answered", question(state=3), question(state=4, run="b")
    policy = SitePolicy(max_runs=1)
    with closing(RequestRecord(path, rules_of(MASKED, policy))) as record:
        assert not record.has_answered(asked.state)
        assert record.admit(asked) == 1
        assert isinstance(record.admit(refused), Refusal)
    with closing(RequestRecord(path, rules_of(MASKED, policy))) as record:
        assert record.has_answered(asked.state)
        assert not record.has_answered(refused.state)
    assert not record.has_answered(asked.state), "a record that was closed has nothing to say"


def test_the_same_fields_of_another_kind_of_fact_and_other_fields_have_other_keys() -> None:
    keys = [key("run", "a"), key("round", "a"), key("run", "a", ""), key("run", "", "a"), key("run", "a", near=1)]
    assert len(set(keys)) == len(keys)


KILLED = """
import os, pickle, signal, sys
from pathlib import Path
from collaborator.site_history import RequestRecord
rules, asked = pickle.loads(sys.stdin.buffer.read())
for _ in range(2):
    process = os.fork()
    if process == 0:
        record = RequestRecord(Path(sys.argv[1]), rules)
        record.admit(asked)
        os.kill(os.getpid(), signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


def test_a_kill_between_the_record_and_the_answer_grants_no_attempt_anew(tmp_path: Path) -> None:
    path, policy = tmp_path / "state" / "a.answered", SitePolicy(max_attempts=3)
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], check=True, stdout=subprocess.PIPE, timeout=PATIENCE,
        input=pickle.dumps((rules_of(MASKED, policy), question())),
    ).stdout  # fmt: skip
    assert told.split() == [b"-9", b"-9"]
    with closing(RequestRecord(path, rules_of(MASKED, policy))) as record:
        assert record.admit(question()) == 3
        refusal = record.admit(question())
    assert refusal.term == "max_attempts"


def test_a_step_that_goes_on_from_nothing_is_refused_and_leaves_no_row(tmp_path: Path) -> None:
    path, policy = tmp_path / "a.answered", SitePolicy(reveals=("update-sums", "loss-sums", "loss-quantiles"))
    plan = MASKED.model_copy(update={"evaluation": MASKED.evaluation.model_copy(update={"method": "exact"})})
    step = {"purpose": Purpose.EXACT_EVALUATION, "round_number": 6}
    with closing(RequestRecord(path, rules_of(plan, policy))) as record:
        for _ in range(9):
            refusal = record.admit(question(**step, number=2))  # type: ignore[arg-type]  # of a dict
            assert refusal.term == "exact-evaluation"
        assert record.admit(question(**step)) == 1  # type: ignore[arg-type]  # of a dict


def test_a_record_that_was_closed_answers_nothing_more(tmp_path: Path) -> None:
    record = RequestRecord(tmp_path / "a.answered", rules_of(MASKED, SitePolicy()))
    record.close()
    refusal = record.admit(question())
    assert "withdrawing" in refusal.reason


@pytest.mark.parametrize("rounds", [1, 3000])
def test_an_answer_reads_and_writes_as_many_rows_after_many_rounds_as_after_few(rounds: int) -> None:
    reads: list[bytes] = []

    class Counted(dict[bytes, bytes]):
        def get(self, found: bytes, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
            reads.append(found)
            return super().get(found, default)

    table = Counted()
    plan = Plan.model_validate(small_plan(rounds=rounds, protection={"mode": "malicious"}))
    allowance = RequestLimits(table, plan, SitePolicy(), "clinic-a")
    for number in range(1, rounds + 1):
        reads.clear()
        said = allowance.decide(question(round_number=number, state=number))
        assert len(said.rows) <= 7
        assert len(reads) <= 12
        table.update(said.rows)
