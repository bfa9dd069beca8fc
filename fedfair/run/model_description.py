"""Describes what a saved model takes and returns, so that its file alone is enough to use it again.

A description is made of the plan: the architecture, the columns in the order of the features, with unit, range
and coding, and the label with the names of its classes. What only the data can tell (the names of `numeric: all`,
or of a function's features) is not in it, so that a simulation and a deployment describe one model in one way.
Decides these words and compares them; the file is `saved_model.py`'s business. No torch.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from fedfair.errors import PlanError
from fedfair.plan.csv_table import OTHER, CsvData
from fedfair.plan.derived import is_by_ranges, is_by_sums
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import Scalar, is_reference
from fedfair.plan.losses import CROSS_ENTROPY, Loss, LossSpec
from fedfair.plan.parameters import ParametersSection
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource, DataSource
from fedfair.plan.task_outputs import planned_targets, with_outputs

PARTS = ("architecture", "input", "columns", "label", "source")
"""The keys of a file's metadata that describe its model; each is a JSON text."""

OPTIONAL_PARTS = ("loss", "parameters")
"""Further keys, where there is something to say."""

PATHS = frozenset({"train", "test", "train_of", "folder", "attributes"})
"""Keys of `task.data` that name files of a simulation; no model carries them."""

FORM = frozenset(
    {"collaborator", "keep", "columns", "separator", "comment", "encoding", "decimal", "thousands", "rows"}
)
"""Keys of `task.data` that say how files are written and whose rows count, and nothing of what a value means."""

_STRICT = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class NumberColumn(BaseModel):
    """A column of numbers: one feature, or a row of features whose names only the data can tell.

    Attributes:
        kind: number.
        name: the column; None where only the data can tell.
        features: how many features these are; 1 with a name.
        unit: the power of two in which sums of the column are counted.
        range: the least and the greatest value; None where none is declared.
        missing: what becomes of a missing value: refuse, mean or zero; None where the source decides it.
    """

    model_config = _STRICT

    kind: Literal["number"] = "number"
    name: str | None
    features: Annotated[int, Field(ge=0)] = 1
    unit: float = 1.0
    range: tuple[float, float] | None = None
    missing: str | None = None


class CategoryColumn(BaseModel):
    """A column of categories: one 0/1 feature for each value, and one or two more.

    Attributes:
        kind: category.
        name: the column.
        values: as the plan lists them, in order.
        coding: the names of its features, in order.
        missing: what becomes of a missing value: other, own or refuse.
    """

    model_config = _STRICT

    kind: Literal["category"] = "category"
    name: str
    values: tuple[Scalar, ...]
    coding: tuple[str, ...]
    missing: str = OTHER


class IndicatorColumn(BaseModel):
    """A 0/1 feature that the source itself makes.

    Attributes:
        kind: indicator.
        name: the feature.
    """

    model_config = _STRICT

    kind: Literal["indicator"] = "indicator"
    name: str


Column = Annotated[NumberColumn | CategoryColumn | IndicatorColumn, Field(discriminator="kind")]


class InputDescription(BaseModel):
    """The features that a model takes.

    Attributes:
        shape: of one record, (features,) or (channels, height, width).
        standardize: task.standardize of the plan; with secure, the file's scaling applies to the number columns.
    """

    model_config = _STRICT

    shape: tuple[int, ...]
    standardize: Literal["secure", "ranges", "none"]

    @property
    def by_ranges(self) -> bool:
        """Whether number columns are scaled by their ranges."""
        return is_by_ranges(self.standardize)

    @property
    def by_sums(self) -> bool:
        """Whether number columns are scaled by the overall means and deviations, once these are known."""
        return is_by_sums(self.standardize)


