"""When a plan makes an evaluation due, against the order in words, spelt out round by round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.plan.due import due_in_words, evaluated_models, exactly_evaluated_models
from fedfair.plan.privacy import CollaboratorLevelSection
from fedfair.plan.schema import Plan
from tests import plans


def plan(rounds: int, every: int, output: str, method: str) -> Plan:
    return plans.parsed(
        training={"rounds": rounds, "output": output}, evaluation={"every": every, "method": method}
    )


@given(
    st.integers(1, 12),
    st.integers(1, 15),
    st.sampled_from(["last", "best", "average", "tail"]),
    st.sampled_from(["histogram", "exact"]),
)
def test_a_run_evaluates_before_it_in_it_and_after_it(rounds: int, every: int, output: str, method: str) -> None:
    expected = {0: 1}
    since = 0
    for done in range(1, rounds + 1):
        since += 1
        if since == every or done == rounds:
            expected[done] = 1
        since = 0 if since == every else since
    if output in {"average", "tail"}:
        expected[rounds] += 1  # The mean of many models is another one than the last.
    stated = plan(rounds, every, output, method)
    assert {done: evaluated_models(stated, done) for done in range(rounds + 1)} == {
        done: expected.get(done, 0) for done in range(rounds + 1)
    }
    exact = [done for done in range(rounds + 1) if exactly_evaluated_models(stated, done)]
    assert exact == ([rounds] if method == "exact" else [])


def test_a_plan_that_protects_whole_collaborators_makes_no_evaluation_due() -> None:
    stated = plan(4, 1, "last", "histogram")
    section = CollaboratorLevelSection(noise_multiplier=1.0, clip=1.0)
    private = stated.privacy.model_copy(update={"collaborator_level": section})
    protected = stated.model_copy(update={"privacy": private})
    assert [evaluated_models(protected, done) for done in range(5)] == [0] * 5


@pytest.mark.parametrize("every", [1, 10])
def test_when_is_said_in_words(every: int) -> None:
    words = due_in_words(plan(30, every, "last", "histogram"))
    assert words == f"before round 1, after every {every} rounds and after round 30"
