"""The plan's section on statistics: counts, bins and means of declared columns from one sum, and no training.

Decides which keys exist, and what a plan that asks for them may not state. What the numbers of the sum are is
`aggregation.column_statistics`'s business, what their noise is worth `privacy.shared_noise`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from fedfair.plan.fields import MAX_PLANNED_NUMBERS, Fault, Items, PositiveFloat, PositiveInt, Section, Text
from fedfair.plan.sections import FederationSection, SecureAggregationSection, TrainingSection
from fedfair.plan.sources import CsvSource
from fedfair.plan.survey_terms import MIN_OTHERS, fewest_in_survey
from fedfair.plan.task import TaskSection

UNTRAINED = 1
"""What `training.rounds` holds in a plan that trains nothing, where it counts no rounds (`plan.schedule`)."""

USED = frozenset({"rounds", "seed"})
"""The keys of `training` that mean something in a plan without training."""

Ends = Annotated[tuple[float, float], Field(strict=False)]


class ColumnSection(Section):
    """The statistics of one column."""

    count: bool = False
    """true counts the values of a category"""

    bins: Items[float] | None = Field(default=None, min_length=2, max_length=1001)
    """rising edges of a histogram; a bin holds its lower edge"""

    mean: bool = False
    """true gives the mean of numbers"""

    between: Ends | None = None
    """least and greatest number of a mean, to which others are moved; null takes csv.ranges"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        if not (self.count or self.bins or self.mean):
            yield Fault((), "asks for nothing", "state count: true, bins or mean: true")
        for index, (left, right) in enumerate(itertools.pairwise(self.bins or ()), start=1):
            if right <= left:
                yield Fault(("bins", index), f"{right:g} follows {left:g}", "list the edges in rising order")
        if self.between is not None and self.between[0] >= self.between[1]:
            message = f"from {self.between[0]:g} to {self.between[1]:g} is no range"
            yield Fault(("between",), message, "write [least, greatest]")
        if self.between is not None and not self.mean:
            yield Fault(("between",), "is stated, and no mean is asked for", "set mean: true, or remove it")


class StatisticsSection(Section):
    """Statistics of columns from one sum; such a plan trains nothing."""

    columns: dict[Text, ColumnSection] = Field(min_length=1, max_length=1000)
    """such as {age: {bins: [0, 40, 80]}, sex: {count: true}, bmi: {mean: true}}"""

    by: Text | None = None
    """categorical column that tells groups apart, or null"""

    min_group: PositiveInt = Field(default=20, le=10**6)
    """fewest records of a reported number, at least 1"""

    epsilon: PositiveFloat | None
    """what all numbers together cost, above 0; null: no noise"""

    delta: float = Field(default=1e-5, gt=0, lt=1)
    """its delta, between 0 and 1"""