class LabelDescription(BaseModel):
    """The label that a model predicts.

    Attributes:
        column: what is predicted; None where only the data can tell.
        classes: how many there are; 0 where a record's answer is no class.
        names: of the classes, or of several labels, in order; empty where they are 0, 1, ...
        values: the values of each class, in order; empty where they are 0, 1, ..., and with `above`.
        above: a label above this number is class 1; None where labels are values.
    """

    model_config = _STRICT

    column: str | None
    classes: Annotated[int, Field(ge=0)]
    names: tuple[str, ...] = ()
    values: tuple[tuple[Scalar, ...], ...] = ()
    above: float | None = None

    @property
    def labels(self) -> tuple[Scalar, ...]:
        """The label of each class, in order: its value where it has one, else its name or its number from 0."""
        if self.values and all(len(each) == 1 for each in self.values):
            return tuple(each[0] for each in self.values)
        return self.names or tuple(range(self.classes))


class ParametersDescription(BaseModel):
    """The parts of a model that its file does not hold, because they are frozen.

    Attributes:
        stated: training.parameters of the plan.
        seed: of the plan, which makes them; None where they are in a file of their own.
    """

    model_config = _STRICT

    stated: ParametersSection
    seed: int | None


class ModelDescription(BaseModel):
    """The inputs and outputs of a model.

    Attributes:
        architecture: task.model of the plan: a mapping with a name, or "module:function".
        input: of the features.
        columns: in the order of the features; empty for images.
        label: of the classes.
        source: task.data of the plan without its paths: how raw records are read. `source_of` parses it.
        loss: task.loss of the plan; None, and not in the file, for cross-entropy.
        parameters: training.parameters of the plan, and the seed of its frozen ones; None, and not in the file,
            where all travel.
    """

    model_config = _STRICT

    architecture: str | dict[str, JsonValue]
    input: InputDescription
    columns: tuple[Column, ...]
    label: LabelDescription
    source: str | dict[str, JsonValue]
    loss: dict[str, JsonValue] | None = None
    parameters: ParametersDescription | None = None

    @property
    def record_loss(self) -> Loss:
        """The loss that the model was trained by.

        Raises:
            ValueError: the description holds something else; the text says what.
        """
        if self.loss is None:
            return CROSS_ENTROPY
        found: Loss = _parsed(LossSpec, json.dumps(self.loss), "loss")
        return found

    def words(self) -> dict[str, str]:
        """Return the description as strings for the metadata of a file; `read_description` reads them back."""
        unsaid = {name for name in OPTIONAL_PARTS if getattr(self, name) is None}
        values = self.model_dump(mode="json", exclude=unsaid)
        return {name: _compact(value) for name, value in values.items()}


def describe_model(plan: Plan, schema: FeatureSchema) -> ModelDescription:
    """Return the description of the plan's model.

    Args:
        plan: the plan.
        schema: of its features, from the plan or from the data.
    """
    model = plan.task.model
    return ModelDescription(
        architecture=model if isinstance(model, str) else model.model_dump(mode="json"),
        input=InputDescription(shape=schema.input_shape, standardize=plan.task.standardize),
        columns=tuple(_columns(plan, schema)),
        label=_label(plan, schema.classes),
        source=_source(plan),
        loss=None if plan.task.loss == CROSS_ENTROPY else plan.task.loss.model_dump(mode="json"),
        parameters=_parameters(plan),
    )


def _parameters(plan: Plan) -> ParametersDescription | None:
    stated, initial = plan.training.parameters, plan.training.initial
    if stated is None:
        return None
    given = initial is not None and initial.frozen is not None
    return ParametersDescription(stated=stated, seed=None if given else plan.training.seed)


def source_of(description: ModelDescription) -> DataSource:
    """Return the source of the plan, as a value.

    Raises:
        ValueError: the description holds something else; the text says what.
    """
    source: DataSource = _parsed(DataSource, json.dumps(description.source), "source")
    return source


