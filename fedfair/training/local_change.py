"""One site's change of one round, and the numbers by which it enters a sum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.header import Field, Header
from fedfair.aggregation.training_sum import training_header
from fedfair.terms.group_weights.section import fields_of
from fedfair.terms.group_weights.site import GroupSums
from fedfair.terms.loss_powers.section import CURVATURE
from fedfair.terms.variates.section import NEW_WEIGHT


@dataclass(frozen=True, slots=True)
class LocalChange:
    """The change by one site's local steps in one round.

    Attributes:
        weight: what it counts among the others' (w), at least 1.
        threshold: change of the threshold, in units of the loss.
        model: array (d,): change of every parameter, in memory that the model's next round overwrites; a caller
            that needs it for longer copies it.
        replaced: how many of these numbers are zeros because there was no change to be had.
        new_weight: the weight again where control variates count this site for the first time, or 0; None where
            the plan has no control variates.
        curvature: what the sum divides by in place of weights, not yet weighted; None where the plan divides by
            weights.
        groups: what the sum tells of groups; None where it tells of none.
    """

    weight: int
    threshold: float
    model: NDArray[np.floating] = field(repr=False)
    replaced: int = 0
    new_weight: int | None = None
    curvature: float | None = None
    groups: GroupSums | None = None

    @property
    def layout(self) -> Header:
        """Return the header of the sums that it is added to."""
        fields: tuple[Field, ...] = () if self.new_weight is None else (NEW_WEIGHT,)
        fields += () if self.curvature is None else (CURVATURE,)
        return training_header(fields + (() if self.groups is None else fields_of(len(self.groups.counts))))

    @property
    def header(self) -> NDArray[np.float64]:
        """Return what it adds to the header of a sum."""
        sums: dict[str, object] = {"weight": float(self.weight), "threshold": self.weight * self.threshold}
        if self.new_weight is not None:
            sums["new_weight"] = float(self.new_weight)
        if self.curvature is not None:
            sums["curvature"] = self.weight * self.curvature
        if self.groups is not None:
            sums |= {"group_counts": self.groups.counts, "group_losses": self.groups.losses}
        return self.layout.built(**sums)


def weighted(change: LocalChange) -> Contribution:
    """Return what a change adds to a sum: w, w * change of c, and w * change of theta, which takes its memory."""
    np.multiply(change.model, change.weight, out=change.model)
    return Contribution(change.header, change.model)
