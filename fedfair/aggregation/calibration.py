"""Turns scores into probabilities: two numbers for each class, fitted to the summed histogram of one evaluation.

Training for the worst group tilts what a model says, by design: the mean of its scores is then not the share of
people to whom it happens. Platt scaling takes that back, p = sigmoid(a logit(score) + b). a and b are the maximum
likelihood of the records of an evaluation, each with the middle of its bin for its score. So they follow from
sums that are open already, and every machine that holds the sums has the same two numbers. Outcomes count as
(n+ + 1) / (n+ + 2) and 1 / (n- + 2) in place of 1 and 0, so that a and b are finite where a score separates the
classes. a is at least 0: the order of people never turns round. With two classes one fit is enough. With more
there is one for each class against the rest, and whoever applies them scales the numbers of a record to sum 1.

Decides the fit, when there is none and why, and what it does to the bins. Which model it is stored with is
`run.saved_model`'s business, applying it to records `prediction`'s.

Source: Platt 1999, "Probabilistic outputs for support vector machines"; Newton's method as in Lin, Lin, Weng 2007,
"A note on Platt's probabilistic outputs for support vector machines". Classes against the rest: Zadrozny and Elkan
2002, "Transforming classifier scores into accurate multiclass probability estimates".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.ranking import expected_calibration_error
from fedfair.aggregation.score_histogram import bin_middles, scored_classes

SCORES_ONLY: Final = "scores, not probabilities"
"""The answers of a model without a calibration, in the words of every place that shows them."""

LEAST_SCORE = 2.0**-52
"""Scores nearer to 0 or 1 count as so near, so that their logit is finite, and the calibrated ones in order."""

MOST_LOGIT = 700.0
"""A calibrated logit is no farther from 0, so that no probability is 0 and those of a record have a sum."""

DIGITS = 9
"""Significant digits of a and b: fewer than a machine's own arithmetic could change."""

MAX_STEPS = 100
MAX_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class ClassFit:
    """The calibration of one class against the rest.

    Attributes:
        wanted: the class.
        slope: a of the logit, at least 0; has at most 9 significant digits.
        intercept: b; likewise.
    """

    wanted: int
    slope: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration of a model.

    Attributes:
        split: the records it was fitted on: validation, or train where there are no others.
        fits: class 1 alone of two classes, else all of them in order.
    """

    split: str
    fits: tuple[ClassFit, ...]


@dataclass(frozen=True, slots=True)
class Uncalibrated:
    """The lack of a calibration.

    Attributes:
        reason: why there is none, as the end of a sentence; empty where unstated.
    """

    reason: str = ""


NOT_SAID = Uncalibrated()


@dataclass(frozen=True, slots=True)
class FittedFigures:
    """How far the scores of one class are from what came true in one split, before and after.

    Attributes:
        observed: the share of records that is of the class, 0 to 1.
        mean_before: the mean score, 0 to 1.
        mean_after: the mean of the calibrated ones.
        error_before: the expected calibration error of the scores; None where records are too few.
        error_after: that of the calibrated ones.
    """

    observed: float
    mean_before: float
    mean_after: float
    error_before: float | None
    error_after: float | None


def fitted(blocks: Mapping[str, NDArray[Any]], fewest: int) -> Calibration | Uncalibrated:
    """Return the calibration of the model that an evaluation is of, or why there is none.

    Args:
        blocks: by split with records, the array (columns,) of `score_histogram.score_group`, columns at least 1.
        fewest: the fewest records on either side of a class (`evaluation.min_group`).
    """
    split = "validation" if "validation" in blocks else "train"
    block = blocks[split]
    for column, wanted in zip(block, scored_classes(len(block)), strict=True):
        positives, negatives = int(column["positives"].sum()), int(column["negatives"].sum())
        if min(positives, negatives) < fewest:
            side = "are" if positives < negatives else "are not"
            return Uncalibrated(f"fewer than {fewest} {split} records {side} of class {wanted}")
    middles = bin_middles(len(block))
    return Calibration(
        split,
        tuple(
            ClassFit(wanted, *platt(column["positives"], column["negatives"], middles))
            for column, wanted in zip(block, scored_classes(len(block)), strict=True)
        ),
    )


def figures_of(calibration: Calibration, block: NDArray[Any], fewest: int) -> dict[int, FittedFigures]:
    """Return what a calibration does to the records of one split, by class; nothing of a class with too few.

    With more than two classes the numbers are those before each record's are scaled to sum 1.

    Args:
        calibration: of as many columns.
        block: array (columns,) of `score_histogram.score_group`.
        fewest: the fewest records on either side of a class, and of a group.
    """
    middles = bin_middles(len(block))
    found = {}
    for column, fit in zip(block, calibration.fits, strict=True):
        positives, negatives = column["positives"], column["negatives"]
        won, lost = float(positives.sum()), float(negatives.sum())
        if min(won, lost) < fewest:
            continue
        counts, after = positives + negatives, calibrated(middles, fit)
        found[fit.wanted] = FittedFigures(
            won / (won + lost),
            math.fsum(counts * middles) / (won + lost),
            math.fsum(counts * after) / (won + lost),
            expected_calibration_error(positives, negatives, middles, fewest),
            expected_calibration_error(positives, negatives, after, fewest),
        )
    return found


def calibrated(scores: NDArray[np.float64], fit: ClassFit) -> NDArray[np.float64]:
    """Return the calibrated scores of one class: array of the same shape, above 0 and at most 1."""
    logits = np.clip(fit.slope * _logits(scores) + fit.intercept, -MOST_LOGIT, MOST_LOGIT)
    found: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-logits))
    return found


def platt(
    positives: NDArray[np.float64], negatives: NDArray[np.float64], scores: NDArray[np.float64]
) -> tuple[float, float]:
    """Return a and b, to 9 significant digits.

    The loss is convex, and strictly so where two scores occur. Where one does, any a fits as well: it is 0.

    Args:
        positives: how many positive records have each score; at least one record is positive, and one is not.
        negatives: likewise.
        scores: between 0 and 1, increasing.
    """
    held = positives + negatives > 0
    logits = _logits(scores[held])
    won, lost = _smoothed(positives[held], negatives[held])
    start = math.log(math.fsum(won) / math.fsum(lost))
    # Around their mean, logits that hardly differ are still distinguished.
    centre = math.fsum((won + lost) * logits) / math.fsum(won + lost)
    slope, intercept = _newton(logits - centre, won, lost, start)
    if slope <= 0.0:
        # Of a convex loss that falls towards a negative slope, 0 is the best that is allowed.
        return 0.0, _rounded(start)
    return _rounded(slope), _rounded(intercept - slope * centre)


def _smoothed(
    positives: NDArray[np.float64], negatives: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how much of each score's records counts as positive, and how much as negative."""
    all_won, all_lost = float(positives.sum()), float(negatives.sum())
    high, low = (all_won + 1.0) / (all_won + 2.0), 1.0 / (all_lost + 2.0)
    return positives * high + negatives * low, positives * (1.0 - high) + negatives * (1.0 - low)


