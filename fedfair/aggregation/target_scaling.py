"""The scaling of a predicted number: within a run a target y is (y - middle) / deviation, outside it is y.

Decides which losses have such a target, where its numbers are in a scaling, and the unit of a loss. Whatever
leaves a site, a state or a file is in the target's own unit. Only the local steps and the outputs of the model are
in deviations. One loss of the local steps is the loss of an error of one deviation, so that every loss of a number
is as steep, whatever the target's unit is. In natural units it is

    squared    s^2        huber    s^2 / 2, beyond delta delta (s - delta / 2)        pinball    max(q, 1 - q) s

Where the run makes a standardisation sum, the target is its last column. Otherwise the middle and half the width
of `task.loss.target_range` take the place of mean and deviation; without a range the target stays as it is. Numpy
only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.feature_moments import unit_of, units_of
from fedfair.aggregation.feature_scaling import scale_columns
from fedfair.aggregation.requests import FeatureScaling
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss, greatest_loss, predicts_number


@dataclass(frozen=True, slots=True)
class TargetScaling:
    """The place and the size of targets.

    Attributes:
        middle: what becomes 0, in units of the target.
        deviation: what becomes 1 beside it, above 0.
        is_scaled: whether anything is scaled.
    """

    middle: float
    deviation: float
    is_scaled: bool = True

    def placed(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return targets (n,) in deviations; the very array where nothing is scaled."""
        return (targets - self.middle) / self.deviation if self.is_scaled else targets

    def loss_unit(self, loss: Loss) -> float:
        """Return how many natural units one loss of the local steps has; 1 where nothing is scaled."""
        if self.is_scaled and isinstance(loss, SquaredLoss | HuberLoss | PinballLoss):
            return greatest_loss(loss, self.deviation)
        return 1.0


AS_IT_IS = TargetScaling(0.0, 1.0, is_scaled=False)


def target_scaling(loss: Loss, scaling: FeatureScaling | None) -> TargetScaling:
    """Return how targets are scaled; as they are for a loss of no number.

    Args:
        loss: the plan's.
        scaling: from the standardisation sum; None where there is none, or none yet.
    """
    if not isinstance(loss, SquaredLoss | HuberLoss | PinballLoss):
        return AS_IT_IS
    if scaling is not None:
        return TargetScaling(float(scaling.mean[-1]), float(scaling.scale[-1]))
    if loss.target_range is None:
        return AS_IT_IS
    least, greatest = loss.target_range
    return TargetScaling(least / 2 + greatest / 2, greatest / 2 - least / 2)


def loss_unit(loss: Loss, scaling: FeatureScaling | None) -> float:
    """Return how many natural units one loss of the local steps has; arguments as of `target_scaling`."""
    return target_scaling(loss, scaling).loss_unit(loss)


def scaled_columns(loss: Loss, numeric: int) -> int:
    """Return how many columns a standardisation sum and a scaling have: the target is the last.

    Args:
        loss: the plan's.
        numeric: how many numeric columns the features have.
    """
    return numeric + predicts_number(loss)


def summed_units(loss: Loss, schema: FeatureSchema) -> tuple[float, ...]:
    """Return what each column of a standardisation sum is counted in: a range gives the unit, else it is 1."""
    units = tuple(units_of(schema.units, len(schema.numeric)).tolist())
    if not isinstance(loss, SquaredLoss | HuberLoss | PinballLoss):
        return units
    return (*units, 1.0 if loss.target_range is None else unit_of(*loss.target_range))


def of_features(loss: Loss, scaling: FeatureScaling) -> FeatureScaling:
    """Return the part of a scaling that is of the features."""
    if not predicts_number(loss):
        return scaling
    return replace(scaling, mean=scaling.mean[:-1], scale=scaling.scale[:-1])


def scaler_of(
    loss: Loss, numeric: tuple[int, ...], scaling: FeatureScaling | None
) -> Callable[[NDArray[np.floating]], NDArray[np.floating]] | None:
    """Return what scales the numeric columns of features; None without a scaling."""
    return None if scaling is None else partial(scale_columns, numeric=numeric, scaling=of_features(loss, scaling))
