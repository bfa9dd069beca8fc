"""The plan's schema: the reference plan loads unchanged, and types are strict."""

import base64
import math

import pytest
from pydantic import BaseModel, ValidationError

from fedfair.plan.meanings import meanings
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.plan.task import MlpModel, TaskSection
from tests import plans


def minimal(**sections: dict[str, object]) -> dict[str, object]:
    """Return the smallest plan with some sections extended."""
    return dict(plans.stated(**sections))


def faults(**sections: dict[str, object]) -> list[tuple[str, ...]]:
    with pytest.raises(ValidationError) as caught:
        Plan.model_validate(minimal(**sections))
    return [tuple(str(part) for part in error["loc"]) for error in caught.value.errors()]


def test_the_smallest_plan_has_its_defaults_and_survives_a_journey() -> None:
    plan = Plan.model_validate(minimal())
    assert plan.objective.worst_group_size == 0.1
    assert plan.objective.tradeoff == 0.05
    assert (plan.objective.smoothing.name, plan.objective.smoothing.gamma) == ("softplus", 0.05)
    assert (plan.training.batch_size, plan.training.learning_rate, plan.training.local_steps) == (64, 0.05, 1)
    assert plan.evaluation.group_sizes == (0.05, 0.1, 0.2, 0.3, 0.5)
    assert plan.secure_aggregation.mode == "malicious"
    assert plan.federation.min_collaborators is None
    data = {"csv": {"label": "died", "numeric": ["age"], "categorical": {"sex": ["F", 1, True, 0.5]}}}
    plan = Plan.model_validate(minimal(task={"data": data, "model": {"name": "mlp", "hidden": [8, 4]}}))
    assert Plan.model_validate(plan.model_dump()) == plan
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert isinstance(plan.task.data, CsvSource)
    assert plan.task.data.csv.categorical["sex"] == ("F", 1, True, 0.5)
    assert plan.task.data.csv.categorical["sex"][2] is True
    assert isinstance(plan.task.model, MlpModel)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    assert faults(training={"threshold_init": value}) == [("training", "threshold_init", "<number>")]
    assert faults(objective={"loss_bound": value}) == [("objective", "loss_bound")]


def test_numbers_are_what_they_look_like_and_faults_come_together() -> None:
    assert isinstance(Plan.model_validate(minimal(training={"learning_rate": 1})).training.learning_rate, float)
    assert faults(training={"learning_rate": True, "rounds": True, "batch_size": True}) == [
        ("training", "rounds"), ("training", "batch_size", "<number>"), ("training", "learning_rate"),
    ]  # fmt: skip
    assert len(faults(training={"rounds": 0, "rouds": 1}, evaluation={"bins": 7}, objective={"tradeoff": 2})) == 4


def test_rosters_code_and_owners_are_as_the_plan_names_them() -> None:
    key = "ed25519:" + base64.b64encode(bytes(range(1, 33))).decode()
    assert Plan.model_validate(minimal(federation={"roster": {"clinic-a": key}})).federation.roster == {
        "clinic-a": key
    }
    assert faults(federation={"roster": {"clinic-a": key, "clinic-b": key}}) == [
        ("federation", "roster", "clinic-b")
    ]
    assert faults(federation={"roster": {"clinic-d": key}}) == [("federation", "roster", "clinic-d")]
    assert faults(federation={"roster": {"clinic-a": key[:-4]}}) == [("federation", "roster", "clinic-a")]
    section = Plan.model_validate(minimal(task={"data": "src.mine:load", "model": "src.mine:load"})).task
    assert section.references == ("src.mine:load",)
    assert Plan.model_validate(minimal()).task.references == ()
    data = {"csv": {"label": "y", "numeric": "all", "collaborator": "site"}}
    section = TaskSection.model_validate({"data": data, "model": {"name": "linear"}})
    assert section.owner_column == "site"
    assert Plan.model_validate(minimal()).task.owner_column is None


def test_every_field_of_the_plan_is_described() -> None:
    def check(model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            assert meanings(model).get(name), f"{model.__name__}.{name} has no description"
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                check(field.annotation)

    check(Plan)


def test_ranges_can_only_scale_columns_whose_ranges_somebody_has_declared() -> None:
    table = {"label": "died", "numeric": ["age", "ph"], "ranges": {"age": [0, 120]}}
    place = [("task", "standardize")]
    assert faults(task={"data": {"csv": table}, "standardize": "ranges"}) == place
    assert faults(task={"data": {"csv": {"label": "died", "numeric": "all"}}, "standardize": "ranges"}) == place
    assert faults(task={"data": "records:load", "standardize": "ranges"}) == place
    whole = {**table, "ranges": {"age": [0, 120], "ph": [6.5, 8]}}
    for data in ({"csv": whole}, "digits"):
        Plan.model_validate(minimal(task={"data": data, "standardize": "ranges"}))
