"""Defaults stay out of the digest: new keys void no approval, and no two plans share a canonical form."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model
from pydantic_core import PydanticUndefined

from fedfair.plan.digest import canonical_json, canonical_plan, stated
from fedfair.plan.fields import Section
from fedfair.plan.privacy import SampleLevelSection
from fedfair.plan.schema import Plan
from fedfair.plan.sections import TrainingSection
from fedfair.report import plan_keys
from tests.conftest import REPOSITORY

PINNED: dict[str, dict[str, Any]] = json.loads(
    (REPOSITORY / "tests" / "vectors" / "plan_defaults.json").read_text()
)
PLAN_SECTIONS: dict[str, type[BaseModel]] = {
    "plan.yaml": Plan,
    **dict(plan_keys.PLAN_SECTIONS),
}
REQUIRED = "required"

BASE: dict[str, Any] = {
    "federation": {"name": "heart", "collaborators": ["a", "b", "c"]},
    "task": {"data": "breast-cancer", "model": {"name": "linear"}},
    "training": {"rounds": 10},
}
CSV = {"label": "y", "numeric": ["age"]}
NOISE = {"noise_multiplier": 1.0, "clip": 0.5}
CHOICES: dict[str, list[Any]] = {
    "federation.aggregator": [{}, {"port": 8443}, {"host": "localhost"}, {"port": 9000}],
    "federation.min_collaborators": [None, 2, 3],
    "federation.max_attempts": [3, 4],
    "task.data": [
        "breast-cancer", "digits", {"mnist": {}}, {"mnist": {"folder": None}}, {"mnist": {"folder": "data"}},
        {"acs_employment": {}}, {"acs_employment": {"working_age_only": False}}, {"eicu": {}}, {"csv": CSV},
        {"csv": CSV | {"missing": "refuse"}}, {"csv": CSV | {"missing": "mean"}}, {"csv": CSV | {"ranges": {}}},
        {"csv": CSV | {"missing_values_of": {"age": [0]}}}, {"csv": CSV | {"missing_values_of": {"age": [0.0]}}},
        {"csv": CSV | {"missing_values_of": {"age": [False]}}}, {"csv": CSV | {"missing_values": ["", "?", "NA"]}},
        {"csv": CSV | {"categorical": {"a": ["x"], "b": ["y"]}}},
        {"csv": CSV | {"categorical": {"b": ["y"], "a": ["x"]}}},
    ],
    "task.partition": [None, {"scheme": "random"}, {"scheme": "random", "alpha": None}, {"scheme": "contiguous"}],
    "task.test_fraction": [0.0, 0, 0.2],
    "task.standardize": ["none", "secure"],
    "task.model": [
        {"name": "linear"}, {"name": "linear", "init": "zeros"}, {"name": "linear", "init": "random"},
        {"name": "mlp"}, {"name": "mlp", "hidden": [512]}, {"name": "mlp", "hidden": [8]}, {"name": "resnet18"},
        "models:build",
    ],
    "objective.worst_group_size": [0.1, 0.2, 1, 1.0],
    "objective.smoothing": [{}, {"name": "softplus"}, {"gamma": 0.05}, {"name": "zang"}],
    "objective.loss_bound": [None, 1.0, 2.0],
    "training.options": [{}, {"drawn_collaborators": None}],
    "training.local_epochs": [None, 1],
    "training.batch_size": [64, "full", 1],
    "training.learning_rate": [0.05, 0.1],
    # Null takes the learning rate; to state the same number is another plan.
    "training.threshold_learning_rate": [None, 0.05, 0.1],
    "training.threshold_init": ["bound", "quantile", 0, 1.0],
    "training.weights": ["samples", "uniform"],
    "secure_aggregation": [
        {}, {"mode": "malicious"}, {"mode": "off"}, {"clip": "auto"}, {"clip": 1}, {"max_clip": 1024},
    ],
    "privacy": [
        {}, {"sample_level": None}, {"sample_level": NOISE}, {"collaborator_level": NOISE},
        {"collaborator_level": NOISE | {"delta": 1e-5}},
    ],
    "evaluation.group_sizes": [[0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9], [0.1]],
    "evaluation.site_means": [False, True],
    "evaluation.site_weights": [{}, {"a": 1.0}, {"a": 1, "b": 2.0}],
    "evaluation.scores": [False, True],
    "evaluation.loss_range": [None, 4.0],
}  # fmt: skip


def with_choices(choices: dict[str, Any]) -> Plan | None:
    """Return the plan, or None where these choices exclude each other."""
    values = json.loads(json.dumps(BASE))
    for place, value in choices.items():
        section, _, key = place.partition(".")
        if key:
            values.setdefault(section, {})[key] = value
        else:
            values[section] = value
    try:
        return Plan.model_validate(values)
    except ValueError:
        return None


PLACES = st.lists(st.sampled_from(sorted(CHOICES)), max_size=6, unique=True)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, Plan]:
    """Draw two plans that often differ in one key, or only in whether a default is written out."""
    chosen = {place: draw(st.sampled_from(CHOICES[place])) for place in draw(PLACES)}
    other = dict(chosen)
    for place in draw(st.lists(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=2)):
        if draw(st.booleans()):
            other[place] = draw(st.sampled_from(CHOICES[place]))
        else:
            other.pop(place, None)
    first, second = with_choices(chosen), with_choices(other)
    plain = Plan.model_validate(BASE)
    return first or plain, second or plain


def identity(plan: Plan) -> str:
    """Return a text that is equal for equal plans only, with the types of values and the order of columns."""
    values = plan.model_dump()
    match values["task"]["data"]:
        case {"csv": table}:
            table["categorical"] = list(table["categorical"].items())
    return json.dumps(values, sort_keys=True)


@given(plans())
@settings(max_examples=150)
def test_two_plans_share_a_canonical_form_exactly_where_they_are_equal(pair: tuple[Plan, Plan]) -> None:
    first, second = pair
    assert (canonical_plan(first) == canonical_plan(second)) == (identity(first) == identity(second))


@given(plans())
def test_what_a_plan_states_is_the_plan(pair: tuple[Plan, Plan]) -> None:
    told = stated(pair[0])
    match told["task"]:
        case {"data": {"csv": {"categorical": list(columns)} as table}}:
            table["categorical"] = dict(columns)
    assert identity(Plan.model_validate(told)) == identity(pair[0])


def test_defaults_written_out_change_nothing_and_empty_sections_are_told_from_none() -> None:
    plan = Plan.model_validate(BASE)
    assert canonical_plan(Plan.model_validate(plan.model_dump())) == canonical_plan(plan)
    assert json.loads(canonical_plan(plan)) == BASE
    none, empty = (
        create_model("Choice", __base__=Section, inner=(Some | None, Field(default=None))).model_validate(values)
        for values in ({}, {"inner": {}})
    )
    assert (stated(none), stated(empty)) == ({}, {"inner": {}})


class Some(Section):
    """A section with defaults only."""

    key: int = 1


# ------------------------------------------------------------------ upgrades


def grown() -> type[Plan]:
    """Return the plan of a later version: one more key in a section, and one more section, with defaults."""
    training = create_model(
        "TrainingSection", __base__=TrainingSection, momentum=(float, Field(default=0.0, description="none"))
    )
    return create_model(
        "Plan", __base__=Plan, training=(training, Field(description="how the model is trained")),
        more=(Some, Field(default=Some(), description="a new section")),
    )  # fmt: skip


@given(plans())
@settings(max_examples=25)
def test_a_new_key_with_a_default_leaves_the_digest_of_every_plan(pair: tuple[Plan, Plan]) -> None:
    plan = pair[0]
    later = grown().model_validate(plan.model_dump())
    assert canonical_plan(later) == canonical_plan(plan)


def test_a_new_key_that_is_used_changes_the_digest() -> None:
    used = grown().model_validate(BASE | {"training": {"rounds": 10, "momentum": 0.9}})
    also = grown().model_validate(BASE | {"more": {"key": 2}})
    forms = {canonical_plan(plan) for plan in (used, also, Plan.model_validate(BASE))}
    assert len(forms) == 3


def default_of(section: type[BaseModel], name: str) -> Any:  # noqa: ANN401 - JSON has every type
    field = section.model_fields[name]
    if field.is_required():
        return REQUIRED
    default = field.default
    return json.loads(canonical_json({"default": stated(default) if isinstance(default, Section) else default}))[
        "default"
    ]


@pytest.mark.parametrize("title", PINNED)
def test_a_default_that_was_released_never_changes(title: str) -> None:
    """A plan that leaves a key out would keep its digest and yet do another thing: a new behaviour is a new value.

    A required key that got a default would change digests, and so would a key that went away.
    """
    section = PLAN_SECTIONS[title]
    assert {name: default_of(section, name) for name in PINNED[title]} == PINNED[title]


def test_no_default_is_made_by_a_function_and_every_section_is_pinned() -> None:
    """Add what is missing to tests/vectors/plan_defaults.json; what stands there stays."""
    keys = {title: set(section.model_fields) for title, section in PLAN_SECTIONS.items()}
    assert {title: set(pinned) for title, pinned in PINNED.items()} == keys
    # It could follow from other keys, or from the day.
    made = [
        name
        for section in sections_of(Plan)
        for name, field in section.model_fields.items()
        if field.default_factory is not None or (field.default is PydanticUndefined) != field.is_required()
    ]
    assert made == []
    unpinned = sections_of(Plan) - set(PLAN_SECTIONS.values())
    # `{csv: {...}}` and its like: one required key, which tells it from the others.
    assert all(len(one.model_fields) == 1 for one in unpinned)
    assert all(field.is_required() for one in unpinned for field in one.model_fields.values())
    assert SampleLevelSection in sections_of(Plan)


def sections_of(section: type[BaseModel]) -> set[type[BaseModel]]:
    inner = {found for field in section.model_fields.values() for found in named(field.annotation)}
    return {section}.union(*(sections_of(one) for one in inner))


def named(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - annotations have every type
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from named(argument)
