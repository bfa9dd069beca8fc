"""The losses of a model on a split, one by one. Nothing is trained here.

Losses are computed from the logits in float64 on the CPU, whatever the precision of the training, so that the
figures that are reported are those of the model that is saved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.errors import LocalProtocolError, TrainingError
from fedfair.fairness.record_losses import Losses
from fedfair.privacy.batch_parts import ALONE, BatchParts
from fedfair.training.device import SplitRecords, plain_arithmetic
from fedfair.training.flat_model import FlatModel
from fedfair.training.model_faults import training_faults
from fedfair.training.record_loss import RecordLoss


def evaluate(
    model: FlatModel,
    records: SplitRecords,
    columns: int,
    parts: BatchParts = ALONE,
    judged: SplitRecords | None = None,
) -> Losses:
    """Return the loss of each record, its class, the likeliest class, its scores, and its other figures.

    Args:
        model: the model.
        records: on its device.
        columns: of how many classes the scores are asked for, as `plan.derived.score_columns` says.
        parts: the processes that evaluate together, each some of the batches.
        judged: the same records with the references' answers, for the excess over what these attain; None for no
            excess.
    """
    return _evaluated(model, records, columns, partial(_batch_figures, columns=columns), parts, judged)


def evaluate_or_nan(
    model: FlatModel,
    records: SplitRecords,
    classes: int,
    columns: int,
    figures: int = 0,
    parts: BatchParts = ALONE,
    judged: SplitRecords | None = None,
) -> tuple[Losses, str]:
    """Return the same; of a batch that the model fails on, NaN for all its numbers, and no correct prediction.

    Args:
        model: whatever it raises.
        records: on its device.
        classes: how many there are; a model that returns another number of logits has failed.
        columns: as for `evaluate`.
        figures: how many further figures a record has.
        parts: as for `evaluate`.
        judged: as for `evaluate`.

    Returns:
        The losses, and what the first failure was, for this site's operator alone; empty where there was none.
    """
    faults: list[str] = []

    classified = model.record_loss.has_classes

    def batch_figures(model: FlatModel, features: Tensor, labels: Tensor, said: Tensor | None) -> _Found:
        count, told = len(labels), 0 if said is None else 1
        try:
            with training_faults():
                found = _batch_figures(model, features, labels, said, columns)
            named = (count,) if classified else (count, 0)
            shapes = found.losses.shape == (count,) and found.predictions.shape == named
            shapes = shapes and found.scores.shape == (count, columns) and found.figures.shape == (count, figures)
            shapes = shapes and found.excess.shape == (count, told)
            if shapes and (not classified or bool((found.predictions < classes).all())):
                return found
            faults.append("the model does not return one logit for each class of each record")
        except TrainingError as fault:
            faults.append(fault.diagnostics())
        nothing = torch.full((count, 1 + columns + figures), torch.nan, dtype=torch.float64)
        wrong = (labels.cpu() + 1) % classes if classified else nothing[:, :0]
        scores, others = nothing[:, 1 : 1 + columns], nothing[:, 1 + columns :]
        return _Found(nothing[:, 0], wrong, scores, others, nothing[:, :told])

    found = _evaluated(model, records, columns, batch_figures, parts, judged)
    return found, next(iter(faults), "")


class _Found(NamedTuple):
    """The losses, predictions, scores and figures of a batch, on the CPU; its excess in one column, or in none."""

    losses: Tensor
    predictions: Tensor
    scores: Tensor
    figures: Tensor
    excess: Tensor


_BatchFigures = Callable[[FlatModel, Tensor, Tensor, Tensor | None], _Found]
"""From a batch, with the references' answers where they have judged, to what is found of it."""


def _batch_figures(
    model: FlatModel, features: Tensor, labels: Tensor, said: Tensor | None, columns: int
) -> _Found:
    loss, answers = model.record_loss, labels.cpu()
    outputs = model(features).cpu().double()
    losses = loss.natural(outputs, answers)
    figures = loss.figures_of(outputs, answers)
    excess = outputs.new_zeros(len(outputs), 0)
    if said is not None:
        if model.excess is None:
            raise LocalProtocolError("a model whose steps follow the loss has no excess")
        excess = (model.excess(outputs, said.cpu()) * loss.unit).reshape(len(outputs), 1)
    return _Found(losses, loss.classes_of(outputs), _scores(loss, outputs, columns), figures, excess)


def _scores(loss: RecordLoss, outputs: Tensor, columns: int) -> Tensor:
    """Return the probabilities that are asked for; of two classes, that of the second."""
    if not columns or loss.chances is None:
        return outputs.new_zeros(len(outputs), 0)
    chances = loss.chances(outputs)
    return chances[:, 1:] if columns == 1 else chances


def _evaluated(
    model: FlatModel,
    records: SplitRecords,
    columns: int,
    batch_figures: _BatchFigures,
    parts: BatchParts,
    judged: SplitRecords | None,
) -> Losses:
    if model.training:
        model.eval()
    classified = model.record_loss.has_classes
    none, no_figures = torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0, dtype=torch.float64)
    no_losses, no_scores = torch.zeros(0, dtype=torch.float64), torch.zeros(0, columns, dtype=torch.float64)
    held = [no_losses, none, none, no_scores, no_figures, torch.zeros(0, int(judged is not None)).double()]
    own: dict[int, tuple[int, list[NDArray[np.generic]]]] = {}
    done = 0
    with torch.inference_mode(), plain_arithmetic(), parts.agreed():
        for number, (features, labels) in enumerate(records.in_order()):
            if parts.owns(number):
                said = None if judged is None else judged.labels[done : done + len(labels)]
                came = batch_figures(model, features, labels, said)
                classes = labels.cpu() if classified else came.predictions
                batch = (came.losses, classes, came.predictions, came.scores, came.figures, came.excess)
                if not own:
                    # Filled batch by batch: to join them at the end would take twice the memory.
                    held = [part.new_empty((len(records), *part.shape[1:])) for part in batch]
                places = [whole[done : done + len(labels)] for whole in held]
                for place, part in zip(places, batch, strict=True):
                    place.copy_(part)
                own[number] = done, [place.numpy() for place in places]
            done += len(labels)
    everything = [whole.numpy() for whole in held]
    found = parts.gathered(own)
    if found and not own:
        first = next(iter(found.values()))[1]
        everything = [np.empty((len(records), *part.shape[1:]), part.dtype) for part in first]
    for number in found.keys() - own.keys():
        start, others = found[number]
        for values, other in zip(everything, others, strict=True):
            values[start : start + len(other)] = other
    losses, true, named, scores, figures, excess = everything
    return Losses(losses, true, named, scores, figures, excess.reshape(-1), has_classes=classified)
