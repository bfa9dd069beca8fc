"""The calibration of a saved model on the scores of records, in torch, so that exported models have it inside.

The numbers of a class are those of `aggregation.calibration.calibrated`. Two classes have one fit, and the other
class gets the rest. With more, the numbers of each record are scaled to sum 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedfair.aggregation.calibration import LEAST_SCORE, MOST_LOGIT, Calibration


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