def without_training(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a plan with what one of statistics need not state: rounds, a model and a label."""
    training, task = values.get("training", {}), values.get("task")
    if isinstance(training, Mapping):
        values = {**values, "training": {"rounds": UNTRAINED, **training}}
    if isinstance(task, Mapping):
        data = task.get("data")
        if isinstance(data, Mapping) and isinstance(data.get("csv"), Mapping):
            data = {**data, "csv": {"label": None, **data["csv"]}}
        stated = {} if data is None else {"data": data}
        values = {**values, "task": {"model": {"name": "linear"}, **task, **stated}}
    return values


def statistics_faults(
    stated: StatisticsSection | None,
    task: TaskSection,
    federation: FederationSection,
    training: TrainingSection,
    secure_aggregation: SecureAggregationSection,
    others: Mapping[str, Section],
) -> Iterator[Fault]:
    """Yield what a plan of statistics may not state, and what one of training must; places start from the plan.

    Args:
        stated: the section; None where the plan has none.
        task: of the plan.
        federation: of the plan.
        training: of the plan.
        secure_aggregation: of the plan.
        others: the sections that mean nothing without training, by name.
    """
    if stated is None:
        yield from _label_faults(task)
        return
    if training.rounds != UNTRAINED:
        message = f"is {training.rounds}, and a plan of statistics trains nothing"
        yield Fault(("training", "rounds"), message, "remove training, or statistics")
    for key in sorted(training.model_fields_set - USED):
        # A default that is written out says nothing, as in every plan.
        if getattr(training, key) != type(training).model_fields[key].default:
            message = "is stated, and a plan of statistics trains nothing"
            yield Fault(("training", key), message, "remove it, or statistics")
    for name, section in others.items():
        if section != type(section)():
            message = "is stated, and a plan of statistics has neither model nor evaluation"
            yield Fault((name,), message, "remove it, or statistics")
    yield from _task_faults(task)
    yield from _sum_faults(stated, federation, secure_aggregation)
    if isinstance(task.data, CsvSource) and not isinstance(task.data.csv.numeric, str):
        yield from _column_faults(stated, task.data)


def _label_faults(task: TaskSection) -> Iterator[Fault]:
    if isinstance(task.data, CsvSource) and not task.data.csv.answer_columns:
        remedy = "name the column to predict, or state target, labels, or time and event"
        yield Fault(("task", "data", "csv", "label"), "is null", remedy)


def _task_faults(task: TaskSection) -> Iterator[Fault]:
    if not isinstance(task.data, CsvSource) or isinstance(task.data.csv.numeric, str):
        message = "names no columns, and statistics are of columns that the plan declares"
        yield Fault(("task", "data"), message, "state csv with numeric and categorical columns")
    elif task.data.csv.test is not None:
        message = "is stated, and statistics are of all records"
        yield Fault(("task", "data", "csv", "test"), message, "name one file")
    for key in ("test_fraction", "validation_fraction"):
        if getattr(task, key):
            message = f"is {getattr(task, key):g}, and statistics are of all records"
            yield Fault(("task", key), message, "remove it")
    if task.survey:
        message = "is true beside statistics, which are a sum of their own"
        yield Fault(("task", "survey"), message, "remove it")
    if task.standardize != "none":
        message = f"is {task.standardize}, and nothing is scaled without a model"
        yield Fault(("task", "standardize"), message, "remove it")


def _sum_faults(
    stated: StatisticsSection, federation: FederationSection, secure_aggregation: SecureAggregationSection
) -> Iterator[Fault]:
    fewest = federation.min_collaborators or len(federation.collaborators)
    if secure_aggregation.mode == "off":
        message = "is off: the aggregator would see each site's own statistics"
        yield Fault(("secure_aggregation", "mode"), message, "set mode: malicious")
    if stated.epsilon is not None:
        if fewest <= secure_aggregation.colluders:
            message = f"is {secure_aggregation.colluders}, and a sum may be of {fewest}: no honest noise is in it"
            yield Fault(("secure_aggregation", "colluders"), message, "raise federation.min_collaborators")
        return
    needed = fewest_in_survey(secure_aggregation.colluders)
    if fewest < needed:
        yield Fault(
            ("statistics", "epsilon"),
            f"is null, but a sum may be of {fewest} collaborators, and {needed} are the fewest without noise: who "
            f"subtracts its own part must be left with {MIN_OTHERS} others",
            "name more collaborators, raise federation.min_collaborators, or state epsilon",
        )


def _column_faults(stated: StatisticsSection, source: CsvSource) -> Iterator[Fault]:
    table = source.csv
    for name, asked in stated.columns.items():
        place = ("statistics", "columns", name)
        is_number = name in table.numeric
        if not is_number and name not in table.categorical:
            remedy = "list it under numeric or categorical of task.data.csv"
            yield Fault(place, f"column {name!r} is not declared", remedy)
            continue
        if asked.count and is_number:
            yield Fault((*place, "count"), f"column {name!r} holds numbers", "state bins, or declare categories")
        for key in ("bins", "mean"):
            if getattr(asked, key) and not is_number:
                yield Fault((*place, key), f"column {name!r} holds categories", "state count: true")
        if is_number and asked.mean and asked.between is None and name not in table.ranges:
            message = "is not stated, and csv.ranges has no range of this column"
            yield Fault((*place, "between"), message, "write between: [least, greatest]")
    if stated.by is not None and stated.by not in table.categorical:
        yield Fault(("statistics", "by"), f"column {stated.by!r} is no category", "name a column of categorical")
    elif (numbers := planned_numbers(stated, source)) > MAX_PLANNED_NUMBERS // 2:
        message = f"asks for {numbers} numbers, and a masked sum has room for {MAX_PLANNED_NUMBERS // 2}"
        yield Fault(("statistics", "columns"), message, "ask for fewer columns, bins or groups")


def planned_numbers(stated: StatisticsSection, source: CsvSource) -> int:
    """Return how many numbers the sum of a plan has, whose columns are declared."""
    table = source.csv
    groups = 1 if stated.by is None else len(table.coding_of(stated.by))
    cells = 1
    for name, asked in stated.columns.items():
        cells += len(table.coding_of(name)) if asked.count and name in table.categorical else 0
        cells += len(asked.bins) + 2 if asked.bins else 0
        cells += 2 * asked.mean
    return groups * cells
