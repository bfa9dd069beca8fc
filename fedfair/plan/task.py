"""The plan's task: the data, the splits, the model.

Decides what may be written under `task`. Building the model and loading records is `fedfair.training`'s business.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from fedfair.plan.fields import Fault, Fraction, Items, PositiveInt, Reference, Section, is_reference
from fedfair.plan.losses import CROSS_ENTROPY, Answers, LossSpec
from fedfair.plan.sources import (
    BUILT_IN,
    BUILT_IN_INPUTS,
    CsvSource,
    DataSource,
    Partition,
    section_of,
)

FOLD_TOLERANCE = 1e-3
"""How far folds may reach beyond all records: a third may be written 0.3333 or 0.334."""


ANSWER_WORDS: Mapping[Answers, str] = {
    "class": "a class",
    "number": "a number",
    "labels": "several labels",
    "time": "a time with an event",
    "pixels": "a class for each pixel",
    "any": "whatever the data give",
}
"""Answers in words."""

ANSWER_KEYS: Mapping[Answers, str] = {
    "class": "label",
    "number": "target",
    "labels": "labels",
    "time": "time and event",
}
"""The keys of a table that name the columns of an answer."""


class LinearModel(Section):
    """One linear layer with bias: logistic regression."""

    name: Literal["linear"]
    """linear"""

    init: Literal["zeros", "random"] = "zeros"
    """zeros (the uniform classifier), or random (drawn from training.seed)"""


class MlpModel(Section):
    """A multi-layer perceptron with ReLU."""

    name: Literal["mlp"]
    """mlp"""

    hidden: Items[PositiveInt] = Field(default=(512,), min_length=1, max_length=100)
    """width of each hidden layer, each at least 1"""


class ResnetModel(Section):
    """ResNet-18 for images."""

    name: Literal["resnet18"]
    """resnet18"""

    norm: Literal["group", "batch"] = "group"
    """group (the same at every batch size), or batch (its statistics are averaged)"""


_MODELS = {LinearModel: "linear", MlpModel: "mlp", ResnetModel: "resnet18"}


def _kind(value: object) -> str | None:
    if isinstance(value, str):
        return "<reference>"
    if isinstance(value, Mapping):
        name = value.get("name")
        return f"<{name}>" if name in _MODELS.values() else None
    return next((f"<{name}>" for model, name in _MODELS.items() if isinstance(value, model)), None)


ModelSpec = Annotated[
    Annotated[LinearModel, Tag("<linear>")]
    | Annotated[MlpModel, Tag("<mlp>")]
    | Annotated[ResnetModel, Tag("<resnet18>")]
    | Annotated[Reference, Tag("<reference>")],
    Discriminator(
        _kind,
        custom_error_type="model_spec",
        custom_error_message="must be a mapping with name linear, mlp or resnet18, or module:function",
    ),
]


def _needs_no_model(schema: dict[str, Any]) -> None:
    """Let an editor take the task of a plan of statistics, which states no model."""
    schema["required"] = [name for name in schema["required"] if name != "model"]


class TaskSection(Section):
    """The learning task: data, splits, scaling and model."""

    model_config = ConfigDict(json_schema_extra=_needs_no_model)

    data: DataSource
    """breast-cancer, digits, module:function, or a mapping with one of csv, mnist, images, acs_employment, eicu"""

    partition: Partition | None = None
    """how one data set is divided over the collaborators; null if the data assign records to sites"""

    test_fraction: Fraction = 0.0
    """share of each collaborator's records kept for the test split, from 0 to below 1"""

    test_fold: PositiveInt = 1
    """which share of that size is the test split, for cross-validation: 1, 2, ... 1/test_fraction"""

    validation_fraction: Fraction = 0.0
    """share of each collaborator's records kept for validation, from 0 to below 1"""

    standardize: Literal["secure", "ranges", "none"] = "none"
    """secure: means and variances of numeric columns, and of a target that is a number, from one sum before round
    1; ranges: declared ranges become -1 to 1, without any sum; none. Predictions and losses stay in the target's
    own unit"""

    survey: bool = False
    """true sums a description of every column before round 1, so that each site can find a wrong unit or coding of
    its own; every site must allow it (policy.reveals: survey-sums)"""

    model: ModelSpec
    """{name: linear, init: zeros}, {name: mlp, hidden: [512]}, {name: resnet18, norm: group} or module:function"""

    loss: LossSpec = CROSS_ENTROPY
    """cross_entropy, binary, multi_label, ordinal, squared, huber, pinball, survival, segmentation or
    module:function, or a mapping with that name, such as {name: huber, delta: 1.0}"""

    input_shape: Items[PositiveInt] | None = Field(default=None, min_length=1, max_length=4)
    """shape of one record, [columns] or [channels, height, width]; needed where only the data can tell"""

    classes: int | None = Field(default=None, ge=2, le=100_000)
    """number of classes, at least 2; needed where only the data can tell"""

    @property
    def owner_column(self) -> str | None:
        """The column by which the data themselves say who owns a record; None where they do not."""
        section = section_of(self.data)
        return None if section is None else section.owner_column

    @property
    def missing_ranges(self) -> tuple[str, ...]:
        """The numeric columns whose least and greatest value is not known beforehand; in words where unnamed."""
        section = section_of(self.data)
        if section is not None:
            return section.missing_ranges
        return () if self.data in BUILT_IN else ("all numeric columns",)

    @property
    def has_numeric_columns(self) -> bool:
        """Whether the data have columns that can be standardised, as far as the plan tells; pictures have none.

        Of `numeric: all` and of a function `input_shape` tells it; no plan is deployed without. Where it is
        missing only the data can tell. The plan then counts as having such columns, and a simulation goes by the
        records that it has read (`schedule.schedule_of`).
        """
        match self.data:
            case CsvSource(csv=table) if not isinstance(table.numeric, str):
                return len(table.numeric) > 0
            case CsvSource(csv=table):
                return self.input_shape is None or self.input_shape != (table.category_columns,)
            case str() as name:
                return name in BUILT_IN or self.input_shape is None or len(self.input_shape) == 1
            case source:
                return source.section.has_numeric_columns

    @property
    def known_inputs(self) -> int | None:
        """How many features a record has, as far as the plan tells; None where only the data can tell."""
        if self.input_shape is not None:
            return math.prod(self.input_shape)
        section = section_of(self.data)
        return BUILT_IN_INPUTS.get(str(self.data)) if section is None else section.known_inputs

    @property
    def fewest_classes(self) -> int:
        """The fewest classes that the data can have, as far as the plan tells; at least 2."""
        if self.classes is not None:
            return self.classes
        listed = self.data.csv.label_classes if isinstance(self.data, CsvSource) else None
        return 2 if listed is None else len(listed)

    @property
    def references(self) -> tuple[str, ...]:
        """Every "module:function" of the plan, sorted, each once."""
        stated = (self.data, self.model, self.loss.name)
        named = {text for text in stated if isinstance(text, str) and is_reference(text)}
        return tuple(sorted(named))

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        if self.test_fraction + self.validation_fraction >= 1:
            yield Fault(
                ("validation_fraction",),
                f"test_fraction {self.test_fraction} and validation_fraction {self.validation_fraction} leave "
                "nothing to train on",
                "let them sum to less than 1",
            )
        if self.test_fold > 1 and self.test_fold * self.test_fraction > 1 + FOLD_TOLERANCE:
            folds = int((1 + FOLD_TOLERANCE) / self.test_fraction)
            yield Fault(
                ("test_fold",),
                f"is {self.test_fold}, but test_fraction {self.test_fraction} makes {folds} whole folds",
                f"use 1 to {folds}",
            )
        if self.test_fold > 1 and self.test_fraction == 0:
            yield Fault(("test_fold",), f"is {self.test_fold} without a test_fraction", "state test_fraction")
        if self.partition is not None and self.owner_column is not None:
            yield Fault(
                ("partition",),
                f"the data already assign records to sites, by column {self.owner_column!r}",
                "remove partition or the data's collaborator column",
            )
        if self.standardize == "ranges" and self.missing_ranges:
            columns = ", ".join(self.missing_ranges)
            yield Fault(
                ("standardize",),
                f"is ranges, but the range of {columns} is not declared",
                "declare [least, greatest] for each under task.data.csv.ranges, or use secure or none",
            )
        yield from self._loss_faults()
        yield from self._test_faults()

    def _loss_faults(self) -> Iterator[Fault]:
        """Yield a fault where the loss, the data's answers and the partition do not fit together."""
        wanted = self.loss.answers
        if isinstance(self.data, CsvSource):
            given = self.data.csv.answers
            if wanted not in {given, "any"}:
                keys = ANSWER_KEYS.get(wanted)
                remedy = "use a module:function as data" if keys is None else f"state {keys} under task.data.csv"
                message = f"{self.loss.name} predicts {ANSWER_WORDS[wanted]}, the csv has {ANSWER_WORDS[given]}"
                yield Fault(("loss",), message, remedy)
        elif wanted not in {"class", "any"} and not (isinstance(self.data, str) and is_reference(self.data)):
            yield Fault(
                ("loss",),
                f"{self.loss.name} predicts {ANSWER_WORDS[wanted]}, and these data have classes",
                "use cross_entropy, or other data",
            )
        if wanted in {"number", "labels", "time"} and self.classes is not None:
            yield Fault(("classes",), f"is {self.classes}, and {self.loss.name} has no classes", "remove it")
        if (
            wanted not in {"class", "any"}
            and self.partition is not None
            and self.partition.scheme in {"label", "dirichlet"}
        ):
            yield Fault(
                ("partition", "scheme"),
                f"is {self.partition.scheme}, which deals classes, and {self.loss.name} has none",
                "use random, contiguous or column",
            )

    def _test_faults(self) -> Iterator[Fault]:
        section = section_of(self.data)
        own_test = section is not None and section.has_own_tests
        if own_test and self.test_fraction > 0:
            yield Fault(
                ("test_fraction",),
                f"is {self.test_fraction}, but the data bring their own test records",
                "set test_fraction: 0 or remove the data's test file",
            )