def _newton(
    logits: NDArray[np.float64], won: NDArray[np.float64], lost: NDArray[np.float64], start: float
) -> tuple[float, float]:
    """Return the minimum, from slope 0 on; sums are exactly rounded, so that their order counts for nothing."""
    slope, intercept, counts = 0.0, start, won + lost
    loss = _loss(logits, won, lost, slope, intercept)
    for _ in range(MAX_STEPS):
        chances = 1.0 / (1.0 + np.exp(-_bounded(slope * logits + intercept)))
        off, weights = counts * chances - won, counts * chances * (1.0 - chances)
        gradient = math.fsum(off * logits), math.fsum(off)
        square, mixed, plain = (math.fsum(weights * factor) for factor in (logits * logits, logits, 1.0))
        determinant = square * plain - mixed * mixed
        # One score alone says nothing of a slope.
        if not determinant > 1e-12 * square * plain:
            break
        step = (
            -(plain * gradient[0] - mixed * gradient[1]) / determinant,
            -(square * gradient[1] - mixed * gradient[0]) / determinant,
        )
        slope, intercept, moved = _searched((logits, won, lost), (slope, intercept), step, loss)
        loss = _loss(logits, won, lost, slope, intercept)
        if not moved or max(abs(step[0]), abs(step[1])) <= 1e-13 * (abs(slope) + abs(intercept)):
            break
    return slope, intercept


def _searched(
    records: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    place: tuple[float, float],
    step: tuple[float, float],
    loss: float,
) -> tuple[float, float, bool]:
    """Return the first of ever shorter steps that does not raise the loss beyond its rounding, if there is one."""
    for halvings in range(MAX_HALVINGS):
        size = 0.5**halvings
        slope, intercept = place[0] + size * step[0], place[1] + size * step[1]
        if _loss(*records, slope, intercept) <= loss + 1e-14 * abs(loss):
            return slope, intercept, True
    return *place, False


def _loss(
    logits: NDArray[np.float64],
    won: NDArray[np.float64],
    lost: NDArray[np.float64],
    slope: float,
    intercept: float,
) -> float:
    found = slope * logits + intercept
    return math.fsum(won * np.logaddexp(0.0, -found) + lost * np.logaddexp(0.0, found))


def _logits(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    bounded = np.clip(scores, LEAST_SCORE, 1.0 - LEAST_SCORE)
    found: NDArray[np.float64] = np.log(bounded) - np.log1p(-bounded)
    return found


def _bounded(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(logits, -MOST_LOGIT, MOST_LOGIT)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
