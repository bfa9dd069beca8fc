"""The loss of each record of a batch from a model's outputs: one row for each loss that a plan can name.

Decides the formulas, what is predicted from outputs, and which figures of a record are summed beside its loss.
What a loss takes and tells is said in `fedfair.plan.losses`. Every function is of one record at a time: row i
depends on row i alone. A loss of a plan's own ("module:function") is called as it is, and what it returns is
checked each time.

    squared    e^2                     huber     e^2 / 2 up to delta, then delta (|e| - delta / 2)
    pinball    max(q e, (q - 1) e)     with e = target - output
    ordinal    -log(s(z_k-1) - s(z_k)) with s the logistic function, z_k the logit of being above class k
    survival   sum of -log(1 - h_j) over the intervals that were survived, and -log h_j where the event fell

A loss of a number works on targets in deviations, and so do the model's outputs: `per_record` is the loss that is
trained, `natural` the same in the unit of the plan's keys, and delta is in the target's own unit
(`aggregation.target_scaling`).

Sources: Huber 1964; Koenker and Bassett 1978; McCullagh 1980; Brown 1975 for hazards by interval.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from fedfair.aggregation.loss_metrics import error_unit
from fedfair.aggregation.target_scaling import TargetScaling, target_scaling
from fedfair.errors import FedfairError, PlanError, TrainingError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import (
    BinaryLoss,
    CrossEntropyLoss,
    HuberLoss,
    Loss,
    MultiLabelLoss,
    OrdinalLoss,
    OwnLoss,
    PinballLoss,
    SegmentationLoss,
    SquaredLoss,
    SurvivalLoss,
)
from fedfair.plan.module_code import load_callable

TRIAL_RECORDS = 2

OutputsAndTargets = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """The loss of a plan.

    Attributes:
        per_record: from outputs (n, *outputs) and targets (n, *targets) to losses (n,) that are trained.
        chances: from outputs to the probability of each class, (n, classes); None where there are no classes.
        figures: from outputs and targets to what is summed beside the losses, (n, figures); None for nothing.
        is_cross_entropy: whether it is that of plain classes, whose gradient is written down.
        unit: how many natural units one loss of `per_record` has.
        scaled: from the scaling of targets to the same loss under it; None where no scaling matters.
    """

    per_record: OutputsAndTargets
    chances: Callable[[Tensor], Tensor] | None
    figures: OutputsAndTargets | None = None
    is_cross_entropy: bool = False
    unit: float = 1.0
    scaled: Callable[[TargetScaling], RecordLoss] | None = None

    def under(self, target: TargetScaling) -> RecordLoss:
        """Return the same loss where targets are scaled so."""
        return self if self.scaled is None else self.scaled(target)

    def natural(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the losses (n,) in natural units, from what `per_record` takes."""
        losses = self.per_record(outputs, targets)
        return losses if self.unit == 1.0 else losses * self.unit

    @property
    def has_classes(self) -> bool:
        """Whether a record's answer is one class."""
        return self.chances is not None

    def classes_of(self, outputs: Tensor) -> Tensor:
        """Return the likeliest class of each record, int64 (n,); without columns (n, 0) where there are none."""
        if self.is_cross_entropy:
            return outputs.argmax(dim=1)
        if self.chances is None:
            return outputs.new_zeros(len(outputs), 0)
        return self.chances(outputs).argmax(dim=1)

    def figures_of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what is summed beside the losses, float tensor (n, figures)."""
        return outputs.new_zeros(len(outputs), 0) if self.figures is None else self.figures(outputs, targets)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each record in nats, (n,), from logits (n, classes) and classes (n,)."""
    return functional.cross_entropy(outputs, targets, reduction="none")


CROSS_ENTROPY = RecordLoss(cross_entropy, functools.partial(functional.softmax, dim=1), is_cross_entropy=True)


def record_loss(  # noqa: PLR0911 - one return for each loss
    loss: Loss, schema: FeatureSchema, loss_range: float, workspace: Path, *, singly: bool = False
) -> RecordLoss:
    """Return the loss of a plan.

    Args:
        loss: what the plan says under `task.loss`.
        schema: what the model accepts and returns.
        loss_range: where the histogram of the losses ends, in units of the loss.
        workspace: where a "module:function" is looked for; the caller has checked that it may run.
        singly: whether a loss of the plan's own is called with one record at a time, so that none can depend on
            another, whatever the code does: what noise for records is scaled by.

    Raises:
        PlanError: a loss of the plan's own cannot be loaded, or fails on zeros.
    """
    match loss:
        case CrossEntropyLoss():
            return CROSS_ENTROPY
        case BinaryLoss():
            return RecordLoss(_logistic, _chance_of_two)
        case OrdinalLoss():
            return RecordLoss(_ordinal, ordinal_chances)
        case SquaredLoss() | HuberLoss() | PinballLoss():
            return _number_loss(target_scaling(loss, None), loss, loss_range)
        case MultiLabelLoss(reduction=reduction):
            return RecordLoss(functools.partial(_multi_label, mean=reduction == "mean"), None, _label_figures)
        case SurvivalLoss(intervals=intervals):
            return RecordLoss(
                functools.partial(_survival, ends=intervals),
                None,
                functools.partial(_interval_figures, ends=intervals),
            )
        case SegmentationLoss():
            return RecordLoss(_segmentation, None, _area_figures)
        case OwnLoss(name=name):
            per_record = _own_loss(name, schema, workspace)
            return RecordLoss(functools.partial(_one_by_one, per_record) if singly else per_record, None)


