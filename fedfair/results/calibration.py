"""The part of a result about calibration: the numbers that make probabilities of scores, and what they do.

Observed to expected is the share of records that is of a class by the mean of what the model said of it: 1 where
it promises what comes true, below 1 where it promises too much. Scores count as the middles of their bins. Part of
the model in `document.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedfair.aggregation.calibration import Calibration, FittedFigures, Uncalibrated
from fedfair.results.frozen import FrozenPart
from fedfair.results.scores import observed_to_expected


class FittedClass(FrozenPart):
    """Probability = sigmoid(slope * logit(score) + intercept)."""

    slope: float
    """at least 0, to 9 significant digits"""

    intercept: float
    """likewise"""


class BeforeAndAfter(FrozenPart):
    """One class in one split; with more than two classes, `after` is before a record's are scaled to sum 1."""

    observed: float
    """share of records that is of the class, 0 to 1"""

    mean_before: float
    """mean score, 0 to 1"""

    mean_after: float
    """mean of the calibrated scores, 0 to 1"""

    observed_to_expected_before: float | None
    """observed by mean_before; null where that is 0"""

    observed_to_expected_after: float | None
    """observed by mean_after; null where that is 0"""

    calibration_error_before: float | None
    """expected calibration error of the scores"""

    calibration_error_after: float | None
    """expected calibration error of the calibrated ones"""


class CalibrationFigures(FrozenPart):
    """The calibration of a model's scores, or why there is none."""

    method: Literal["platt", "none"]
    """platt, or none: scores, not probabilities"""

    reason: str | None = None
    """why there is none; omitted where there is one"""

    split: str | None = None
    """the records that it was fitted on: validation, or train where there are no others"""

    by_class: dict[str, FittedClass] = Field(default={})
    """each class by its number: class 1 alone of two classes"""

    splits: dict[str, dict[str, BeforeAndAfter]] = Field(default={})
    """what it does to the records of each split, by class"""


def calibration_figures(
    found: Calibration | Uncalibrated, told: Mapping[str, Mapping[int, FittedFigures]], otherwise: str
) -> CalibrationFigures:
    """Return the part of a result.

    Args:
        found: the calibration of the model that the result is about, or why it has none.
        told: what it does to the records of each split, by class.
        otherwise: why there is none, where `found` does not say it.
    """
    if isinstance(found, Uncalibrated):
        return CalibrationFigures(method="none", reason=found.reason or otherwise)
    return CalibrationFigures(
        method="platt",
        split=found.split,
        by_class={str(fit.wanted): FittedClass(slope=fit.slope, intercept=fit.intercept) for fit in found.fits},
        splits={
            split: {str(wanted): _both(figures) for wanted, figures in classes.items()}
            for split, classes in told.items()
        },
    )


def _both(figures: FittedFigures) -> BeforeAndAfter:
    return BeforeAndAfter(
        observed=figures.observed,
        mean_before=figures.mean_before,
        mean_after=figures.mean_after,
        observed_to_expected_before=observed_to_expected(figures.observed, figures.mean_before),
        observed_to_expected_after=observed_to_expected(figures.observed, figures.mean_after),
        calibration_error_before=figures.error_before,
        calibration_error_after=figures.error_after,
    )
