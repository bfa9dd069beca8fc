"""Plans that a program changes: some keys over others, checked as a file's are."""

from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.plan.sections import ObjectiveSection
from tests.plans import small_plan


def test_the_stated_keys_change_and_all_others_stay(tmp_path: Path) -> None:
    plan = Plan.model_validate(small_plan(rounds=3))
    changed = plan.with_(training={"rounds": 7}, objective=ObjectiveSection(tradeoff=0.2))
    assert (changed.training.rounds, changed.objective.tradeoff) == (7, 0.2)
    assert changed.with_(training={"rounds": 3}, objective=plan.objective.model_dump()) == plan
    assert plan.with_() == plan
    file = tmp_path / "plan" / "plan.yaml"
    file.parent.mkdir()
    file.write_text(plan.model_dump_json(exclude_unset=True))
    assert load_plan(file).with_(training={"rounds": 7}).workspace == tmp_path


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"training": {"rounds": -1}}, "the changed plan: training.rounds: must be >= 1, found -1"),
        ({"training": {"round": 2}}, "training.round: unknown key -> did you mean 'rounds'?"),
        ({"trainin": {}}, "'trainin' is no section of a plan"), ({"training": 3}, "training is 3, not a section"),
    ],
)  # fmt: skip
def test_a_plan_that_breaks_a_rule_is_refused(sections: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.model_validate(small_plan()).with_(**sections)
    assert words in str(refused.value)
