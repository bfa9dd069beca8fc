"""Computes how well scores rank records: the area under the ROC curve (AUC), exactly, from every single score.

It is the share of pairs, one positive record and one negative, in which the positive one has the higher score; a
pair of equal scores counts half (Hanley and McNeil 1982). For simulations, tests and one site's own records;
`aggregation.ranking` bounds the same from sums over sites. No torch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError


def area_under_curve(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float | None:
    """Return the AUC, 0 to 1; None where all records are positive, or none is.

    Pairs are counted in whole numbers, so the only rounding is that of the last division.

    Args:
        scores: array (n,), finite; n may be 0.
        positive: bool array (n,).

    Raises:
        LocalProtocolError: the two have different lengths, or a score is NaN or infinite.
    """
    if scores.ndim != 1 or scores.shape != positive.shape or not np.isfinite(scores).all():
        raise LocalProtocolError(
            f"scores {scores.shape} and positives {positive.shape} must be finite numbers, one for each record"
        )
    _, place = np.unique(scores, return_inverse=True)
    levels = int(place.max(initial=-1)) + 1
    won = np.bincount(place[positive], minlength=levels).tolist()
    lost = np.bincount(place[~positive], minlength=levels).tolist()
    surely, tied = ranked_pairs(won, lost)
    pairs = sum(won) * sum(lost)
    return (2 * surely + tied) / (2 * pairs) if pairs else None


def ranked_pairs(positives: list[int], negatives: list[int]) -> tuple[int, int]:
    """Return in how many pairs the positive record is on a higher level, and in how many on the same.

    Args:
        positives: how many positive records are on each level, from the lowest score on.
        negatives: likewise.
    """
    surely = tied = below = 0
    for positive, negative in zip(positives, negatives, strict=True):
        surely += positive * below
        tied += positive * negative
        below += negative
    return surely, tied
