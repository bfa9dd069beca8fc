"""The answers of a model whose task has no classes, as named columns of numbers.

    squared, huber, pinball   predicted                                     the number
    multi_label               predicted_<label>, probability_<label>        1 where the probability is above 1/2
    survival                  survival_<end>                                the chance of being past the end
    a loss of its own         output_<place>                                the outputs as they are

Decides names and arithmetic; classes have `prediction_files.py`'s columns. Masks of pixels are no table.

The calibration on the scores of records is in torch, so that exported models have it inside. The numbers of a
class are those of `aggregation.calibration.calibrated`. Two classes have one fit, and the other class gets the
rest. With more, the numbers of each record are scaled to sum 1.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.calibration import LEAST_SCORE, MOST_LOGIT, Calibration
from fedfair.errors import DataError
from fedfair.plan.losses import (
    HuberLoss,
    Loss,
    MultiLabelLoss,
    PinballLoss,
    SegmentationLoss,
    SquaredLoss,
    SurvivalLoss,
)

PREDICTED = "predicted"


def answer_names(loss: Loss, labels: tuple[str, ...], outputs: int) -> tuple[str, ...]:
    """Return the names of the columns of answers.

    Args:
        loss: the plan's; not one of classes.
        labels: names of the labels of a multi-label task, in order; empty where they have none.
        outputs: how many numbers the model returns for a record.

    Raises:
        DataError: the answers are masks.
    """
    match loss:
        case SquaredLoss() | HuberLoss() | PinballLoss():
            return (PREDICTED,)
        case MultiLabelLoss():
            names = labels or tuple(str(place) for place in range(outputs))
            return (*(f"{PREDICTED}_{name}" for name in names), *(f"probability_{name}" for name in names))
        case SurvivalLoss(intervals=intervals):
            return tuple(f"survival_{end:g}" for end in intervals)
        case SegmentationLoss():
            raise DataError("a mask for each record is no table", "use load_model(...).predict in Python")
        case _:
            return tuple(f"output_{place}" for place in range(outputs))


def answer_table(loss: Loss, outputs: Tensor) -> NDArray[np.float64]:
    """Return the answers: float64 array (n, columns), in the order of `answer_names`.

    Args:
        loss: the plan's; not one of classes.
        outputs: float64 tensor (n, *outputs) of the model.
    """
    match loss:
        case MultiLabelLoss():
            chances = torch.sigmoid(outputs)
            found = torch.cat([(chances > 0.5).double(), chances], dim=1)
        case SurvivalLoss():
            found = (1.0 - torch.sigmoid(outputs)).cumprod(dim=1)
        case _:
            found = outputs.flatten(1)
    table: NDArray[np.float64] = found.numpy()
    return table


def answers(loss: Loss, outputs: Tensor) -> NDArray[np.generic]:
    """Return what is predicted for each record: numbers (n,), labels or survival (n, ...), or masks (n, h, w)."""
    match loss:
        case SquaredLoss() | HuberLoss() | PinballLoss():
            return np.asarray(outputs[:, 0].numpy())
        case MultiLabelLoss():
            return np.asarray((outputs > 0.0).long().numpy())
        case SurvivalLoss():
            return answer_table(loss, outputs)
        case SegmentationLoss():
            return np.asarray(outputs.argmax(dim=1).numpy())
        case _:
            return np.asarray(outputs.numpy())


def fits_of(calibration: Calibration) -> tuple[Tensor, Tensor]:
    """Return slopes and intercepts, float64 tensors (fits,)."""
    slopes = torch.tensor([fit.slope for fit in calibration.fits], dtype=torch.float64)
    return slopes, torch.tensor([fit.intercept for fit in calibration.fits], dtype=torch.float64)


def calibrated_chances(scores: Tensor, slopes: Tensor, intercepts: Tensor) -> Tensor:
    """Return probabilities (n, classes); each row sums to 1.

    Args:
        scores: float64 tensor (n, classes), each row of sum 1.
        slopes: float64 tensor (fits,): 1 for two classes, else one for each.
        intercepts: likewise.
    """
    two = slopes.shape[0] == 1
    wanted = (scores[:, 1:] if two else scores).clamp(LEAST_SCORE, 1.0 - LEAST_SCORE)
    logits = (slopes * (torch.log(wanted) - torch.log1p(-wanted)) + intercepts).clamp(-MOST_LOGIT, MOST_LOGIT)
    found = torch.sigmoid(logits)
    if two:
        return torch.cat([torch.sigmoid(-logits), found], dim=1)
    return found / found.sum(dim=1, keepdim=True)
