"""References that no masked sum has room for: refused where the plan tells, else where the features are known."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fedfair.aggregation.masked_encoding import header_parts
from fedfair.aggregation.reference import check_room, reference_outputs
from fedfair.errors import PlanError
from fedfair.plan.derived import may_measure_excess, measure_of, reference_of
from fedfair.plan.excess_terms import reference_numbers
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import MASKED_NUMBERS
from fedfair.plan.schema import Plan
from fedfair.plan.sections import ReferenceSection
from fedfair.plan.sources import BUILT_IN
from fedfair.plan.task_outputs import with_outputs
from fedfair.secagg.shape import MAX_HEADER_VALUES
from fedfair.simulation.simulate import simulate
from fedfair.statistics.table import Purpose
from fedfair.tables.source_modules import declared_schema
from fedfair.training.binding import plan_binding
from tests.plans import parsed, stated

OWN = {"data": "own:records"}
WIDE: dict[str, dict[str, object]] = {
    "a picture of a function": OWN | {"input_shape": [1, 64, 64], "classes": 2},
    "numbers of a function": OWN | {"input_shape": [600], "classes": 2},
    "listed columns": {"data": {"csv": {"label": "y", "numeric": [f"c{place}" for place in range(600)]}}},
    "categories": {"data": {"csv": {"label": "y", "categorical": {"code": [*map(str, range(600))]}}}},
    "a folder of images": {"data": {"images": {"label": "Smiling", "height": 32, "width": 32, "channels": 1}}},
    "mnist": {"data": {"mnist": {}}},
    "a hundred thousand classes": OWN | {"input_shape": [1], "classes": 100_000},
}
"""Tasks whose two usual references put more numbers into a masked sum than fit, as the plan tells already."""


@pytest.mark.parametrize("case", WIDE)
def test_a_stated_excess_whose_references_fit_into_no_masked_sum_is_a_fault_of_the_plan(case: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parsed(task=WIDE[case], objective={"measure": "excess"})
    (fault,) = caught.value.errors()
    assert fault["loc"] == ("objective", "measure")
    assert "room for 65536" in str(caught.value)
    assert "set measure: loss, or narrower layers under objective.reference.hidden" in fault["ctx"]["remedy"]


@pytest.mark.parametrize("case", WIDE)
def test_such_references_are_trained_without_masks_and_nobody_is_told_to_state_them_with(case: str) -> None:
    assert not may_measure_excess(parsed(task=WIDE[case]))
    plain = parsed(task=WIDE[case], objective={"measure": "excess"}, secure_aggregation={"mode": "off"})
    check_room(plain, FeatureSchema((4096,), 2))
    assert may_measure_excess(parsed(task=WIDE[case], secure_aggregation={"mode": "off"}))


def test_narrower_layers_make_room() -> None:
    narrow = {"measure": "excess", "reference": {"hidden": [3]}}
    assert measure_of(parsed(task=WIDE["a picture of a function"], objective=narrow)) == "excess"


LOSSES: dict[str, tuple[dict[str, object], FeatureSchema]] = {
    "classes": (OWN | {"classes": 5}, FeatureSchema((30,), 5)),
    "binary": (OWN | {"loss": "binary", "classes": 2}, FeatureSchema((30,), 2)),
    "ordinal": (OWN | {"loss": "ordinal", "classes": 4}, FeatureSchema((30,), 4)),
    "squared": (OWN | {"loss": {"name": "squared", "target_range": [0, 1]}}, FeatureSchema((30,), 0)),
    "multi_label": (OWN | {"loss": {"name": "multi_label", "labels": 3}}, FeatureSchema((30,), 0, targets=(3,))),
    "survival": (
        OWN | {"loss": {"name": "survival", "intervals": [1.0, 2.0, 3.0]}},
        FeatureSchema((30,), 0, targets=(2,)),
    ),
}


def numbers_of(plan: Plan, schema: FeatureSchema) -> int:
    """Return how many numbers a masked sum of references really has in its header."""
    parts = header_parts(plan, schema)[Purpose.REFERENCE]
    return int(np.count_nonzero(parts.counts) + 2 * np.count_nonzero(parts.reals))


@pytest.mark.parametrize("case", LOSSES)
def test_references_are_counted_as_their_masked_sum_lays_them_out_and_refused_from_the_first_misfit(
    case: str,
) -> None:
    assert MASKED_NUMBERS == MAX_HEADER_VALUES
    task, schema = LOSSES[case]
    task = task | {"input_shape": [30]}
    whole = with_outputs(parsed(task=task).task.loss, schema)
    stated_width, outputs = {"hidden": [40], "folds": 3}, reference_outputs(parsed(task=task).task.loss, whole)
    plan = parsed(task=task, objective={"measure": "excess", "reference": stated_width})
    assert reference_numbers(reference_of(plan), 30, outputs) == numbers_of(plan, whole)
    width = next(
        width
        for width in itertools.count(40)
        if reference_numbers(ReferenceSection(hidden=(width,), folds=3), 30, outputs) > MASKED_NUMBERS
    )
    parsed(task=task, objective={"measure": "excess", "reference": {"hidden": [width - 1], "folds": 3}})
    with pytest.raises(ValidationError, match="room for 65536"):
        parsed(task=task, objective={"measure": "excess", "reference": {"hidden": [width], "folds": 3}})


def test_outputs_that_only_the_data_tell_are_refused_before_anybody_approves_the_plan(tmp_path: Path) -> None:
    objective = {"measure": "excess", "reference": {"hidden": [230]}}
    # Of two classes they would fit, and digits have ten.
    plan = parsed(task={"data": "digits"}, objective=objective)
    with pytest.raises(PlanError, match=r"objective\.measure: is excess, .* 10 outputs .* room for 65536"):
        plan_binding(plan, tmp_path)


@pytest.mark.parametrize(("inputs", "measure"), [(508, "excess"), (509, "loss")])
def test_the_unstated_measure_is_the_excess_up_to_the_widest_inputs_that_fit(inputs: int, measure: str) -> None:
    values = stated(task=OWN | {"input_shape": [inputs], "classes": 2})
    del values["objective"]["measure"]
    plan = Plan.model_validate(values)
    assert measure_of(plan) == measure
    if measure == "excess":
        assert numbers_of(plan, FeatureSchema((inputs,), 2)) <= MASKED_NUMBERS


READ: list[str | Mapping[str, object]] = [
    *BUILT_IN,
    {"mnist": {}},
    {"images": {"label": "x", "height": 3, "width": 5}},
    {"acs_employment": {}},
    {"eicu": {}},
    {"csv": {"label": "y", "numeric": ["x"], "categorical": {"code": ["a", "b"]}}},
]


@pytest.mark.parametrize("data", READ)
def test_the_inputs_that_a_source_is_known_to_have_are_its_readers(data: str | Mapping[str, object]) -> None:
    plan = parsed(task={"data": data})
    schema = declared_schema(plan)
    assert schema is not None
    assert plan.task.known_inputs == np.prod(schema.input_shape)


@pytest.mark.parametrize("measure", ["excess", None])
def test_columns_that_only_the_file_knows_are_refused_in_the_same_words_before_anything_is_trained(
    tmp_path: Path, measure: str | None
) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 600))
    header = ",".join([*(f"c{place}" for place in range(600)), "y"])
    lines = [",".join([*(f"{value:.2f}" for value in row), str(place % 2)]) for place, row in enumerate(rows)]
    (tmp_path / "table.csv").write_text("\n".join([header, *lines]))
    data = {"csv": {"train": "table.csv", "label": "y", "numeric": "all"}}
    plan = parsed(task={"data": data, "partition": {"scheme": "random"}}, objective={"measure": measure})
    fault = r"objective\.measure: is excess, .* 600 inputs, .* room for 65536"
    with pytest.raises(PlanError, match=fault) as caught:
        simulate(plan, tmp_path)
    assert "set measure: loss" in caught.value.remedy
