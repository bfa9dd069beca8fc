"""The base rate of held-out records: the losses of the constant prediction that knows the training answers alone.

A model that does no better has learnt nothing of the features. For classes and labels the constant is their shares
among the training records, with one more record of each outcome; for a number it is what the loss asks for, such
as the mean. Other answers have none here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.record_losses import Answers
from fedfair.plan.losses import (
    HuberLoss,
    Loss,
    MultiLabelLoss,
    PinballLoss,
    SquaredLoss,
    has_classes,
    is_likelihood,
)

Array = NDArray[np.float64]


def base_losses(loss: Loss, train: Answers, held_out: Answers, classes: int) -> Array | None:
    """Return the loss of each held-out record (n,) by the constant of the training records; None where unknown.

    Args:
        loss: the plan's.
        train: the answers that are known, array (n, ...).
        held_out: those that are asked for, likewise.
        classes: how many there are; 0 where there are none.
    """
    match loss:
        case MultiLabelLoss(reduction=reduction):
            chances = (train.sum(axis=0) + 1.0) / (len(train) + 2.0)
            each = -np.log(np.where(held_out == 1, chances, 1.0 - chances))
            return np.asarray(each.mean(axis=1) if reduction == "mean" else each.sum(axis=1))
        case SquaredLoss():
            return np.asarray(np.square(_numbers(held_out) - _numbers(train).mean()))
        case HuberLoss(delta=delta):
            apart = np.abs(_numbers(held_out) - np.median(_numbers(train)))
            return np.where(apart <= delta, 0.5 * np.square(apart), delta * (apart - 0.5 * delta))
        case PinballLoss(quantile=quantile):
            lacking = _numbers(held_out) - np.quantile(_numbers(train), quantile)
            return np.maximum(quantile * lacking, (quantile - 1.0) * lacking)
        case _ if is_likelihood(loss) and has_classes(loss):
            counts = np.bincount(train, minlength=classes) + 1.0
            return np.asarray(-np.log(counts / counts.sum())[held_out])
        case _:
            return None


def _numbers(answers: Answers) -> Array:
    return np.asarray(answers, np.float64).reshape(len(answers))
