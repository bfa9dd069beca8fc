"""A plan of statistics: what it need not state, and every way in which it cannot be meant."""

from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from fedfair.plan.derived import PrivacyLevel, is_unevaluated, measures_excess, privacy_level, trains
from fedfair.plan.description import summary
from fedfair.plan.digest import canonical_plan
from fedfair.plan.schedule import DueSum, schedule_of
from fedfair.plan.schema import Plan
from fedfair.policy.disclosures import of_run
from fedfair.report.plan_review import plan_review
from fedfair.statistics.table import Purpose
from tests.statistics_plans import NAMES, stated

Values = Mapping[str, object]


def over(values: dict[str, object], section: str, keys: Values) -> dict[str, object]:
    held = values.get(section, {})
    assert isinstance(held, dict)
    return {**values, section: {**held, **keys}}


def test_it_states_no_model_and_no_training_and_its_run_is_one_sum() -> None:
    plan = Plan.model_validate(stated())
    assert not trains(plan)
    assert list(schedule_of(plan).sums()) == [DueSum(Purpose.COLUMN_STATISTICS, 0)]
    assert (is_unevaluated(plan), measures_excess(plan)) == (True, False)
    assert privacy_level(plan) is PrivacyLevel.STATISTICS
    # What was filled in is no second plan.
    for told in (plan.model_dump(exclude_unset=True), plan.model_dump(), plan.model_dump(mode="json")):
        assert canonical_plan(Plan.model_validate(told)) == canonical_plan(plan)
        assert Plan.model_validate(told) == plan
    told = dict(summary(plan))
    assert {"learns", "minimises", "trains", "evaluates"}.isdisjoint(told)
    assert "epsilon 1 at delta 1e-05 for all numbers together" in told["differential privacy"]


def test_noise_and_none_make_different_things_known() -> None:
    noised, exact = (Plan.model_validate(stated(epsilon=epsilon)) for epsilon in (1.0, None))
    assert of_run(noised) == {"column-statistics": "statistics"}
    assert of_run(exact) == {"exact-statistics": "statistics"}
    assert "NONE" in dict(summary(exact))["differential privacy"]
    assert "WITHOUT NOISE" in dict(summary(exact))["leaves a site"]


def test_a_check_says_what_min_group_promises_and_what_not() -> None:
    (noised,) = (note for note in plan_review(Plan.model_validate(stated())).notes if "min_group" in note)
    assert "for every attempt at their sum" in noised
    assert "one of fewer than 20 records is with a chance of 1% at most" in noised
    assert "not from the aggregator and the sites, which know the opened sum: there noise alone protects" in noised
    (exact,) = (
        note for note in plan_review(Plan.model_validate(stated(epsilon=None))).notes if "min_group" in note
    )
    assert "carry no noise: every site must allow exact-statistics" in exact


@pytest.mark.parametrize(
    ("section", "keys", "fault"),
    [
        ("training", {"rounds": 3}, "is 3, and a plan of statistics trains nothing"),
        ("training", {"learning_rate": 0.5}, "is stated, and a plan of statistics trains nothing"),
        ("objective", {"tradeoff": 0.5}, "neither model nor evaluation"),
        ("evaluation", {"every": 2}, "neither model nor evaluation"),
        ("privacy", {"sample_level": {"noise_multiplier": 1.0}}, "neither model nor evaluation"),
        ("secure_aggregation", {"mode": "off"}, "the aggregator would see each site's own statistics"),
        ("federation", {"min_collaborators": 1, "collaborators": ["a", "b", "c"]}, "no honest noise"),
        ("task", {"data": "breast-cancer"}, "statistics are of columns that the plan declares"),
        ("task", {"test_fraction": 0.2}, "statistics are of all records"),
        ("task", {"survey": True}, "a sum of their own"),
        ("task", {"standardize": "secure"}, "nothing is scaled without a model"),
        ("statistics", {"columns": {"colour": {"count": True}}}, "column 'colour' is not declared"),
        ("statistics", {"columns": {"age": {}}}, "asks for nothing"),
        ("statistics", {"columns": {"age": {"count": True}}}, "column 'age' holds numbers"),
        ("statistics", {"columns": {"sex": {"mean": True}}}, "column 'sex' holds categories"),
        ("statistics", {"columns": {"sex": {"bins": [0, 1]}}}, "column 'sex' holds categories"),
        ("statistics", {"columns": {"age": {"mean": True}}}, "csv.ranges has no range of this column"),
        ("statistics", {"columns": {"age": {"bins": [20, 20]}}}, "20 follows 20"),
        ("statistics", {"columns": {"age": {"mean": True, "between": [9, 2]}}}, "from 9 to 2 is no range"),
        ("statistics", {"columns": {"age": {"bins": [0, 9], "between": [0, 9]}}}, "no mean is asked for"),
        ("statistics", {"by": "age"}, "column 'age' is no category"),
        ("statistics", {"epsilon": -1.0}, "greater than 0"),
        ("statistics", {"columns": {}}, "at least 1"),
    ],
)
def test_every_mistake_is_named(section: str, keys: Values, fault: str) -> None:
    values = over(stated(), section, keys)
    if "no honest noise" in fault:
        values = over(values, "secure_aggregation", {"colluders": 1})
    with pytest.raises(ValidationError, match=fault.replace("(", r"\(")):
        Plan.model_validate(values)


def test_without_noise_two_other_sites_must_be_left_in_a_sum() -> None:
    with pytest.raises(
        ValidationError, match="a sum may be of 2 collaborators, and 3 are the fewest without noise"
    ):
        Plan.model_validate(over(stated(epsilon=None), "federation", {"min_collaborators": 2}))
    Plan.model_validate(over(stated(), "federation", {"min_collaborators": 2}))


def test_whether_there_is_noise_has_no_default() -> None:
    values = stated()
    del values["statistics"]["epsilon"]  # type: ignore[attr-defined]
    with pytest.raises(ValidationError, match="epsilon"):
        Plan.model_validate(values)


def test_a_sum_with_more_numbers_than_masks_have_room_for_is_refused() -> None:
    table = {"numeric": [f"c{place}" for place in range(40)], "categorical": {"sex": ["F", "M"]}}
    columns = {name: {"bins": list(range(400))} for name in table["numeric"]}
    with pytest.raises(ValidationError, match="asks for 48243 numbers, and a masked sum has room for 30000"):
        Plan.model_validate(stated(table=table, columns=columns, by="sex"))


def test_a_plan_that_trains_still_needs_its_label_and_its_model() -> None:
    values: dict[str, object] = {
        "federation": {"name": "wards", "collaborators": list(NAMES)},
        "task": {"data": {"csv": {"label": None, "numeric": ["age"]}}, "model": {"name": "linear"}},
        "training": {"rounds": 1},
    }
    with pytest.raises(ValidationError, match="is null"):
        Plan.model_validate(values)
    with pytest.raises(ValidationError, match="Field required"):
        Plan.model_validate({**values, "task": {"data": "breast-cancer"}})
    with pytest.raises(ValidationError, match="Field required"):
        Plan.model_validate({"federation": values["federation"], "task": values["task"]})
