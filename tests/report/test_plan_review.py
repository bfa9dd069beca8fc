"""Warnings about plans that are allowed and probably not meant."""

import json
from pathlib import Path

import pytest

from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import format_public_key
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.planned_releases import planned_releases
from fedfair.report.plan_review import plan_review
from fedfair.training.assembly import objective_of
from fedfair.training.freezing import freeze_plan
from tests import plans

# Nothing to warn about but that this version cannot mask sums yet.
PLAN = plans.stated(
    ["a", "b"], federation={"roster": {"a": format_public_key(b"a" * 32), "b": format_public_key(b"b" * 32)}},
    task={"data": "digits"}, objective={"worst_group_size": 0.4, "tradeoff": 0.0},
    training={"threshold_learning_rate": 0.02},
)  # fmt: skip


def plan(**sections: dict[str, object]) -> Plan:
    return Plan.model_validate(plans.over(PLAN, **sections))


def remarks(reviewed: Plan) -> tuple[str, ...]:
    review = plan_review(reviewed)
    return (*review.warnings, *review.notes)


@pytest.mark.parametrize(
    ("training", "warns"),
    [
        ({}, False), ({"schedule": "constant"}, False), ({"local_steps": 10}, False),
        ({"local_steps": 10, "schedule": "constant"}, True), ({"local_epochs": 1, "schedule": "constant"}, True),
        ({"server_optimizer": {"name": "sgd"}}, True), ({"server_optimizer": {"name": "momentum"}}, True),
    ],
)  # fmt: skip
def test_the_limit_of_the_threshold_is_that_of_plain_steps(training: dict[str, object], warns: bool) -> None:
    said = remarks(Plan.model_validate(plans.untuned(training={"rounds": 300, "learning_rate": 9.0, **training})))
    assert any("oscillate" in warning for warning in said) is warns


def test_threshold_rates_above_the_limit_are_warned_of_unless_they_never_move() -> None:
    assert remarks(plan()) == ()
    limit = objective_of(plan()).stable_threshold_learning_rate
    assert len(remarks(plan(training={"threshold_learning_rate": limit}))) == 0
    above = remarks(plan(training={"threshold_learning_rate": 0.0801}))
    assert above[0] == (
        "training.threshold_learning_rate is 0.0801, above the stable limit 0.08: the threshold may oscillate"
    )
    both = remarks(plan(training={"threshold_learning_rate": None, "learning_rate": 0.09}))
    assert both[0].startswith("training.learning_rate, which the threshold uses too, is 0.09, above the stable")
    assert len(remarks(plan(training={"threshold_learning_rate": None, "algorithm": "fedavg"}))) == 0
    for size, tradeoff in ((1.0, 0.0), (0.1, 1.0)):
        said = remarks(
            plan(
                objective={"worst_group_size": size, "tradeoff": tradeoff},
                training={"threshold_learning_rate": 9.0},
            )
        )
        assert not any("oscillate" in warning for warning in said)


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        ("secure_aggregation", {"mode": "off"}, "the aggregator sees every site's own update in the clear"),
        ("federation", {"min_collaborators": 1}, "a sum may hold a single collaborator"),
        ("federation", {"roster": {}}, "no signing key is pinned for a, b"),
        ("objective", {"tradeoff": 1}, "this is plain averaging"),
        ("objective", {"worst_group_size": 1}, "this is plain averaging"),
        ("training", {"batch_size": 2}, "a batch of 2 holds less than one record of the worst 40 %"),
    ],
)
def test_what_is_probably_not_meant_is_said(section: str, values: dict[str, object], expected: str) -> None:
    assert any(expected in warning for warning in remarks(plan(**{section: values})))


def test_the_price_of_differential_privacy_is_told_in_numbers() -> None:
    private = {"sample_level": {"noise_multiplier": 2.0, "clip": 1.0}}
    told = remarks(plan(privacy=private))
    # rho = 0.4 and eps = 0: the sensitivity is the root of 2.5^2 + 1.5^2, 2.915.
    assert len(told) == 1
    assert told[0].startswith(
        "privacy.sample_level adds noise of deviation 5.831 (noise_multiplier x 2.915, what one record can"
    )
    releases = planned_releases(plan(privacy=private), 1000)
    assert [(release.purpose, release.steps) for release in releases] == [("training", 1), ("evaluation", 2)]
    assert f"epsilon at a site is {epsilon(releases, 1e-5):.3g} with 1000" in told[0]


def test_notes_tell_standardised_images_and_small_groups() -> None:
    images = {"data": {"mnist": {}}, "standardize": "secure"}
    assert "no numeric columns: nothing will be standardised" in " ".join(remarks(plan(task=images)))
    for told in ({**images, "standardize": "none"}, {"standardize": "secure"}):
        assert not any("standardised" in warning for warning in remarks(plan(task=told)))
    said = remarks(plan(objective={"worst_group_size": 0.1}, training={"threshold_learning_rate": 0.01}))
    assert len(said) == 1
    assert said[0].startswith("worst_group_size is 10 %: by log-loss and with noisy labels, the best model for so")
    assert "`fedfair plan advise` finds the smallest size that makes sense" in said[0]
    # Plain averaging has no worst group that it was trained for.
    assert not any("plan advise" in one for one in remarks(plan(training={"algorithm": "fedavg"})))
    assert not any("plan advise" in one for one in remarks(plan(objective={"worst_group_size": 0.3})))
    private = {"sample_level": {"noise_multiplier": 2.0, "clipping": "joint"}}
    review = plan_review(plan(federation={"roster": {}}, privacy=private))
    assert [said.split()[0] for said in review.warnings] == ["privacy.sample_level.clipping"]
    assert [said.split(":")[0].split(" adds")[0] for said in review.notes] == [
        "privacy.sample_level",
        "no signing key is pinned for a, b",
    ]


def test_joint_clipping_and_simulations_are_warned_of() -> None:
    private = {"sample_level": {"noise_multiplier": 2.0, "clipping": "joint"}}
    assert any("clips away the weight of the worst group" in one for one in remarks(plan(privacy=private)))
    only = Plan.model_validate(plans.untuned(training={"algorithm": "dro"}))
    assert plan_review(only).warnings[0].startswith("simulation only: ")


NORMED = """
import torch

def batch(schema):
    return torch.nn.Sequential(torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))

def group(schema):
    return torch.nn.Sequential(torch.nn.GroupNorm(8, 64), torch.nn.Linear(64, 10))
"""


@pytest.mark.parametrize(
    ("norm", "parameters", "warns"),
    [("batch", None, True), ("group", None, False), ("batch", {"keep": ["0.*"]}, False)],
)
def test_running_statistics_that_would_be_averaged_are_named(
    tmp_path: Path, norm: str, parameters: dict[str, object] | None, warns: bool
) -> None:
    name = f"normed_{norm}_{warns}"
    (tmp_path / f"{name}.py").write_text(NORMED)
    task = {"model": f"{name}:{norm}", "input_shape": [64], "classes": 10}
    file = tmp_path / "plan" / "plan.yaml"
    file.parent.mkdir()
    file.write_text(json.dumps(plans.over(PLAN, task=task, training={"parameters": parameters, "output": "last"})))
    freeze_plan(file)
    said = [one for one in plan_review(load_plan(file), file).warnings if "the sums average" in one]
    assert len(said) == int(warns)
    assert all("0.running_mean, 0.running_var: the mean of sites' running statistics" in one for one in said)
