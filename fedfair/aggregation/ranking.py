"""Bounds how well a model ranks, and tells how far its scores can be believed, from summed histograms of scores.

Ranking is the AUC (`fairness.ranking`). Two records of different bins are in a known order, two of one bin may be
in any. So the pairs within a bin count nothing for the lower end of the interval, and in full for the upper one:
the truth is inside without exception. Pairs are counted in whole numbers, and the last division rounds correctly.

Calibration compares scores with what came true. Neighbouring bins are joined until each group has a tenth of the
records. A group's share of positive records follows from sums, exactly; its mean score is that of the middles of
the bins, and at most half a bin's width from the truth (`score_histogram.py`). The expected
calibration error is the mean difference of the two over all records (Naeini et al. 2015; groups of equal size as
in Nguyen and O'Connor 2015). It is no further from the truth for these groups, and with exact scores it is never
above that of finer ones. The Brier score is the mean of the squared differences between the middle of a score's
bin and its outcome: at most a bin's width from that of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.cvar_bounds import Interval
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.score_histogram import JOINED, score_bins, score_edges, scored_classes
from fedfair.errors import RemoteProtocolError
from fedfair.fairness.ranking import ranked_pairs

GROUPS = 10
"""Into about so many groups the records are divided by their scores, for calibration."""

ROUNDING = 2.0**-40
"""By so much of a record each summed real number may be off, generously: a mask costs each site 2^-56."""


@dataclass(frozen=True, slots=True)
class CalibrationGroup:
    """The records of neighbouring bins.

    Attributes:
        records: how many there are, at least 1.
        mean_score: the mean of their scores, 0 to 1.
        observed: the share of them that is positive, 0 to 1.
    """

    records: int
    mean_score: float
    observed: float


@dataclass(frozen=True, slots=True)
class ClassRanking:
    """The scores of one class over the records of one split.

    Attributes:
        wanted: the class.
        positives: records of the class.
        negatives: records of other classes.
        auc: an interval that holds the AUC; None where there are no positive or no negative records.
        brier: the Brier score, 0 to 1.
        groups: from the lowest scores to the highest; nothing with fewer records than a group needs.
    """

    wanted: int
    positives: int
    negatives: int
    auc: Interval | None
    brier: float
    groups: tuple[CalibrationGroup, ...]

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error over the groups, 0 to 1; None without groups."""
        return _mean_difference(self.groups)


def _mean_difference(groups: Sequence[CalibrationGroup]) -> float | None:
    if not groups:
        return None
    records = sum(group.records for group in groups)
    return math.fsum(group.records * abs(group.mean_score - group.observed) for group in groups) / records


def expected_calibration_error(
    positives: NDArray[np.float64], negatives: NDArray[np.float64], scores: NDArray[np.float64], fewest: int
) -> float | None:
    """Return the expected calibration error of bins that each have one score; None where records are too few.

    Args:
        positives: how many positive records each bin has, from the lowest scores on.
        negatives: likewise.
        scores: the score of each bin; increasing, so that the groups are those of the uncalibrated scores.
        fewest: as for `calibration_groups`.
    """
    won, lost = ([int(count) for count in counts] for counts in (positives, negatives))
    totals = (positives + negatives) * scores
    summed = totals.reshape(-1, JOINED).sum(axis=1).tolist()
    return _mean_difference(calibration_groups(_joined(won), _joined(lost), summed, fewest))


def class_rankings(block: NDArray[Any], fewest: int) -> tuple[ClassRanking, ...]:
    """Return what the summed block of one split says, class by class.

    Args:
        block: array (columns,) of `score_histogram.score_group`.
        fewest: the fewest records of a group that is reported.
    """
    return tuple(
        _class_ranking(column, wanted, fewest)
        for column, wanted in zip(block, scored_classes(len(block)), strict=True)
    )