def schema_of(description: ModelDescription) -> FeatureSchema:
    """Return the schema of the features; without names where only the data can tell them."""
    names: list[str] = []
    numbers: list[NumberColumn] = []
    numeric: list[int] = []
    place, unnamed = 0, False
    for column in description.columns:
        match column:
            case NumberColumn(features=count, name=name):
                numeric += range(place, place + count)
                numbers += [column] * count
                unnamed |= name is None
                names += [name or ""] * count
                place += count
            case CategoryColumn(coding=coding):
                names += coding
                place += len(coding)
            case IndicatorColumn(name=name):
                names.append(name)
                place += 1
    ranges = tuple(column.range for column in numbers if column.range is not None)
    loss = description.record_loss
    targets = planned_targets(loss, description.input.shape)
    schema = FeatureSchema(
        description.input.shape,
        description.label.classes,
        tuple(numeric),
        () if unnamed else tuple(names),
        tuple(column.unit for column in numbers),
        ranges if len(ranges) == len(numbers) else (),
        targets=(len(description.label.names),) if targets is None else targets,
    )
    try:
        return with_outputs(loss, schema)
    except PlanError as error:
        raise ValueError(error.message) from error


def read_description(words: Mapping[str, str]) -> ModelDescription:
    """Return the description that `words` wrote.

    Raises:
        ValueError: a part is missing, or is something else; the text names it.
    """
    missing = [name for name in PARTS if name not in words]
    if missing:
        raise ValueError(f"it does not say its {missing[0]}")
    try:
        values = {name: json.loads(words[name]) for name in (*PARTS, *(words.keys() & {*OPTIONAL_PARTS}))}
    except RecursionError as error:
        raise ValueError("its description is nested too deeply") from error
    description: ModelDescription = _parsed(ModelDescription, json.dumps(values), "its description")
    source_of(description)
    schema_of(description)
    return description


def difference(found: ModelDescription, expected: ModelDescription) -> str:
    """Return in words the first thing in which two descriptions differ; empty where they are equal.

    Args:
        found: in a file.
        expected: of the plan.
    """
    if found.words() == expected.words():
        return ""
    column = _column_difference(found, expected)
    if column:
        return column
    theirs, ours = found.model_dump(mode="json"), expected.model_dump(mode="json")
    for part in ("input", "label"):
        for key, value in theirs[part].items():
            if _compact(value) != _compact(ours[part][key]):
                return f"its {part} has {key} {_compact(value)}, the plan's has {_compact(ours[part][key])}"
    read, planned_reading = _meaning(found.source), _meaning(expected.source)
    for key in sorted(read.keys() | planned_reading.keys()):
        if _compact(read.get(key)) != _compact(planned_reading.get(key)):
            told = f"{key} {_compact(read.get(key))}, the plan's with {_compact(planned_reading.get(key))}"
            return f"its records are read with {told}"
    for part in ("architecture", *OPTIONAL_PARTS):
        if theirs[part] != ours[part]:
            return f"its {part} is {_compact(theirs[part])}, the plan's is {_compact(ours[part])}"
    return ""


def _column_difference(found: ModelDescription, expected: ModelDescription) -> str:
    pairs = itertools.zip_longest(found.columns, expected.columns)
    for place, (theirs, ours) in enumerate(pairs, 1):
        if theirs is None:
            return f"it lacks column {place}, {_name(ours)}"
        if ours is None:
            return f"its column {place}, {_name(theirs)}, is not in the plan"
        if (theirs.name, theirs.kind) != (ours.name, ours.kind):
            planned = f"the plan's is the {ours.kind} {_name(ours)}"
            return f"its column {place} is the {theirs.kind} {_name(theirs)}, {planned}"
        has, wants = theirs.model_dump(mode="json"), ours.model_dump(mode="json")
        for key in has:
            if _compact(has[key]) != _compact(wants[key]):
                told = f"has {key} {_compact(has[key])}, the plan's has {_compact(wants[key])}"
                return f"its column {_name(theirs)} {told}"
    return ""


def _name(column: Column) -> str:
    return "without a name" if column.name is None else repr(column.name)


