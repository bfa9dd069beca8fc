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


def evaluate(model: FlatModel, records: SplitRecords, columns: int) -> Losses:
    """Return the cross-entropy of each record, its label, the class with the largest logit, and its scores.

    Args:
        model: the model.
        records: on its device.
        columns: of how many classes the scores are asked for, as `plan.derived.score_columns` says.
    """

    def judged(model: FlatModel, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _judged(model, features, labels, columns)

    return _evaluated(model, records, columns, judged)


def evaluate_or_nan(model: FlatModel, records: SplitRecords, classes: int, columns: int) -> tuple[Losses, str]:
    """Return the same; of a batch that the model fails on, NaN for all losses and scores, no correct prediction.

    Args:
        model: whatever it raises.
        records: on its device.
        classes: how many there are; a model that returns another number of logits has failed.
        columns: as for `evaluate`.

    Returns:
        The losses, and what the first failure was, for this site's operator alone; empty where there was none.
    """
    faults: list[str] = []

    def judged(model: FlatModel, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        try:
            with training_faults():
                losses, predictions, scores = _judged(model, features, labels, columns)
            shapes = losses.shape == predictions.shape == labels.shape and scores.shape == (len(labels), columns)
            if shapes and bool((predictions < classes).all()):
                return losses, predictions, scores
            faults.append("the model does not return one logit for each class of each record")
        except TrainingError as fault:
            faults.append(fault.diagnostics())
        nothing = torch.full((len(labels), 1 + columns), torch.nan, dtype=torch.float64)
        return nothing[:, 0], (labels.cpu() + 1) % classes, nothing[:, 1:]

    found = _evaluated(model, records, columns, judged)
    return found, next(iter(faults), "")


_Judged = Callable[[FlatModel, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From a batch to its losses, predictions and scores, on the CPU."""


def _judged(model: FlatModel, features: Tensor, labels: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    logits = model(features).cpu().double()
    losses = functional.cross_entropy(logits, labels.cpu(), reduction="none")
    return losses, logits.argmax(dim=1), _scores(logits, columns)


def _scores(logits: Tensor, columns: int) -> Tensor:
    """Return the probabilities that are asked for; of two classes, that of the second."""
    if not columns:
        return logits.new_zeros(len(logits), 0)
    chances = functional.softmax(logits, dim=1)
    return chances[:, 1:] if columns == 1 else chances


def _evaluated(model: FlatModel, records: SplitRecords, columns: int, judged: _Judged) -> Losses:
    if model.training:
        model.eval()
    values, none = [torch.zeros(0, dtype=torch.float64)], torch.zeros(0, dtype=torch.int64)
    truths, predictions = [none], [none]
    scores = [torch.zeros(0, columns, dtype=torch.float64)]
    with torch.inference_mode(), plain_arithmetic():
        for features, labels in records.in_order():
            losses, taken_for, found = judged(model, features, labels)
            values.append(losses)
            truths.append(labels.cpu())
            predictions.append(taken_for)
            scores.append(found)
    parts = (torch.cat(part).numpy() for part in (values, truths, predictions, scores))
    return Losses(*parts)
