"""When a plan makes an evaluation due, against the order in words, spelt out round by round."""

from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation import radix_select
from fedfair.plan.privacy import CollaboratorLevelSection
from fedfair.plan.schedule import DueSum, schedule_of
from fedfair.plan.schema import Plan
from fedfair.statistics.table import Purpose


def plan(rounds: int, every: int, output: str, method: str) -> Plan:
    return Plan.model_validate(
        {
            "federation": {"name": "heart", "collaborators": ["clinic-a", "clinic-b"]},
            "task": {"data": "breast-cancer", "model": {"name": "linear"}},
            "training": {"rounds": rounds, "output": output},
            "evaluation": {"every": every, "method": method},
        }
    )


@given(
    st.integers(1, 12), st.integers(1, 15), st.sampled_from(["last", "best", "average", "tail"]),
    st.sampled_from(["histogram", "exact"]),
)  # fmt: skip
def test_a_run_evaluates_before_it_in_it_and_after_it(rounds: int, every: int, output: str, method: str) -> None:
    expected = {0: 1}
    since = 0
    for done in range(1, rounds + 1):
        since += 1
        if since == every or done == rounds:
            expected[done] = 1
        since = 0 if since == every else since
    first = {"average": 0, "tail": rounds // 2}.get(output)
    if first is not None:
        # The mean of many models is another one than the last; that of one may have been evaluated before, but not
        # with the threshold that the evaluation before round 1 gives.
        known = first == rounds - 1 and first in expected and first > 0
        expected[rounds] += not known
    schedule = schedule_of(plan(rounds, every, output, method))
    for done in range(rounds + 1):
        assert schedule.models(Purpose.EVALUATION, done) == expected.get(done, 0)
    exact = [done for done in range(rounds + 1) if schedule.models(Purpose.EXACT_EVALUATION, done)]
    assert exact == ([rounds] if method == "exact" else [])


def test_the_sums_of_a_run_are_told_in_order() -> None:
    stated = plan(3, 2, "average", "exact")
    standardising = stated.model_copy(update={"task": stated.task.model_copy(update={"standardize": "secure"})})
    exact = [DueSum(Purpose.EXACT_EVALUATION, 3, step) for step in (1, 2, 3, 4)]
    assert list(schedule_of(standardising).sums()) == [
        DueSum(Purpose.STANDARDISATION, 0), DueSum(Purpose.EVALUATION, 0), DueSum(Purpose.TRAINING, 1),
        DueSum(Purpose.TRAINING, 2), DueSum(Purpose.EVALUATION, 2), DueSum(Purpose.TRAINING, 3),
        DueSum(Purpose.EVALUATION, 3), DueSum(Purpose.EVALUATION, 3), *exact,
    ]  # fmt: skip
    assert Purpose.EXACT_EVALUATION.statistic.steps == radix_select.STEPS


def test_a_plan_that_protects_whole_collaborators_makes_no_evaluation_due() -> None:
    stated = plan(4, 1, "last", "histogram")
    section = CollaboratorLevelSection(noise_multiplier=1.0, clip=1.0)
    private = stated.privacy.model_copy(update={"collaborator_level": section})
    protected = stated.model_copy(update={"privacy": private})
    assert schedule_of(protected).purposes == (Purpose.TRAINING,)
    assert schedule_of(protected).total(Purpose.EVALUATION) == 0
