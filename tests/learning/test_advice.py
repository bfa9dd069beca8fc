"""Warnings about plans that are allowed and probably not meant."""

from __future__ import annotations

import math

import pytest

from fedfair.learning.advice import advice, stable_threshold_rate
from fedfair.plan.keys import format_public_key
from fedfair.plan.schema import Plan

# Nothing to warn about but that this version cannot mask sums yet.
PLAN: dict[str, dict[str, object]] = {
    "federation": {
        "name": "heart",
        "collaborators": ["a", "b"],
        "roster": {"a": format_public_key(b"a" * 32), "b": format_public_key(b"b" * 32)},
    },
    "task": {"data": "digits", "model": {"name": "linear"}},
    "objective": {"worst_group_size": 0.1, "tradeoff": 0.0},
    "training": {"rounds": 1, "threshold_learning_rate": 0.02},
}


def plan(**sections: dict[str, object]) -> Plan:
    return Plan.model_validate(
        {name: {**PLAN.get(name, {}), **sections.get(name, {})} for name in {**PLAN, **sections}}
    )


def test_a_plan_without_surprises_has_no_warning() -> None:
    assert advice(plan()) == ()


def test_the_stable_rate_of_softplus_is_four_gamma_rho_over_one_minus_epsilon() -> None:
    # 4 * 0.05 * 0.1 / (1 - 0.5); a product of few floats, so a few units in the last place.
    found = stable_threshold_rate(plan(objective={"tradeoff": 0.5}))
    assert found == pytest.approx(4 * 0.05 * 0.1 / 0.5, rel=1e-14)
    assert stable_threshold_rate(plan(objective={"tradeoff": 1})) == math.inf


def test_a_threshold_rate_at_the_limit_passes_and_above_it_warns() -> None:
    limit = stable_threshold_rate(plan())
    assert len(advice(plan(training={"threshold_learning_rate": limit}))) == 0
    above = advice(plan(training={"threshold_learning_rate": 0.0201}))
    assert above[0] == (
        "training.threshold_learning_rate is 0.0201, above the stable limit 0.02: the threshold may oscillate"
    )
    both = advice(plan(training={"threshold_learning_rate": None, "learning_rate": 0.05}))
    assert both[0].startswith("training.learning_rate, which the threshold uses too, is 0.05, above the stable")
    assert len(advice(plan(training={"threshold_learning_rate": None, "algorithm": "fedavg"}))) == 0


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        ("secure_aggregation", {"mode": "off"}, "the aggregator sees every site's own update in the clear"),
        ("federation", {"min_collaborators": 1}, "a sum may hold a single collaborator"),
        ("federation", {"roster": {}}, "no signing key is pinned for a, b"),
        ("objective", {"tradeoff": 1}, "this is plain averaging"),
        ("objective", {"worst_group_size": 1}, "this is plain averaging"),
        ("training", {"batch_size": 9}, "a batch of 9 holds less than one record of the worst 10 %"),
        ("training", {"output": "best"}, "output is best without a validation_fraction"),
    ],
)
def test_what_is_probably_not_meant_is_said(section: str, values: dict[str, object], expected: str) -> None:
    assert any(expected in warning for warning in advice(plan(**{section: values})))
