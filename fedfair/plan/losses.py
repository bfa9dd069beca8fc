"""The losses of single records: which a plan may name under `task.loss`, and what each needs and tells.

A loss turns a model's outputs for a record and that record's answer (its target) into one number from 0 on.
Decides what answers each loss takes, in which unit it is, what guessing costs, and where its histogram ends unless
the plan says so. Computing it is `fedfair.training.record_loss`'s business; which metrics belong to it is said in
`fedfair.aggregation.loss_metrics`. No torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, Discriminator, Field, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from fedfair.plan.fields import Fault, Items, PositiveFloat, PositiveInt, Reference, Section, is_reference

Answers: TypeAlias = Literal["class", "number", "labels", "time", "pixels", "any"]
"""The answers that a loss takes: a class from 0, a number, several outcomes of 0 or 1, a time with an event,
a class for each pixel, or whatever the data give."""

RANGE_IN_GUESSES = 8.0
"""The histogram reaches to this many times the loss of guessing, where the plan does not say."""

MAX_LOSS_RANGE = 2.0**100
"""Losses up to this, and a million of them together, are finite in single precision too."""

NATS = "nats"

TargetRange = Annotated[tuple[float, float], Field(strict=False)]


class CrossEntropyLoss(Section):
    """The negative logarithm of the probability that the model gives to the record's class."""

    answers: ClassVar[Answers] = "class"
    title: ClassVar[str] = "cross-entropy"
    unit: ClassVar[str] = NATS

    name: Literal["cross_entropy"]
    """cross_entropy"""


class BinaryLoss(Section):
    """The same for two classes by one output, the logit of class 1."""

    answers: ClassVar[Answers] = "class"
    title: ClassVar[str] = "logistic loss"
    unit: ClassVar[str] = NATS

    name: Literal["binary"]
    """binary"""


class OrdinalLoss(Section):
    """The same for ordered classes by cumulative logits, of being above each class but the last."""

    answers: ClassVar[Answers] = "class"
    title: ClassVar[str] = "ordinal loss"
    unit: ClassVar[str] = NATS

    name: Literal["ordinal"]
    """ordinal"""


class MultiLabelLoss(Section):
    """The logistic loss of several outcomes that do not exclude each other."""

    answers: ClassVar[Answers] = "labels"
    title: ClassVar[str] = "multi-label loss"
    unit: ClassVar[str] = NATS

    name: Literal["multi_label"]
    """multi_label"""

    reduction: Literal["mean", "sum"] = "mean"
    """mean or sum over a record's labels"""

    labels: PositiveInt | None = Field(default=None, le=1000)
    """how many labels there are, where only the data can tell"""


class _RegressionLoss(Section):
    """A loss of a number."""

    answers: ClassVar[Answers] = "number"

    target_range: TargetRange | None = None
    """least and greatest target, such as [0, 120]; data outside are refused, and the histogram of the losses
    reaches as far as the error can be; scales the target where no sum does; null for none"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        if self.target_range is not None and not self.target_range[0] < self.target_range[1]:
            message = f"from {self.target_range[0]:g} to {self.target_range[1]:g} is no range"
            yield Fault(("target_range",), message, "write [least, greatest]")
        elif self.target_range is not None and isinstance(self, SquaredLoss | HuberLoss | PinballLoss):
            greatest = greatest_loss(self, self.target_range[1] - self.target_range[0])
            if not greatest <= MAX_LOSS_RANGE:
                message = f"lets a loss be {greatest:.3g}, more than can be summed ({MAX_LOSS_RANGE:.3g})"
                yield Fault(("target_range",), message, "choose a unit in which targets are near 1")


class SquaredLoss(_RegressionLoss):
    """The squared error (output - target)^2."""

    title: ClassVar[str] = "squared error"
    unit: ClassVar[str] = "squared units of the target"

    name: Literal["squared"]
    """squared"""


class HuberLoss(_RegressionLoss):
    """Half the squared error up to `delta`, and linear beyond: delta (|error| - delta / 2)."""

    title: ClassVar[str] = "Huber loss"
    unit: ClassVar[str] = "squared units of the target"

    name: Literal["huber"]
    """huber"""

    delta: PositiveFloat = 1.0
    """error from which on the loss is linear, above 0, in units of the target"""


class PinballLoss(_RegressionLoss):
    """The loss whose least mean is at a quantile: `quantile` times what lacks, the rest times the excess."""

    title: ClassVar[str] = "pinball loss"
    unit: ClassVar[str] = "units of the target"

    name: Literal["pinball"]
    """pinball"""

    quantile: float = Field(default=0.5, gt=0, lt=1)
    """the quantile that is predicted, above 0, below 1"""


class SurvivalLoss(Section):
    """The negative log-likelihood of hazards by interval, under censoring."""

    answers: ClassVar[Answers] = "time"
    title: ClassVar[str] = "survival loss"
    unit: ClassVar[str] = NATS

    name: Literal["survival"]
    """survival"""

    intervals: Items[PositiveFloat] = Field(min_length=1, max_length=500)
    """where each interval of time ends, increasing, such as [30, 90, 365]; the first begins at 0"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        for index, (left, right) in enumerate(itertools.pairwise(self.intervals), start=1):
            if right <= left:
                yield Fault(("intervals", index), f"{right:g} follows {left:g}", "list them in increasing order")


