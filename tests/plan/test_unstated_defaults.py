"""What a plan means that states neither a measure nor where its threshold begins: in files, workspaces, arrays."""

from collections.abc import Mapping

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from fedfair.api.arrays import BY_LOSS, federation_of
from fedfair.ids import ParticipantId
from fedfair.plan.derived import measure_of, threshold_beginning
from fedfair.plan.schema import Plan
from fedfair.plan.sections import EvaluationSection
from fedfair.run.saved_model import with_method, without_noise
from fedfair.simulation.site_comparison import local_plan
from fedfair.studies.advice.settings import setting_of
from fedfair.workspace.create import TEMPLATES, plan_text
from tests.plans import NAMES, Section, stated

EXCLUDES: dict[str, dict[str, Section]] = {
    "average training": {"training": {"algorithm": "fedavg"}},
    "another algorithm": {"training": {"algorithm": "localbpf", "server_optimizer": None}},
    "noise for records": {"privacy": {"sample_level": {"noise_multiplier": 1.0}}},
    "noise for sites": {
        "privacy": {"collaborator_level": {"noise_multiplier": 1.0, "clip": 1.0}},
        "training": {"weights": "uniform"},
    },
    "exact evaluation": {"evaluation": {"method": "exact"}},
    "a loss without an excess": {"task": {"loss": {"name": "huber", "target_range": [0, 1]}}},
}
USELESS: dict[str, dict[str, Section]] = {
    "everybody is the worst group": {"objective": {"worst_group_size": 1.0}},
    "the mean alone counts": {"objective": {"tradeoff": 1.0}},
    "a wider model": {"task": {"model": {"name": "mlp", "hidden": [33]}}},
    "a deeper model": {"task": {"model": {"name": "mlp", "hidden": [16, 16]}}},
    "a model of its own": {"task": {"model": "models:build"}},
}
EXCESS: dict[str, dict[str, Section]] = {
    "a linear model": {},
    "a small one": {"task": {"model": {"name": "mlp", "hidden": [31]}}},
    "a wider reference": {
        "task": {"model": {"name": "mlp", "hidden": [33]}},
        "objective": {"reference": {"hidden": [34]}},
    },
}


def plan(sections: Mapping[str, Section], **objective: object) -> Plan:
    """Return a plan that states neither key but what is given."""
    values = stated(NAMES, **sections)
    for section, key in (("objective", "measure"), ("training", "threshold_init")):
        if key not in sections.get(section, {}):
            del values[section][key]
    values["objective"] |= objective
    if "huber" in str(values):
        values["task"]["data"] = {"csv": {"target": "y", "numeric": ["x"]}}
    return Plan.model_validate(values)


@pytest.mark.parametrize("case", EXCESS)
def test_the_excess_is_measured_where_a_reference_can_say_more(case: str) -> None:
    assert measure_of(plan(EXCESS[case])) == setting_of(plan(EXCESS[case])).measure == "excess"
    assert measure_of(plan(EXCESS[case], reference=None, measure="loss")) == "loss"


@pytest.mark.parametrize("case", EXCLUDES)
def test_what_excludes_the_excess_leaves_the_loss_and_refuses_a_stated_excess(case: str) -> None:
    assert measure_of(plan(EXCLUDES[case])) == "loss"
    with pytest.raises(ValidationError, match="is excess"):
        plan(EXCLUDES[case], measure="excess")


@pytest.mark.parametrize("case", USELESS)
def test_where_a_reference_says_no_more_or_nobody_is_protected_it_is_the_loss_unless_stated(case: str) -> None:
    assert measure_of(plan(USELESS[case])) == "loss"
    assert measure_of(plan(USELESS[case], measure="excess")) == "excess"


@pytest.mark.parametrize("case", ["average training", "exact evaluation", "the mean alone counts"])
def test_a_reference_that_nothing_would_use_is_refused(case: str) -> None:
    with pytest.raises(ValidationError, match="measure: loss has no reference"):
        plan((EXCLUDES | USELESS)[case], reference={"folds": 3})


