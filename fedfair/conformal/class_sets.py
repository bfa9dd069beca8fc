"""Sets of classes: which classes of a record are in its set, and how large the sets of a split are.

The set of a record has each class whose score, the probability before any calibration, reaches a threshold. A
calibration of each class turns no order round, so it would change no set. The threshold is an edge of the bins of
the histogram of scores (`aggregation.score_histogram`). Of two classes it has the score of class 1; that of class
0 is 1 less it, and bins are their own mirror image.

Where a model is computed again, on another machine or in other batches, its logits differ in their last digits,
and scores by a share of themselves. So a score reaches the threshold from 2^-12 of it below on. That only enlarges
sets, and the promise holds for what any machine answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.score_histogram import score_bins, score_edges

SLACK: Final = 2.0**-12
"""By this share of the threshold a score may be below it. Single precision moves a logit of size 100 by 1e-5, and
a score by twice as much of itself: a twelfth of it."""


@dataclass(frozen=True, slots=True)
class SetSizes:
    """How many classes the sets of some records have.

    Attributes:
        mean: the mean number.
        shares: of records with no, one and two classes; empty for more than two, where sums do not tell them.
    """

    mean: float
    shares: tuple[float, ...] = ()


def is_in_set(scores: NDArray[np.float64], least: float) -> NDArray[np.bool_]:
    """Return which classes are in the set of each record: array (n, classes).

    Args:
        scores: (n, classes), before any calibration.
        least: the threshold, 0 to 1.
    """
    found: NDArray[np.bool_] = scores >= least * (1.0 - SLACK)
    return found


@dataclass(frozen=True, slots=True)
class ScoredAnswers:
    """How well the scores of a model's classes fit, by the bins of its histograms of scores.

    Attributes:
        columns: histograms of scores for each split: 1 for two classes, else one for each.
        kind: of the sets.
        field: of an evaluation's sums, whose part for one split the methods take as `block`.
    """

    columns: int
    kind: ClassVar[Literal["classes"]] = "classes"
    field: ClassVar[str] = "scores"

    def counts(self, block: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many records have the score of their own class in each bin, from 0 on: array (bins,)."""
        found = block["positives"].sum(axis=0)
        if self.columns == 1:
            found = found + block["negatives"][0, ::-1]
        counts: NDArray[np.int64] = np.rint(found).astype(np.int64)
        return counts

    def bound(self, missed: int) -> float:
        """Return the least score of a class in a set, where so many bins are before the threshold."""
        return float(score_edges(score_bins(self.columns))[missed])

    def missed(self, bound: float) -> int:
        """Return how many bins are before a threshold.

        Raises:
            ValueError: no bin begins there.
        """
        edges = score_edges(score_bins(self.columns))[:-1]
        place = int(np.searchsorted(edges, bound))
        if place == len(edges) or edges[place] != bound:
            raise ValueError(f"no bin of scores begins at {bound}")
        return place

    def sizes(self, block: NDArray[Any], missed: int) -> SetSizes:
        """Return how large the sets of a split's records are, where so many bins are before the threshold."""
        counts = np.rint(block["positives"] + block["negatives"])
        records = float(counts[0].sum())
        if self.columns > 1:
            return SetSizes(float(counts[:, missed:].sum() / records))
        of_class_1 = np.arange(counts.shape[1]) >= missed
        sizes = of_class_1.astype(np.int64) + of_class_1[::-1]
        shares = tuple(float(counts[0, sizes == size].sum() / records) for size in range(3))
        return SetSizes(shares[1] + 2.0 * shares[2], shares)
