"""The difference of two plans: every key of the digest and nothing else, each with what it is about."""

import pytest

from fedfair.plan.difference import ABSENT, Concern, changed_keys, concern_of, is_same_plan
from fedfair.plan.schema import Plan
from tests.plans import Section, stated

CSV = {"label": "died", "numeric": ["age"], "categorical": {"sex": ["F", "M"], "ward": ["a", "b"]}}


def plan(**sections: Section) -> Plan:
    return Plan.model_validate(stated(**sections), strict=False)


def test_changed_keys_come_in_the_order_of_the_plan_and_defaults_are_none() -> None:
    found = changed_keys(plan(), plan(training={"rounds": 7}, secure_aggregation={"colluders": 1}))
    assert [(one.key, one.old, one.new) for one in found] == [
        ("training.rounds", 1, 7), ("secure_aggregation.colluders", 0, 1),
    ]  # fmt: skip
    assert [one.concern for one in found] == [Concern.COMPUTATION, Concern.SECRECY]
    written = plan(training={"local_steps": 1, "seed": 0}, evaluation={"every": 10})
    assert changed_keys(plan(), written) == ()
    assert is_same_plan(plan(), written)


def test_a_key_that_only_one_plan_has_is_absent_in_the_other() -> None:
    old = plan(federation={"roster": {}})
    noised = plan(privacy={"sample_level": {"noise_multiplier": 1.0, "clip": 1.0}}, training={"batch_size": 32})
    found = {one.key: one for one in changed_keys(old, noised)}
    assert found["privacy.sample_level"].old is None
    assert found["privacy.sample_level"].concern is Concern.PRIVACY
    more = plan(
        task={"data": {"csv": {**CSV, "categorical": {"sex": ["F", "M"], "ward": ["a", "b"], "x": ["1"]}}}}
    )
    found = {one.key: one for one in changed_keys(plan(task={"data": {"csv": CSV}}), more)}
    assert found["task.data.csv.categorical.x"].old is ABSENT
    assert found["task.data.csv.categorical.x"].new == ["1"]


@pytest.mark.parametrize(
    ("key", "concern"),
    [
        ("federation.collaborators", Concern.MEMBERSHIP), ("federation.roster.clinic-a", Concern.MEMBERSHIP),
        ("secure_aggregation.mode", Concern.SECRECY), ("privacy.sample_level.clip", Concern.PRIVACY),
        ("evaluation.site_means", Concern.PRIVACY), ("evaluation.every", Concern.COMPUTATION),
        ("evaluation.scores", Concern.PRIVACY), ("task.model.name", Concern.COMPUTATION),
    ],
)  # fmt: skip
def test_each_key_is_about_one_thing(key: str, concern: Concern) -> None:
    assert concern_of(key) is concern


def test_orders_of_categories_are_differences_exactly_as_for_the_digest() -> None:
    turned = {**CSV, "categorical": {"ward": ["a", "b"], "sex": ["F", "M"]}}
    old, new = plan(task={"data": {"csv": CSV}}), plan(task={"data": {"csv": turned}})
    assert not is_same_plan(old, new)
    assert [(one.key, one.old, one.new) for one in changed_keys(old, new)] == [
        ("task.data.csv.categorical", ["sex", "ward"], ["ward", "sex"])
    ]
    variants = [
        plan(), plan(training={"rounds": 2}), plan(objective={"tradeoff": 0.5}), plan(task={"data": {"csv": CSV}}),
        plan(secure_aggregation={"mode": "off"}), plan(federation={"min_collaborators": 2}),
    ]  # fmt: skip
    for old in variants:
        for new in variants:
            assert (changed_keys(old, new) == ()) is is_same_plan(old, new)