def _class_ranking(column: np.void, wanted: int, fewest: int) -> ClassRanking:
    positives, negatives = ([int(count) for count in column[name]] for name in ("positives", "negatives"))
    records = sum(positives) + sum(negatives)
    return ClassRanking(
        wanted,
        sum(positives),
        sum(negatives),
        auc_interval(positives, negatives),
        min(max(float(column["squares"]) / records, 0.0), 1.0) if records else 0.0,
        calibration_groups(_joined(positives), _joined(negatives), column["scores"].tolist(), fewest),
    )


def _joined(counts: Sequence[int]) -> list[int]:
    """Return the counts of the bins that share a sum of scores."""
    return [sum(counts[place : place + JOINED]) for place in range(0, len(counts), JOINED)]


def auc_interval(positives: Sequence[int], negatives: Sequence[int]) -> Interval | None:
    """Return an interval that holds the AUC; None where there are no positive or no negative records.

    Args:
        positives: how many positive records each bin has, from the lowest scores on.
        negatives: likewise.
    """
    surely, tied = ranked_pairs(list(positives), list(negatives))
    pairs = sum(positives) * sum(negatives)
    return Interval(surely / pairs, (surely + tied) / pairs) if pairs else None


def calibration_groups(
    positives: Sequence[int], negatives: Sequence[int], scores: Sequence[float], fewest: int
) -> tuple[CalibrationGroup, ...]:
    """Return the records in groups of neighbouring bins, each of a tenth of them or more.

    Args:
        positives: how many positive records each bin has, where a bin has a sum of scores.
        negatives: likewise.
        scores: the sum of the scores in each bin.
        fewest: a group has at least so many records. What is left over at the end joins the last group.
    """
    records = sum(positives) + sum(negatives)
    least = max(fewest, -(-records // GROUPS), 1)
    if records < least:
        return ()
    groups: list[tuple[int, int, float]] = []
    count, won, total = 0, 0, 0.0
    for positive, negative, score in zip(positives, negatives, scores, strict=True):
        count, won, total = count + positive + negative, won + positive, total + score
        if count >= least:
            groups.append((count, won, total))
            count, won, total = 0, 0, 0.0
    last = groups.pop()
    groups.append((last[0] + count, last[1] + won, last[2] + total))
    return tuple(CalibrationGroup(n, min(max(mean / n, 0.0), 1.0), positive / n) for n, positive, mean in groups)


def check_score_sums(scores: NDArray[Any], splits: NDArray[Any], confusion: NDArray[np.float64]) -> None:
    """Refuse histograms of scores that no records have.

    Args:
        scores: array (splits, columns) of `score_histogram.score_group`, summed over the sites.
        splits: array (splits,) of `loss_histogram.block_fields`, summed over the same sites.
        confusion: array (splits, classes, classes), likewise.

    Raises:
        RemoteProtocolError: a class has other records than the confusion matrix, or a bin's scores lie outside.
    """
    columns = scores.shape[1]
    if not columns:
        return
    positives, negatives = scores["positives"], scores["negatives"]
    counts = positives + negatives
    edges = score_edges(score_bins(columns))[::JOINED]
    joined = counts.reshape(len(SPLITS), columns, -1, JOINED).sum(axis=3)
    slack = ROUNDING * (joined + 1.0)
    records = splits["records"][:, None]
    fits = (
        (positives >= 0.0).all()
        and (negatives >= 0.0).all()
        and (counts.sum(axis=2) == records).all()
        and (positives.sum(axis=2) == confusion.sum(axis=2)[:, list(scored_classes(columns))]).all()
        and (scores["scores"] >= edges[:-1] * joined - slack).all()
        and (scores["scores"] <= edges[1:] * joined + slack).all()
        and (scores["squares"] >= -ROUNDING * (records + 1.0)).all()
        and (scores["squares"] <= records + ROUNDING * (records + 1.0)).all()
    )
    if not fits:
        raise RemoteProtocolError(
            "the histograms of scores in an evaluation do not fit the records of its losses",
            "a participant sent numbers that no records have; compare software versions",
        )
