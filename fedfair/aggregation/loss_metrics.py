"""The metrics that belong to a task without classes: which figures are summed, and what the sums say.

    a number          squared error, absolute error, target, squared target    mean squared and absolute error, R^2
    several labels    of each: found, falsely found, missed                    recall, precision, accuracy of each
    a time            of each interval: at risk, event, hazard                 observed by expected events
    pixels            correct pixels; of each class: common and joint area     pixel accuracy, overlap (IoU)

Figures are divided by units that follow from the end of the loss histogram, powers of two, so that masked sums
carry them whatever the unit of a target is. Each is rounded at the site before it is added (`rounded_figures`), so
that a sum over a single record tells little of it. Decides layout and arithmetic; a record's figures are computed
by `fedfair.training.record_loss`. Classes have a confusion matrix instead, and a loss of its own has none. No
torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.feature_moments import unit_of
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import (
    HuberLoss,
    Loss,
    MultiLabelLoss,
    PinballLoss,
    SegmentationLoss,
    SquaredLoss,
    SurvivalLoss,
)

Metric: TypeAlias = "float | tuple[float | None, ...] | None"
Metrics: TypeAlias = Mapping[str, Metric]
"""Metrics by name: one number, or one for each label, interval or class; None for what may not be reported."""

MAX_FIGURE = 2.0**36
"""No figure of a record counts for more, in its unit: those of 2^18 records of a site fit a masked sum."""

REGRESSION_FIGURES = 4
LABEL_FIGURES = 3
INTERVAL_FIGURES = 3
AREA_FIGURES = 2


def figure_count(loss: Loss, schema: FeatureSchema) -> int:
    """Return how many figures of a record are summed beside its loss."""
    match loss:
        case SquaredLoss() | HuberLoss() | PinballLoss():
            return REGRESSION_FIGURES
        case MultiLabelLoss():
            return LABEL_FIGURES * math.prod(schema.output_shape)
        case SurvivalLoss(intervals=intervals):
            return INTERVAL_FIGURES * len(intervals)
        case SegmentationLoss():
            return 1 + AREA_FIGURES * schema.classes
        case _:
            return 0


def error_unit(loss: SquaredLoss | HuberLoss | PinballLoss, loss_range: float) -> float:
    """Return the power of two in which errors and targets are counted: that of the error at the range's end."""
    match loss:
        case SquaredLoss():
            error = math.sqrt(loss_range)
        case HuberLoss(delta=delta):
            error = math.sqrt(2.0 * loss_range) if loss_range <= 0.5 * delta * delta else loss_range / delta
        case PinballLoss(quantile=quantile):
            error = loss_range / max(quantile, 1.0 - quantile)
    return unit_of(0.0, error)


def bounded_figures(figures: NDArray[np.floating]) -> tuple[NDArray[np.float64], int]:
    """Return figures that every sum holds, and of how many records one had to be replaced.

    Args:
        figures: array (n, figures), of any values.
    """
    values = np.asarray(figures, np.float64)
    bounded = np.clip(np.nan_to_num(values, nan=0.0), -MAX_FIGURE, MAX_FIGURE)
    return bounded, int(np.count_nonzero((bounded != values).any(axis=1))) if values.size else 0


SIGNIFICANT_BITS = 8
"""Errors, predicted hazards and areas are rounded to so many: by at most 2^-8 of themselves."""

LEAST_FIGURE = 2.0**-20
"""A smaller error, hazard or area counts as 0."""

ANSWER_BITS = 17
"""Answers are rounded to so many significant bits, and to no less than `ANSWER_STEP`."""

ANSWER_STEP = 2.0**-8
"""In the unit of the answers, which is at least the error at the end of the histogram."""

FIGURE_BITS = 22.0
"""Of so many bits is the rounded figure of a record at most: an answer; an error, a hazard or an area has 13."""


def rounded_figures(figures: NDArray[np.floating], loss: Loss) -> NDArray[np.float64]:
    """Return figures as they may be summed: errors, hazards and areas to 8 significant bits, answers to a grid.

    A squared error is that of the rounded error. Rounding twice changes nothing.

    Args:
        figures: array (n, figures), as `record_loss` computes them; n may be 0.
        loss: the plan's.
    """
    values = np.array(figures, np.float64)
    match loss:
        case SquaredLoss() | HuberLoss() | PinballLoss():
            errors, answers = _significant(values[:, 1], SIGNIFICANT_BITS, LEAST_FIGURE), _answers(values[:, 2])
            return np.stack([errors * errors, errors, answers, answers * answers], axis=1)
        case SurvivalLoss() | SegmentationLoss():
            return _significant(values, SIGNIFICANT_BITS, LEAST_FIGURE)
        case _:
            return values


def _answers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    near = np.rint(values / ANSWER_STEP) * ANSWER_STEP
    is_near = np.abs(values) <= ANSWER_STEP * 2.0**ANSWER_BITS
    return np.where(is_near, near, _significant(values, ANSWER_BITS, ANSWER_STEP))


