"""Intervals of numbers: from the loss that an answer may have to how far it may be from the prediction.

A loss of one number grows with the error on either side, so the answers of at most some loss are an interval
around the prediction. It is as wide for everybody. With e = answer - prediction:

    squared    e^2 <= L                               -sqrt(L) to sqrt(L)
    huber      e^2 / 2 to delta, then linear          the same by its two pieces
    pinball    max(q e, (q - 1) e) <= L               -L / (1 - q) to L / q

Losses are rounded before they are counted, to the nearest eighth of a bin (`aggregation.loss_histogram`). A loss
that was counted below an edge is below it by at least half of such a step before the rounding. That is more than
another machine's arithmetic changes a prediction by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import HistogramSpec
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss

UPWARDS = 1.0 + 2.0**-50
"""More than a root or a quotient can lose."""


def reach(loss: Loss, most: float) -> tuple[float, float]:
    """Return how far below and above the prediction answers of at most some loss are, in units of the target.

    Args:
        loss: the plan's.
        most: the loss, above 0.

    Raises:
        ValueError: the loss is of no single number.
    """
    match loss:
        case SquaredLoss():
            error = math.sqrt(most)
        case HuberLoss(delta=delta):
            bend = 0.5 * delta * delta
            error = math.sqrt(2.0 * most) if most <= bend else most / delta + 0.5 * delta
        case PinballLoss(quantile=quantile):
            return most / (1.0 - quantile) * UPWARDS, most / quantile * UPWARDS
        case _:
            raise ValueError(f"no interval follows from the {loss.title}")
    return error * UPWARDS, error * UPWARDS


@dataclass(frozen=True, slots=True)
class MeasuredAnswers:
    """How well a model's predictions of a number fit, by the bins of its histogram of losses.

    Attributes:
        spec: of the histogram.
        kind: of the sets.
        field: of an evaluation's sums, whose part for one split the methods take as `block`.
    """

    spec: HistogramSpec
    kind: ClassVar[Literal["interval"]] = "interval"
    field: ClassVar[str] = "splits"

    def counts(self, block: Any) -> NDArray[np.int64]:  # noqa: ANN401 - a part of a header
        """Return how many records each bin has: array (bins + 1,), from the greatest losses on."""
        counts: NDArray[np.int64] = np.rint(block["counts"][::-1]).astype(np.int64)
        return counts

    def bound(self, missed: int) -> float:
        """Return the greatest loss in an interval, where so many bins are missed; infinite where none is."""
        return float(self.spec.edges[self.spec.bins + 1 - missed]) if missed else math.inf

    def missed(self, bound: float) -> int:
        """Return how many bins reach beyond a loss."""
        return self.spec.bins + 2 - int(np.searchsorted(self.spec.edges, bound, side="right"))

    def sizes(self, _block: object, _missed: int) -> None:
        """Return nothing: an interval is as wide for every record."""
