"""The figures about scores in a result: how well they rank, and how far they can be believed.

A score is the probability that a model gives to a class. Where the plan asks for it (`evaluation.scores`), these
follow from the summed histograms of `aggregation.ranking`; the AUC of a simulation is exact. Decides which of them
are reported: nothing about a class of which, or beside which, there are fewer records than `evaluation.min_group`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedfair.aggregation.cvar_bounds import Interval
from fedfair.aggregation.decision_curve import DecisionCurve
from fedfair.aggregation.ranking import ClassRanking
from fedfair.aggregation.score_histogram import scored_classes
from fedfair.fairness.ranking import area_under_curve
from fedfair.fairness.record_losses import Losses
from fedfair.results.decisions import DecisionFigures, decision_figures
from fedfair.results.frozen import FrozenPart, given


class ReliabilityRow(FrozenPart):
    """The records of neighbouring scores: a tenth of all, or `evaluation.min_group`, or more."""

    records: int
    """number of records"""

    mean_score: float
    """mean of their scores, 0 to 1"""

    observed: float
    """share of them that is of the class, 0 to 1"""


class ClassScores(FrozenPart):
    """The scores of one class against the rest. All None where too few records are of it, or of the others."""

    auc: float | None
    """share of pairs in the right order, or the middle of its interval"""

    auc_bound: tuple[float, float] | None
    """an interval that is proven to hold the AUC; null where there is none"""

    brier: float | None
    """mean squared difference between score and outcome, 0 to 1"""

    calibration_error: float | None
    """mean difference between score and observed share over the rows of `reliability`, 0 to 1"""

    observed: float | None = None
    """share of records that is of the class, 0 to 1; omitted where too few are"""

    mean_score: float | None = None
    """mean of the scores, 0 to 1; omitted likewise"""

    observed_to_expected: float | None = None
    """observed by mean_score: 1 where as many are of the class as scores promise"""

    reliability: tuple[ReliabilityRow, ...] = ()
    """scores beside what came true, from the lowest scores to the highest"""


class SplitScores(FrozenPart):
    """The scores over the records of one split: with two classes those of class 1, else of all classes."""

    auc: float | None
    """mean of the AUC over the classes; null where one of them is not reported"""

    auc_bound: tuple[float, float] | None
    """an interval that is proven to hold it; null where there is none"""

    brier: float | None
    """Brier score: of two classes that of class 1, 0 to 1; else the sum over the classes, 0 to 2"""

    calibration_error: float | None
    """mean of the expected calibration errors, 0 to 1"""

    by_class: dict[str, ClassScores]
    """each class by its number: class 1 alone of two classes"""

    decision: DecisionFigures | None = None
    """how much good it does to act by the scores, at many thresholds; omitted without two classes"""


_SUPPRESSED = ClassScores(auc=None, auc_bound=None, brier=None, calibration_error=None)


def exact_aucs(losses: Losses) -> Mapping[int, Interval]:
    """Return the AUC of each scored class by its number, from the scores themselves; where there is one."""
    classes = scored_classes(losses.scores.shape[1])
    found = {
        wanted: area_under_curve(column, losses.labels == wanted)
        for wanted, column in zip(classes, losses.scores.T, strict=True)
    }
    return {wanted: Interval(auc, auc) for wanted, auc in found.items() if auc is not None}


def mean_auc(losses: Losses) -> float | None:
    """Return the mean of the exact AUC over the classes; None without scores, and where a class has none."""
    found = exact_aucs(losses)
    columns = losses.scores.shape[1]
    return math.fsum(auc.midpoint for auc in found.values()) / columns if found and len(found) == columns else None


def split_scores(
    rankings: Sequence[ClassRanking],
    fewest: int,
    exact: Mapping[int, Interval],
    *,
    proved: bool,
    curve: DecisionCurve | None = None,
) -> SplitScores:
    """Return what is reported about the scores of one split.

    Args:
        rankings: what the sums prove, class by class.
        fewest: the fewest records of a group that is reported.
        exact: AUCs that are known exactly, in place of those from sums.
        proved: whether the intervals hold; they do not where losses were replaced.
        curve: of decisions by these scores; None where there is none.
    """
    by_class = {
        str(ranking.wanted): _class_scores(ranking, fewest, exact.get(ranking.wanted, ranking.auc), proved=proved)
        for ranking in rankings
    }
    told = tuple(by_class.values())
    low, high = (
        _mean([None if each.auc_bound is None else each.auc_bound[end] for each in told]) for end in (0, 1)
    )
    brier = _mean([each.brier for each in told])
    return SplitScores(
        auc=_mean([each.auc for each in told]),
        auc_bound=None if low is None or high is None else (low, high),
        brier=None if brier is None else brier * len(told),
        calibration_error=_mean([each.calibration_error for each in told]),
        by_class=by_class,
        **given(decision=None if curve is None else decision_figures(curve)),
    )


def is_reported(ranking: ClassRanking, fewest: int) -> bool:
    """Return whether enough records are of the class, and enough are not (`evaluation.min_group`)."""
    return min(ranking.positives, ranking.negatives) >= fewest


def _class_scores(ranking: ClassRanking, fewest: int, auc: Interval | None, *, proved: bool) -> ClassScores:
    if auc is None or not is_reported(ranking, fewest):
        return _SUPPRESSED
    rows = tuple(
        ReliabilityRow(records=group.records, mean_score=group.mean_score, observed=group.observed)
        for group in ranking.groups
    )
    records = ranking.positives + ranking.negatives
    observed = ranking.positives / records
    mean = math.fsum(group.records * group.mean_score for group in ranking.groups) / records
    return ClassScores(
        auc=auc.midpoint,
        auc_bound=(auc.lower, auc.upper) if proved else None,
        brier=ranking.brier,
        calibration_error=ranking.calibration_error,
        observed=observed,
        mean_score=mean,
        observed_to_expected=observed_to_expected(observed, mean),
        reliability=rows,
    )


def observed_to_expected(observed: float, mean: float) -> float | None:
    """Return what came true by what was promised; None where nothing was."""
    return observed / mean if mean > 0.0 else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where a value is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None