def _significant(values: NDArray[np.float64], bits: int, least: float) -> NDArray[np.float64]:
    """Return values with so many significant bits; those nearer to 0 than the least one count as 0."""
    mantissas, exponents = np.frexp(values)
    rounded = np.ldexp(np.rint(mantissas * 2.0**bits) * 2.0**-bits, exponents)
    return np.where(np.abs(values) < least, 0.0, rounded)


MEAN_EXCESS = "mean_excess"
WORST_EXCESS = "worst_group_excess"
WORST_EXCESS_BOUND = "worst_group_excess_bound"


def excess_metrics(mean: float, worst: float, bound: tuple[float, float] | None = None) -> dict[str, Metric]:
    """Return what is told of the excess over references: its mean, and that of the worst group of the plan's size.

    Args:
        mean: over all records.
        worst: over the worst group.
        bound: an interval that holds it; None where it is exact.
    """
    found: dict[str, Metric] = {MEAN_EXCESS: mean, WORST_EXCESS: worst}
    return found if bound is None else {**found, WORST_EXCESS_BOUND: bound}


def metrics_of(
    loss: Loss, sums: NDArray[np.float64], records: int, loss_range: float, fewest: int
) -> dict[str, Metric]:
    """Return the metrics of one split.

    Args:
        loss: the plan's.
        sums: float64 array (figures,), over all records; empty where none are summed.
        records: how many there are, at least 1.
        loss_range: where the histogram ends, in units of the loss.
        fewest: fewest records about which anything is reported.
    """
    if not sums.size or records < fewest:
        return {}
    match loss:
        case SquaredLoss() | HuberLoss() | PinballLoss():
            return _regression(sums, records, error_unit(loss, loss_range))
        case MultiLabelLoss():
            return _labels(sums.reshape(-1, LABEL_FIGURES), records, fewest)
        case SurvivalLoss():
            return _intervals(sums.reshape(-1, INTERVAL_FIGURES), fewest)
        case SegmentationLoss():
            return _areas(float(sums[0]), sums[1:].reshape(-1, AREA_FIGURES), records)
        case _:
            return {}


def _regression(sums: NDArray[np.float64], records: int, unit: float) -> dict[str, Metric]:
    squares, absolute, target, squared_target = (float(value) for value in sums)
    spread = squared_target - target * target / records
    # The difference of two numbers of that size is known no better.
    told = spread > 2.0**-40 * max(squared_target, 1.0)
    mean_square = max(squares, 0.0) / records * unit * unit
    return {
        "mean_squared_error": mean_square,
        "root_mean_squared_error": math.sqrt(mean_square),
        "mean_absolute_error": max(absolute, 0.0) / records * unit,
        "r_squared": 1.0 - squares / spread if told else None,
    }


def _labels(sums: NDArray[np.float64], records: int, fewest: int) -> dict[str, Metric]:
    found, false, missed = sums.T
    wrong = false + missed
    return {
        "label_accuracy": tuple((1.0 - wrong / records).tolist()),
        "label_recall": _shares(found, found + missed, fewest),
        "label_precision": _shares(found, found + false, fewest),
        "mean_label_accuracy": float(1.0 - wrong.mean() / records),
    }


def _intervals(sums: NDArray[np.float64], fewest: int) -> dict[str, Metric]:
    at_risk, events, expected = sums.T
    # A total over all intervals, less those reported, would disclose the others.
    told = at_risk >= fewest
    happened, promised = float(events[told].sum()), float(expected[told].sum())
    ratios = np.divide(events, expected, out=np.full(len(events), np.nan), where=expected > 0.0)
    return {
        "interval_at_risk": _reported(at_risk, at_risk, fewest),
        "interval_events": _reported(events, at_risk, fewest),
        "interval_expected_events": _reported(expected, at_risk, fewest),
        "interval_observed_to_expected": _reported(ratios, at_risk, fewest),
        "observed_events": happened if told.any() else None,
        "expected_events": promised if told.any() else None,
        "observed_to_expected": happened / promised if promised > 0.0 else None,
    }


def _areas(correct: float, sums: NDArray[np.float64], records: int) -> dict[str, Metric]:
    common, joint = sums.T
    overlaps = _shares(common, joint, 0)
    held = [share for share in overlaps if share is not None]
    return {
        "pixel_accuracy": correct / records,
        "overlap": overlaps,
        "mean_overlap": math.fsum(held) / len(held) if held else None,
    }


def _shares(parts: NDArray[np.float64], wholes: NDArray[np.float64], fewest: int) -> tuple[float | None, ...]:
    return tuple(
        part / whole if whole >= max(fewest, 2.0**-20) else None
        for part, whole in zip(parts.tolist(), wholes.tolist(), strict=True)
    )


def _reported(values: NDArray[np.float64], at_risk: NDArray[np.float64], fewest: int) -> tuple[float | None, ...]:
    return tuple(
        value if many >= fewest and math.isfinite(value) else None
        for value, many in zip(values.tolist(), at_risk.tolist(), strict=True)
    )
