"""Derives features from the plan alone, so that a model can be built before any record is read.

Decides the schema that aggregator and collaborators agree on. A site's data are checked against it when they are
read; where neither source nor plan can tell (`numeric: all`, a function), the plan states `input_shape` and
`classes`.
"""

from __future__ import annotations

from fedfair.errors import PlanError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.plan.task import TaskSection
from fedfair.plan.task_outputs import planned_targets, with_outputs
from fedfair.tables.source_modules import source_module


def declared_schema(plan: Plan) -> FeatureSchema | None:
    """Return what the plan alone says about the features; None where only the data can tell.

    No file of a site is touched, so the aggregator's side can ask this before anybody has connected.
    """
    task = plan.task
    module, stated = source_module(task.data)
    schema = module.planned_schema(stated, task)
    if schema is not None:
        check_declared(task, schema)
        return with_outputs(task.loss, schema)
    if task.input_shape is None:
        return None
    by_shape = _stated_schema(task, task.input_shape)
    return None if by_shape is None else with_outputs(task.loss, by_shape)


def check_declared(task: TaskSection, schema: FeatureSchema) -> None:
    """Refuse data, or a source, that differ from what the plan states.

    Raises:
        PlanError: the shape or the number of classes differs.
    """
    if task.input_shape is not None and task.input_shape != schema.input_shape:
        raise PlanError(
            f"task.input_shape: is {list(task.input_shape)}, the data have {list(schema.input_shape)}",
            "correct or remove it",
        )
    if task.classes is not None and task.classes != schema.classes:
        raise PlanError(f"task.classes: is {task.classes}, the data have {schema.classes}", "correct or remove it")


def _stated_schema(task: TaskSection, input_shape: tuple[int, ...]) -> FeatureSchema | None:
    """Return the schema of `numeric: all` or of a function's records; None where the plan does not state it."""
    if not isinstance(task.data, CsvSource):
        columns = input_shape[0] if len(input_shape) == 1 else 0
        targets = planned_targets(task.loss, input_shape)
        if targets is None or (task.loss.answers in {"class", "pixels"} and task.classes is None):
            return None
        return FeatureSchema(input_shape, task.classes or 0, tuple(range(columns)), targets=targets)
    from fedfair.tables.table_reader import csv_schema

    declared = csv_schema(task.data.csv, task.classes, ())
    numeric = input_shape[0] - declared.input_shape[0]
    if len(input_shape) != 1 or numeric < 0:
        raise PlanError(
            f"task.input_shape: {list(input_shape)} cannot hold {declared.input_shape[0]} columns of categories",
            "state [numeric columns + all columns of categories]",
        )
    return FeatureSchema(input_shape, declared.classes, tuple(range(numeric)), targets=declared.targets)