class SegmentationLoss(Section):
    """The mean cross-entropy over the pixels of a record."""

    answers: ClassVar[Answers] = "pixels"
    title: ClassVar[str] = "mean pixel cross-entropy"
    unit: ClassVar[str] = NATS

    name: Literal["segmentation"]
    """segmentation"""


class OwnLoss(Section):
    """A loss from a "module:function" of (outputs, targets): tensors (records, ...); it returns (records,)."""

    answers: ClassVar[Answers] = "any"
    title: ClassVar[str] = "own loss"
    unit: ClassVar[str] = "units of its own"

    name: Reference
    """module:function of (outputs, targets), which returns a loss for each record"""

    outputs: Items[PositiveInt] = Field(default=(1,), min_length=1, max_length=3)
    """shape of the model's outputs for one record"""

    targets: Items[PositiveInt] = Field(default=(), max_length=3)
    """shape of one record's target; [] for one number"""


Loss: TypeAlias = (
    Annotated[CrossEntropyLoss, Tag("<cross_entropy>")]
    | Annotated[BinaryLoss, Tag("<binary>")]
    | Annotated[MultiLabelLoss, Tag("<multi_label>")]
    | Annotated[OrdinalLoss, Tag("<ordinal>")]
    | Annotated[SquaredLoss, Tag("<squared>")]
    | Annotated[HuberLoss, Tag("<huber>")]
    | Annotated[PinballLoss, Tag("<pinball>")]
    | Annotated[SurvivalLoss, Tag("<survival>")]
    | Annotated[SegmentationLoss, Tag("<segmentation>")]
    | Annotated[OwnLoss, Tag("<reference>")]
)
"""The table of losses: a row for each, with the tag that a fault has as its place."""

LOSSES: Mapping[str, type[Section]] = {
    tag.tag.strip("<>"): kind for kind, tag in map(get_args, get_args(Loss)) if kind is not OwnLoss
}
"""The losses that a plan can name, by their names."""


def _kind(value: object) -> str | None:
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    if name in LOSSES:
        return f"<{name}>"
    return "<reference>" if isinstance(name, str) and is_reference(name) else None


class _OrWord:
    """Lets an editor take the name of a loss alone."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def _named(value: Any) -> Any:  # noqa: ANN401 - whatever a file says
    return {"name": value} if isinstance(value, str) else value


LossSpec = Annotated[
    Annotated[
        Loss,
        Discriminator(
            _kind,
            custom_error_type="loss_spec",
            custom_error_message=f"must be {', '.join(LOSSES)} or module:function, or a mapping with that name",
        ),
    ],
    BeforeValidator(_named),
    _OrWord(),
]
"""A name, or a mapping with a name."""

CROSS_ENTROPY = CrossEntropyLoss(name="cross_entropy")


def has_classes(loss: Loss) -> bool:
    """Return whether a record's answer is one class, so that there are accuracy, confusion and scores."""
    return loss.answers == "class"


def predicts_number(loss: Loss) -> bool:
    """Return whether a record's answer is one number, which is scaled within a run."""
    return loss.answers == "number"


def takes_classes(loss: Loss, classes: int | None) -> bool:
    """Return whether the answers are whole numbers of classes, one for a record or for each of its pixels.

    Args:
        loss: the plan's; one of its own takes classes where the plan states how many there are.
        classes: how many the plan states; None where it does not.
    """
    return loss.answers in {"class", "pixels"} or (loss.answers == "any" and bool(classes))


