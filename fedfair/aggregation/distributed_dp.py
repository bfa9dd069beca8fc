"""Training sums under noise for whole collaborators: what of a plan decides it, and what the server makes of them.

A site's change of the model and of the threshold is one vector, clipped together, and so is their sum. Everything
else that a masked training sum holds is a constant: weights are 1, and nothing is counted of what was clipped. How
a vector becomes whole numbers with noise is `privacy.collaborator_level`'s. No torch: the aggregator imports this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.target_scaling import loss_unit
from fedfair.errors import LocalProtocolError
from fedfair.plan.derived import learns_threshold, quorum
from fedfair.plan.privacy import CollaboratorLevelSection
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.privacy.collaborator_level import NoisedSums, noised_sums
from fedfair.secagg.fixedpoint import BodyCode, decode_body
from fedfair.secagg.shape import SumShape
from fedfair.statistics.table import Purpose


def collaborator_level_of(plan: Plan) -> CollaboratorLevelSection:
    """Return what the plan asks for whole collaborators.

    Raises:
        LocalProtocolError: it asks for nothing.
    """
    asked = plan.privacy.collaborator_level
    if asked is None:
        raise LocalProtocolError("the plan asks for no differential privacy of collaborators")
    return asked


@dataclass(frozen=True, slots=True)
class DistributedDp:
    """The noise of one plan's training sums.

    Attributes:
        sums: norms, scale and noise.
        has_threshold: whether the last entry of a vector is the change of the threshold.
        members: how many collaborators the plan has.
        ring_bits: bits of an entry on its way.
        loss_unit: how many natural units one loss of the local steps has; a vector holds the change in the latter.
    """

    sums: NoisedSums
    has_threshold: bool
    members: int
    ring_bits: int
    loss_unit: float = 1.0

    def vector(self, model: NDArray[np.floating], threshold: float) -> NDArray[np.float64]:
        """Return the vector that is clipped: the change of the model, and the threshold's where that is learnt."""
        ends = [float(threshold) / self.loss_unit] if self.has_threshold else []
        return np.concatenate([model.astype(np.float64), ends])

    def shape(self) -> SumShape:
        """Return the shape of a masked sum: a body, and nothing of the site's in the header."""
        return SumShape((), (self.sums.length,), 1.0 / self.sums.scale)

    def totals(self, body: NDArray[np.floating], contributors: int) -> Totals:
        """Return an opened sum in the form of a plain one, in which each site weighs 1.

        Args:
            body: array (length,), decoded.
            contributors: how many took part, those who had nothing to add included.
        """
        if not self.has_threshold:
            return Totals(np.array([float(contributors), 0.0]), body, contributors)
        return Totals(np.array([float(contributors), float(body[-1]) * self.loss_unit]), body[:-1], contributors)

    def opened_totals(self, numbers: NDArray[np.int64], contributors: int, dtype: np.dtype[np.floating]) -> Totals:
        """Return what a masked sum opens to, modulo the ring, without any mask.

        Args:
            numbers: int64 array (length,), the sum of all sites' whole numbers.
            contributors: how many took part.
            dtype: float32 or float64.
        """
        shape = self.shape()
        code = BodyCode(self.ring_bits, self.members, 1, shape.groups, (self.sums.clip,), shape.unit)
        return self.totals(decode_body(numbers.astype(np.uint32), code, dtype), contributors)


def distributed_dp(plan: Plan, dimension: int) -> DistributedDp | None:
    """Return how the training sums of a plan are noised; None where they are not.

    Args:
        plan: the plan.
        dimension: parameters of the model.

    Raises:
        PlanError: the ring is too small, or no honest share is in every sum.
    """
    asked = plan.privacy.collaborator_level
    if asked is None:
        return None
    has_threshold, members = learns_threshold(plan), len(plan.federation.collaborators)
    ring_bits = plan.secure_aggregation.ring_bits
    sums = noised_sums(
        length=dimension + has_threshold,
        clip=asked.clip,
        noise_multiplier=asked.noise_multiplier,
        members=members,
        shares=quorum(plan) - plan.secure_aggregation.colluders,
        ring_bits=ring_bits,
        sums=most_sums(plan),
    )
    # No sum standardises under such noise, so that the unit follows from the plan.
    return DistributedDp(sums, has_threshold, members, ring_bits, loss_unit(plan.task.loss, None))


def most_sums(plan: Plan) -> int:
    """Return how many training sums a run can have, if every round needs all its attempts."""
    return schedule_of(plan).total(Purpose.TRAINING) * plan.federation.max_attempts