def trial_targets(loss: Loss, schema: FeatureSchema, count: int) -> Tensor:
    """Return answers that a record may have, (count, *targets), to try a model or a loss on."""
    shape, numbers = (count, *schema.targets), torch.arange(count)
    if schema.classes:
        return (numbers % schema.classes).view(-1, *[1] * len(schema.targets)).expand(shape).contiguous()
    if isinstance(loss, SurvivalLoss):
        return torch.stack([numbers % 2 + 0.5 * loss.intervals[0], numbers % 2], dim=1).double()
    return (numbers % 2).double().view(-1, *[1] * len(schema.targets)).expand(shape).contiguous()


# ------------------------------------------------------------------ two classes, and ordered ones


def _logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    logits = outputs[:, 0]
    return functional.softplus(logits) - logits * targets.to(logits)


def _chance_of_two(outputs: Tensor) -> Tensor:
    chance = torch.sigmoid(outputs[:, 0])
    return torch.stack([1.0 - chance, chance], dim=1)


def _ordinal(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the losses from cumulative logits (n, classes - 1), which must fall from column to column.

    With a above and b below a class, s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)), whose logarithms lose no digits.
    """
    above, below, last = _neighbours(outputs, targets)
    inner = (targets > 0) & ~last
    gap = torch.where(inner, below - above, -torch.ones_like(above))
    between = torch.where(inner, -torch.log(-torch.expm1(gap)), torch.zeros_like(above))
    from_below = torch.where(targets > 0, functional.softplus(-above), torch.zeros_like(above))
    from_above = torch.where(last, torch.zeros_like(below), functional.softplus(below))
    return from_below + from_above + between


def _neighbours(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of reaching a class and of being above it, (n,), and whether it is the last one."""
    count = outputs.shape[1]
    reached = outputs.gather(1, (targets - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    above = outputs.gather(1, targets.clamp(max=count - 1).unsqueeze(1)).squeeze(1)
    return reached, above, targets == count


def ordinal_chances(outputs: Tensor) -> Tensor:
    """Return the probability of each of the ordered classes, (n, classes), from cumulative logits."""
    # Of the outputs' own length, which an export must not take for a constant.
    ends = torch.ones_like(outputs[:, :1])
    reached = torch.cat([ends, torch.sigmoid(outputs), torch.zeros_like(ends)], dim=1)
    return (reached[:, :-1] - reached[:, 1:]).clamp(min=0.0)


# ------------------------------------------------------------------ a number


def _number_loss(
    target: TargetScaling, loss: SquaredLoss | HuberLoss | PinballLoss, loss_range: float
) -> RecordLoss:
    """Return the loss of a number under a scaling of the targets; the figures stay in the target's own unit."""
    middle = 0.0 if loss.target_range is None else 0.5 * math.fsum(loss.target_range)
    figures = functools.partial(
        _regression_figures, target=target, unit=error_unit(loss, loss_range), middle=middle
    )
    again = functools.partial(_number_loss, loss=loss, loss_range=loss_range)
    return RecordLoss(_regression(loss, target), None, figures, unit=target.loss_unit(loss), scaled=again)


def _regression(loss: SquaredLoss | HuberLoss | PinballLoss, target: TargetScaling) -> OutputsAndTargets:
    match loss:
        case SquaredLoss():
            return lambda outputs, targets: (outputs[:, 0] - targets.to(outputs)).square()
        case HuberLoss(delta=delta):
            steepness = target.deviation * target.deviation / target.loss_unit(loss)
            return functools.partial(_huber, delta=delta / target.deviation, steepness=steepness)
        case PinballLoss(quantile=quantile):
            steepness = target.deviation / target.loss_unit(loss)
            return functools.partial(_pinball, below=quantile * steepness, above=(1.0 - quantile) * steepness)


def _huber(outputs: Tensor, targets: Tensor, delta: float, steepness: float) -> Tensor:
    losses = functional.huber_loss(outputs[:, 0], targets.to(outputs), reduction="none", delta=delta)
    return losses if steepness == 1.0 else losses * steepness


def _pinball(outputs: Tensor, targets: Tensor, below: float, above: float) -> Tensor:
    missing = targets.to(outputs) - outputs[:, 0]
    return torch.maximum(below * missing, -above * missing)


def _regression_figures(
    outputs: Tensor, targets: Tensor, target: TargetScaling, unit: float, middle: float
) -> Tensor:
    numbers = targets.to(outputs)
    error = (outputs[:, 0] - numbers) * target.deviation / unit
    placed = (numbers * target.deviation + target.middle - middle) / unit
    return torch.stack([error.square(), error.abs(), placed, placed.square()], dim=1)


# ------------------------------------------------------------------ several labels


def _multi_label(outputs: Tensor, targets: Tensor, *, mean: bool) -> Tensor:
    losses = functional.softplus(outputs) - outputs * targets.to(outputs)
    return losses.mean(dim=1) if mean else losses.sum(dim=1)


def _label_figures(outputs: Tensor, targets: Tensor) -> Tensor:
    named, true = outputs > 0.0, targets > 0.5
    cells = torch.stack([named & true, named & ~true, ~named & true], dim=2)
    return cells.flatten(1).to(outputs)


# ------------------------------------------------------------------ a time with an event


def _survived_and_hit(targets: Tensor, ends: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Return which intervals each record survived, and in which the event fell: bool (n, intervals).

    An interval ends with its end: an event at that very time is in it, and who was last seen then survived it.
    """
    times, events = targets[:, :1].double(), targets[:, 1:] > 0.5
    last = torch.tensor(ends, dtype=torch.float64, device=targets.device)
    begins = torch.cat([last.new_full((1,), -torch.inf), last[:-1]])
    survived = torch.where(events, last < times, last <= times)
    return survived, events & (begins < times) & (times <= last)


def _survival(outputs: Tensor, targets: Tensor, ends: tuple[float, ...]) -> Tensor:
    survived, hit = _survived_and_hit(targets, ends)
    losses = survived.to(outputs) * functional.softplus(outputs) + hit.to(outputs) * functional.softplus(-outputs)
    return losses.sum(dim=1)


def _interval_figures(outputs: Tensor, targets: Tensor, ends: tuple[float, ...]) -> Tensor:
    survived, hit = _survived_and_hit(targets, ends)
    at_risk = (survived | hit).to(outputs)
    return torch.stack([at_risk, hit.to(outputs), at_risk * torch.sigmoid(outputs)], dim=2).flatten(1)


# ------------------------------------------------------------------ pixels


def _segmentation(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none").flatten(1).mean(dim=1)


def _area_figures(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of correct pixels, and of each class the shares of common and of joint pixels."""
    classes, named = outputs.shape[1], outputs.argmax(dim=1)
    places = torch.arange(classes, device=outputs.device).view(1, -1, *[1] * (targets.dim() - 1))
    taken, true = named.unsqueeze(1) == places, targets.unsqueeze(1) == places
    areas = torch.stack([(taken & true).flatten(2).sum(2), (taken | true).flatten(2).sum(2)], dim=2)
    correct = (named == targets).flatten(1).sum(1, keepdim=True)
    return torch.cat([correct, areas.flatten(1)], dim=1).to(outputs) / named[0].numel()


# ------------------------------------------------------------------ a loss of the plan's own


def _own_loss(reference: str, schema: FeatureSchema, workspace: Path) -> OutputsAndTargets:
    """Return the function of a reference, whose every result is checked.

    Raises:
        PlanError: it fails on zeros, or does not return one number for each record.
    """
    function = load_callable(reference, workspace)

    def per_record(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = function(outputs, targets)
        fault = _fault(losses, len(outputs))
        if fault:
            raise TrainingError(f"task.loss: {reference} {fault}", _SIGNATURE)
        checked: Tensor = losses  # type: ignore[assignment]
        if not bool((torch.isfinite(checked.detach()) & (checked.detach() >= 0.0)).all()):
            raise TrainingError(
                f"task.loss: {reference} returns losses that are negative, NaN or infinite",
                "return numbers from 0 on; lower learning_rate, or look for extreme values in the data",
            )
        return checked

    outputs = torch.zeros(TRIAL_RECORDS, *schema.output_shape, dtype=torch.float64)
    targets = torch.zeros(TRIAL_RECORDS, *schema.targets, dtype=torch.int64 if schema.classes else torch.float64)
    try:
        found = function(outputs, targets)
    except FedfairError:
        raise
    except Exception as error:  # foreign code may raise anything; it becomes one clear fault
        raise PlanError(f"task.loss: {reference} fails: {type(error).__name__}: {error}", _SIGNATURE) from error
    fault = _fault(found, TRIAL_RECORDS)
    if fault:
        raise PlanError(f"task.loss: {reference} {fault}", _SIGNATURE)
    return per_record


def _one_by_one(per_record: OutputsAndTargets, outputs: Tensor, targets: Tensor) -> Tensor:
    if not len(outputs):
        # A batch that is drawn at random may be empty, for which few functions are written.
        return outputs.flatten(1).sum(dim=1)
    single = zip(torch.split(outputs, 1), torch.split(targets, 1), strict=True)
    return torch.cat([per_record(*record) for record in single])


_SIGNATURE = "it is called with outputs (records, ...) and targets (records, ...) and returns losses (records,)"


def _fault(losses: object, records: int) -> str:
    if not isinstance(losses, Tensor):
        return f"returns {type(losses).__name__}, not a tensor"
    if tuple(losses.shape) != (records,) or not losses.is_floating_point():
        return f"returns {losses.dtype} of shape {tuple(losses.shape)} for {records} records"
    return ""