def _compact(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(value, separators=(",", ":"))


@functools.cache
def _adapter(form: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any form that pydantic takes
    return TypeAdapter(form)


def _parsed(form: Any, text: str, what: str) -> Any:  # noqa: ANN401 - as the form says
    """Return a value from its JSON text; ValueError with the first fault."""
    try:
        return _adapter(form).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or what
        raise ValueError(f"{where}: {first['msg']}") from error


def _source(plan: Plan) -> str | dict[str, JsonValue]:
    """Return the plan's source without the files that a simulation reads."""
    data = plan.task.data
    if isinstance(data, str):
        return data
    kinds: dict[str, dict[str, JsonValue]] = data.model_dump(mode="json")
    return {kind: {key: value for key, value in keys.items() if key not in PATHS} for kind, keys in kinds.items()}


def _meaning(source: str | dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return what the source says of the meaning of values."""
    if isinstance(source, str):
        return {"source": source}
    (kind, keys), *_ = source.items()
    stated = keys if isinstance(keys, dict) else {}
    return {"source": kind} | {key: value for key, value in stated.items() if key not in FORM}


def _columns(plan: Plan, schema: FeatureSchema) -> Iterator[NumberColumn | CategoryColumn | IndicatorColumn]:
    """Yield the columns in the order of the features; images have none."""
    match plan.task.data:
        case CsvSource(csv=table):
            yield from _table_columns(table, schema)
        case str() as name if is_reference(name):
            if len(schema.input_shape) == 1:
                yield NumberColumn(name=None, features=schema.input_shape[0])
        case _:
            for place, name in enumerate(schema.names):
                yield _number(schema, place) if place in schema.numeric else IndicatorColumn(name=name)


def _table_columns(table: CsvData, schema: FeatureSchema) -> Iterator[NumberColumn | CategoryColumn]:
    if isinstance(table.numeric, str):
        # The data alone know their names, and a plan that is deployed states only how many there are.
        yield NumberColumn(name=None, features=len(schema.numeric), missing=table.missing)
    else:
        for place, name in enumerate(table.numeric):
            missing = table.missing_of.get(name, table.missing)
            yield _number(schema, place).model_copy(update={"missing": missing})
    for name, values in table.categorical.items():
        policy = table.missing_of.get(name)
        yield CategoryColumn(name=name, values=values, coding=table.coding_of(name), missing=policy or OTHER)


def _number(schema: FeatureSchema, place: int) -> NumberColumn:
    """Return the number column of a feature, which has its name, unit and range in the schema."""
    index = schema.numeric.index(place)
    return NumberColumn(
        name=schema.names[place],
        unit=schema.units[index] if schema.units else 1.0,
        range=_range(schema, index),
    )


def _range(schema: FeatureSchema, index: int) -> tuple[float, float] | None:
    if not schema.ranges:
        return None
    least, greatest = schema.ranges[index]
    return float(least), float(greatest)


def _label(plan: Plan, classes: int) -> LabelDescription:
    match plan.task.data:
        case CsvSource(csv=table):
            return _table_label(table, classes)
        case "breast-cancer":
            return LabelDescription(column=None, classes=classes, names=("malignant", "benign"))
        case str():
            return LabelDescription(column=None, classes=classes)
        case source:
            own = source.section
            return LabelDescription(
                column=own.answer_column, classes=classes, names=own.named_classes, values=own.class_values
            )


def _table_label(table: CsvData, classes: int) -> LabelDescription:
    if table.label is None:
        return LabelDescription(column=table.target or table.time, classes=0, names=table.labels)
    if table.label_above is not None:
        bound = f"{table.label_above:g}"
        either = (f"at most {bound}", f"above {bound}")
        return LabelDescription(column=table.label, classes=classes, names=either, above=table.label_above)
    values = table.label_classes or ()
    names = tuple(" or ".join(str(value) for value in each) for each in values)
    return LabelDescription(column=table.label, classes=classes, names=names, values=values)
