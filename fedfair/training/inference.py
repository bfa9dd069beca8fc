"""The losses of a model on a split, one by one. Nothing is trained here.

Losses are computed from the logits in float64 on the CPU, whatever the precision of the training, so that the
figures that are reported are those of the model that is saved.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from fedfair.errors import TrainingError
from fedfair.fairness.record_losses import Losses
from fedfair.training.device import SplitRecords, plain_arithmetic
from fedfair.training.flat_model import FlatModel
from fedfair.training.model_faults import training_faults


def evaluate(model: FlatModel, records: SplitRecords) -> Losses:
    """Return the cross-entropy of each record, its label, and the class with the largest logit."""
    return _evaluated(model, records, _judged)


def evaluate_or_nan(model: FlatModel, records: SplitRecords, classes: int) -> tuple[Losses, str]:
    """Return the same; of a batch that the model fails on, NaN for every loss and no correct prediction.

    Args:
        model: whatever it raises.
        records: on its device.
        classes: how many there are; a model that returns another number of logits has failed.

    Returns:
        The losses, and what the first failure was, for this site's operator alone; empty where there was none.
    """
    faults: list[str] = []

    def judged(model: FlatModel, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        try:
            with training_faults():
                losses, predictions = _judged(model, features, labels)
            if losses.shape == predictions.shape == labels.shape and bool((predictions < classes).all()):
                return losses, predictions
            faults.append("the model does not return one logit for each class of each record")
        except TrainingError as fault:
            faults.append(fault.diagnostics())
        return torch.full(labels.shape, torch.nan, dtype=torch.float64), (labels.cpu() + 1) % classes

    found = _evaluated(model, records, judged)
    return found, next(iter(faults), "")


_Judged = Callable[[FlatModel, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From a batch to its losses and predictions, on the CPU."""


def _judged(model: FlatModel, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = model(features).cpu().double()
    return functional.cross_entropy(logits, labels.cpu(), reduction="none"), logits.argmax(dim=1)


def _evaluated(model: FlatModel, records: SplitRecords, judged: _Judged) -> Losses:
    if model.training:
        model.eval()
    values, none = [torch.zeros(0, dtype=torch.float64)], torch.zeros(0, dtype=torch.int64)
    truths, predictions = [none], [none]
    with torch.inference_mode(), plain_arithmetic():
        for features, labels in records.in_order():
            losses, taken_for = judged(model, features, labels)
            values.append(losses)
            truths.append(labels.cpu())
            predictions.append(taken_for)
    return Losses(torch.cat(values).numpy(), torch.cat(truths).numpy(), torch.cat(predictions).numpy())