def guessing_costs(loss: Loss, classes: int, labels: int = 0) -> float | None:
    """Return the loss of every record where each outcome is given the same chance; None where that has no meaning.

    Args:
        loss: the plan's.
        classes: how many there are; 0 where there are none.
        labels: of multi-label records, how many.
    """
    match loss:
        case CrossEntropyLoss() | OrdinalLoss() | SegmentationLoss():
            return math.log(classes)
        case BinaryLoss():
            return math.log(2)
        case MultiLabelLoss(reduction=reduction):
            return math.log(2) * (labels if reduction == "sum" else 1)
        case _:
            return None


def is_likelihood(loss: Loss) -> bool:
    """Return whether a loss is minus the logarithm of the probability that a whole outcome was given."""
    match loss:
        case CrossEntropyLoss() | OrdinalLoss() | BinaryLoss():
            return True
        case MultiLabelLoss(reduction=reduction):
            return reduction == "sum"
        case _:
            return False


NO_LOSS_RANGE = "is not stated, and nothing else tells how large a loss of this task can be"
"""The fault of `evaluation.loss_range` in a plan whose histogram has no end."""


def loss_range_remedy(loss: Loss) -> str:
    """Return how somebody finds the end of the histogram, where `NO_LOSS_RANGE` is the fault."""
    trial = (
        f"evaluation.loss_range, in {loss.unit}: the greatest loss that matters; with any first value "
        "`fedfair simulate` tells how many losses are above it"
    )
    if isinstance(loss, SquaredLoss | HuberLoss | PinballLoss):
        return (
            "state task.loss.target_range, the [least, greatest] target that a record can have, where "
            "`fedfair data check` shows a site its own; or state " + trial
        )
    return f"state {trial}"


def has_natural_range(loss: Loss) -> bool:
    """Return whether the histogram ends somewhere without the plan saying so, whatever the data have."""
    match loss:
        case SquaredLoss() | HuberLoss() | PinballLoss():
            return loss.target_range is not None
        case OwnLoss():
            return False
        case _:
            return True


def natural_range(loss: Loss, classes: int, labels: int = 0) -> float | None:
    """Return where the histogram of the losses ends unless the plan says so; None where nothing tells.

    Args:
        loss: the plan's.
        classes: how many there are; 0 where there are none.
        labels: of multi-label records, how many.
    """
    guess = guessing_costs(loss, classes, labels)
    if guess is not None:
        return RANGE_IN_GUESSES * guess
    if isinstance(loss, SurvivalLoss):
        # An event in one of the intervals, or in none: so many outcomes.
        return RANGE_IN_GUESSES * math.log(len(loss.intervals) + 1)
    if isinstance(loss, SquaredLoss | HuberLoss | PinballLoss) and loss.target_range is not None:
        return greatest_loss(loss, loss.target_range[1] - loss.target_range[0])
    return None


def greatest_loss(loss: SquaredLoss | HuberLoss | PinballLoss, error: float) -> float:
    """Return the greatest loss of an error of at most this size, from 0 on, in units of the target."""
    match loss:
        case SquaredLoss():
            return error * error
        case HuberLoss(delta=delta):
            return 0.5 * error * error if error <= delta else delta * (error - 0.5 * delta)
        case PinballLoss(quantile=quantile):
            return max(quantile, 1.0 - quantile) * error


def least_explained(loss: Loss) -> float:
    """Return the least R^2 of a model that is right about its loss: 0 for a mean, which squared errors ask for.

    A q-quantile is at most k = sqrt(max(q, 1 - q) / min(q, 1 - q)) deviations from the mean (Cantelli). What Huber
    loss asks for is at most one deviation from it: where it is m below the mean, at most half of the errors e are
    above delta, so that E e^2 is at least 2 m^2. Given the features, a mean squared error is then at most 1 + k^2
    times the variance that is left, and that is at most the variance of the targets.
    """
    match loss:
        case HuberLoss():
            return -1.0
        case PinballLoss(quantile=quantile):
            return -max(quantile, 1.0 - quantile) / min(quantile, 1.0 - quantile)
        case _:
            return 0.0


def loss_in_words(loss: Loss) -> str:
    """Return the loss with its unit, as a certificate names it; a plan's `cross_entropy` keeps its old words."""
    detail = ""
    match loss:
        case HuberLoss(delta=delta):
            detail = f" with delta {delta:g}"
        case PinballLoss(quantile=quantile):
            detail = f" of the quantile {quantile:g}"
        case MultiLabelLoss(reduction=reduction):
            detail = f", {reduction} over the labels"
        case SurvivalLoss(intervals=intervals):
            detail = f" over {len(intervals)} intervals"
        case OwnLoss(name=name):
            detail = f" {name}"
    return f"{loss.title}{detail} in {loss.unit}"