GIVEN = {"weights": f"sha256:{'0' * 64}"}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, "quantile"),
        ({"training": {"initial": GIVEN | {"same_sites": True}}}, "quantile"),
        ({"training": {"threshold_init": "bound"}}, "bound"),
        ({"training": {"threshold_init": 0.5}}, 0.5),
        ({"training": {"initial": GIVEN}}, "bound"),
        ({"training": {"initial": GIVEN, "threshold_init": "quantile"}}, "bound"),
        ({"training": {"initial": GIVEN | {"same_sites": True, "threshold": 0.4}}}, "bound"),
        *((EXCLUDES[case], "bound") for case in ("average training", "noise for records", "noise for sites")),
        (USELESS["the mean alone counts"], "bound"),
        ({"training": {"algorithm": "fedavg", "threshold_init": "quantile"}}, "quantile"),
    ],
)
def test_a_threshold_begins_at_the_first_evaluation_where_one_is_learnt_without_noise(
    sections: Mapping[str, Section], expected: object
) -> None:
    assert threshold_beginning(plan(sections)) == expected


def test_copies_without_noise_or_exactly_evaluated_measure_what_the_plan_measures() -> None:
    noised = plan(EXCLUDES["noise for records"])
    assert measure_of(without_noise(noised)) == measure_of(local_plan(noised, ParticipantId(NAMES[0]))) == "loss"
    assert measure_of(with_method(plan({}), exact=True)) == "excess"
    assert measure_of(with_method(plan(EXCLUDES["exact evaluation"]), exact=False)) == "loss"
    # Alone, a site minimises the plan's objective, of which another algorithm follows the loss.
    other = plan({"training": {"algorithm": "localbpf", "server_optimizer": None}})
    assert measure_of(local_plan(other, ParticipantId(NAMES[0]))) == "loss"


@pytest.mark.parametrize(
    ("task", "measure"),
    [
        ({"data": "own:records", "input_shape": [500], "classes": 2}, "excess"),
        # Each weight is two numbers of a masked sum.
        ({"data": "own:records", "input_shape": [900], "classes": 2}, "loss"),
        # Two references of 4096 times 32 weights: no masked sum has room for them.
        ({"data": "own:records", "input_shape": [1, 64, 64], "classes": 2}, "loss"),
        ({"data": {"csv": {"label": "y", "numeric": [f"c{place}" for place in range(1000)]}}}, "loss"),
        ({"data": {"mnist": {}}}, "loss"),
    ],
)
def test_references_that_fit_into_no_sum_are_not_trained_unasked(task: dict[str, object], measure: str) -> None:
    assert measure_of(plan({"task": task})) == measure


@pytest.mark.parametrize("template", [name for name, rounds in TEMPLATES.items() if rounds])
def test_a_new_plan_states_for_people_what_it_would_mean_without(template: str) -> None:
    values = yaml.safe_load(plan_text("heart", template))
    whole = Plan.model_validate(values)
    said = values["objective"].pop("measure"), values["training"].pop("threshold_init")
    assert values["evaluation"].pop("group_sizes") == list(EvaluationSection().group_sizes)
    short = Plan.model_validate(values)
    assert (
        (measure_of(short), threshold_beginning(short)) == said == (measure_of(whole), threshold_beginning(whole))
    )


def test_arrays_take_the_plans_defaults_and_by_the_loss_a_group_that_it_serves() -> None:
    features, labels = np.eye(8), np.arange(8) % 2
    usual = federation_of({"a": (features, labels)}, None, {}).plan
    assert (usual.objective.measure, usual.training.threshold_init) == (None, None)
    assert (measure_of(usual), threshold_beginning(usual)) == ("excess", "quantile")
    model = {"name": "mlp", "hidden": [64]}
    wide = federation_of({"a": (features, labels)}, None, {"task": {"model": model}}).plan
    assert measure_of(wide) == "loss"
    assert {key: getattr(wide.objective, key) for key in BY_LOSS} == BY_LOSS
    stated_loss = federation_of({"a": (features, labels)}, None, {"objective": {"measure": "loss"}}).plan
    assert stated_loss.objective.worst_group_size == usual.objective.worst_group_size
