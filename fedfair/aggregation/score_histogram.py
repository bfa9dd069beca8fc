"""The histogram of scores that one site adds to an evaluation, where a plan has `evaluation.scores: true`.

A score is the probability that the model gives to a class. Decides what is in the block of a split and class; what
the summed numbers prove is `ranking.py`'s business. With two classes there is one column, the score of class 1.
With more there is one for each class: a record is positive where the class is its own (one against the rest).

A block holds, for each bin, how many positive records it has and how many negative; for each `JOINED` bins, the
sum of their scores; and once the sum of the squared differences between score and outcome, which is 1 for a
positive record and 0 for a negative one. For these sums each score counts as the middle of its bin. So they tell
nothing that the counts do not, and a lone record shows its bin and whether it is of the class, and no more. A
score moves by at most half a bin: by less than 1 in 2000 with two classes, and by 1 in 190 with ten.

Bins are narrow near 0 and 1, where the scores of rare classes lie, and near 1/2, where those of a model lie that
can hardly tell two classes apart. With h = 2 b / bins, bin b begins at h^2 for h up to 1/2 and at 1/2 - (1 - h)^2
from there to h = 1; above 1/2 bins are their mirror image. These operations round alike on every machine, so all
sites have the same bins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Field, Group, Number, one_of
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.errors import TrainingError

CELLS = 2048
"""Bins of all columns together, at most: so an evaluation fits one masked header, whatever else its plan asks."""

JOINED = 16
"""So many neighbouring bins share one sum of scores, which calibration needs; ranking needs counts alone."""


def score_bins(columns: int) -> int:
    """Return how many bins each of so many columns has: a multiple of `JOINED`, 2048 for one, 192 for ten."""
    return CELLS // max(columns, 1) // JOINED * JOINED


def score_edges(bins: int) -> NDArray[np.float64]:
    """Return where bins begin, and where the last one ends: increasing array (bins + 1,) from 0 to 1.

    Args:
        bins: how many there are, an even number.
    """
    share = 2.0 * np.arange(bins // 2 + 1) / bins
    rest = 1.0 - share
    lower = np.where(share <= 0.5, share * share, 0.5 - rest * rest)
    return np.concatenate([lower, 1.0 - lower[-2::-1]])


def score_group(columns: int) -> Group:
    """Return the fields of all splits and columns: without values where there are no columns."""
    bins = score_bins(columns)
    fields = (
        Field("positives", Number.COUNT, (bins,), lone=one_of(bins + 1)),
        Field("negatives", Number.COUNT, (bins,), lone=one_of(bins + 1)),
        Field("scores", Number.REAL, (bins // JOINED,), lone=one_of(bins)),
        Field("squares", Number.REAL, lone=one_of(2 * bins)),
    )
    return Group("scores", fields, (len(SPLITS), columns))


def scored_classes(columns: int) -> tuple[int, ...]:
    """Return the class that each column is about."""
    return (1,) if columns == 1 else tuple(range(columns))


def bounded_scores(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return scores that every histogram holds: what is no number counts as 0.

    A score is no number only where the loss is none either. So it is counted among the replaced losses.
    """
    return np.clip(np.nan_to_num(np.asarray(scores, np.float64), nan=0.0), 0.0, 1.0)


def rounded_scores(scores: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """Return the middle of the bin that each score is in: array of the same shape, of scores from 0 to 1."""
    found: NDArray[np.float64] = bin_middles(columns)[_places(scores, score_edges(score_bins(columns)))]
    return found


def bin_middles(columns: int) -> NDArray[np.float64]:
    """Return the middle of each bin, for which the scores in it count: increasing array (bins,) within (0, 1)."""
    edges = score_edges(score_bins(columns))
    middles: NDArray[np.float64] = 0.5 * (edges[:-1] + edges[1:])
    return middles


def _places(scores: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return which bin each score is in; the last one ends with 1."""
    return np.searchsorted(edges[1:-1], scores, side="right")


def score_sums(
    scores: NDArray[np.float64], labels: NDArray[np.integer], columns: int
) -> dict[str, NDArray[np.float64]]:
    """Return what the records of one split add, by the names of the fields: arrays (columns, ...).

    Args:
        scores: float64 array (n, columns) from 0 to 1; n may be 0.
        labels: the class of each record, int array (n,).
        columns: how many there are.

    Raises:
        TrainingError: the model has given another number of scores, or one that is no probability.
    """
    if scores.shape != (len(labels), columns) or not ((scores >= 0.0) & (scores <= 1.0)).all():
        raise TrainingError(
            f"the model gives scores of shape {scores.shape} for {len(labels)} records; a histogram of scores "
            f"needs {columns} probabilities for each",
            "let the model return one finite logit for each class",
        )
    bins = score_bins(columns)
    edges, blocks = score_edges(bins), []
    for column, wanted in zip(scores.T, scored_classes(columns), strict=True):
        positive = labels == wanted
        places, rounded = _places(column, edges), rounded_scores(column, columns)
        count = np.bincount(places, minlength=bins)
        won = np.bincount(places[positive], minlength=bins)
        off = rounded - positive
        sums = np.bincount(places // JOINED, weights=rounded, minlength=bins // JOINED)
        blocks.append((won, count - won, sums, float(off @ off)))
    names = ("positives", "negatives", "scores", "squares")
    return {
        name: np.array(found, np.float64) for name, found in zip(names, zip(*blocks, strict=True), strict=True)
    }
