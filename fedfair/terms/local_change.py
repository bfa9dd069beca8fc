"""One site's change of one round, and the numbers by which it enters a sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.header import Header
from fedfair.aggregation.training_sum import TRAINING_LAYOUT


@dataclass(frozen=True, slots=True)
class LocalChange:
    """The change by one site's local steps in one round.

    Attributes:
        weight: what it counts among the others' (w), at least 1.
        threshold: change of the threshold, in units of the loss.
        model: array (d,): change of every parameter, in memory that the model's next round overwrites; a caller
            that needs it for longer copies it.
        replaced: how many of these numbers are zeros because there was no change to be had.
        further: what the terms of the plan add to the header of the sum, by field, weighted already.
        layout: the header of the sums that it is added to.
    """

    weight: int
    threshold: float
    model: NDArray[np.floating] = field(repr=False)
    replaced: int = 0
    further: Mapping[str, ArrayLike] = field(default_factory=dict)
    layout: Header = TRAINING_LAYOUT

    @property
    def header(self) -> NDArray[np.float64]:
        """Return what it adds to the header of a sum."""
        return self.layout.built(weight=float(self.weight), threshold=self.weight * self.threshold, **self.further)


def weighted(change: LocalChange) -> Contribution:
    """Return what a change adds to a sum: w, w * change of c, and w * change of theta, which takes its memory."""
    np.multiply(change.model, change.weight, out=change.model)
    return Contribution(change.header, change.model)
