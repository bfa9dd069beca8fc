"""Weighs a site's change for q-FFL by a power of the site's loss, and computes the curvature that it tells.

With F the mean loss of the site's training records under the broadcast model, in units of log(classes), q the
plan's loss power, eta the rate of the round and D the change of the model, the site adds w times

    F^q D    and    h = F^q + q F^(q-1) |D|^2 / (eta log(classes))

The federation divides the first sum by the second. The unit cancels; in it, a power of a loss near that of the
uniform guess is near 1, whatever q is, and so in the range that a masked sum takes best. Source: Li, Sanjabi,
Beirami and Smith 2020, "Fair Resource Allocation in Federated Learning", Algorithm 2 (q-FedAvg), with Delta_k =
-D / eta and h_k times eta. The paper draws collaborators by p_k and takes a plain mean; all sites take part here,
so that p_k stands in the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.ids import RoundNumber
from fedfair.plan.derived import guess_loss, planned_loss_range
from fedfair.plan.learning_rates import local_rates
from fedfair.plan.losses import RANGE_IN_GUESSES
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset
from fedfair.terms.at_sites import FinishedRound, SiteTerm
from fedfair.terms.local_change import LocalChange

MIN_LOSS = 1e-10
"""A loss below this, in nats, counts as this, because F^(q-1) has a pole at 0 where q < 1."""

MAX_POWER = 2.0**53
"""A greater power of a loss counts as this; no masked sum carries a greater number."""

_Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LossPowers:
    """The weighing of the changes of one plan.

    Attributes:
        power: q, at least 0.
        unit: the loss of the uniform guess, log(classes) in nats; an eighth of the histogram where there is none.
    """

    power: float
    unit: float

    @classmethod
    def of_plan(cls, plan: Plan, classes: int) -> LossPowers | None:
        """Return the weighing of a plan; None where losses weigh nothing."""
        if plan.training.algorithm != "qffl":
            return None
        stated = plan.training.options.loss_power
        guess = guess_loss(plan, classes)
        unit = planned_loss_range(plan, classes) / RANGE_IN_GUESSES if guess is None else guess
        return cls(1.0 if stated is None else stated, unit)

    def factors(self, losses: _Vector) -> _Vector:
        """Return F^q: float64 array (sites,), at most `MAX_POWER`.

        Args:
            losses: float64 array (sites,), the mean losses in nats.
        """
        with np.errstate(over="ignore"):
            powers: _Vector = np.minimum((np.maximum(losses, MIN_LOSS) / self.unit) ** self.power, MAX_POWER)
        return powers

    def curvatures(self, losses: _Vector, squares: _Vector, rate: float) -> _Vector:
        """Return h: float64 array (sites,); not finite where a change is not.

        Args:
            losses: as in `factors`.
            squares: float64 array (sites,), |D|^2.
            rate: eta, above 0; divided by the unit of the local steps' losses where it is another than F's.
        """
        factors = self.factors(losses)
        with np.errstate(over="ignore", invalid="ignore"):
            steepness: _Vector = self.power * factors / np.maximum(losses, MIN_LOSS) * squares / rate
        return factors + steepness


class WeighedChange(SiteTerm):
    """The weighing of one site's change.

    Args:
        plan: a plan whose losses weigh.
        powers: by which.
    """

    whole = True

    def __init__(self, plan: Plan, powers: LossPowers) -> None:
        self._plan, self._powers = plan, powers

    def takes_losses(self, number: RoundNumber) -> bool:
        """Return True: the loss weighs in every round."""
        del number
        return True

    def finished(self, change: LocalChange, about: FinishedRound) -> LocalChange:
        """Return F^q D with h beside it."""
        if about.losses is None:
            return change
        values, means = change.model.astype(np.float64), np.array([float(about.losses.mean())])
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.array([values @ values])
            np.multiply(change.model, self._powers.factors(means)[0], out=change.model, casting="same_kind")
        rate = local_rates(self._plan, about.number).model / about.loss_unit
        curvature = float(self._powers.curvatures(means, squares, rate)[0])
        return replace(change, further={**change.further, "curvature": change.weight * curvature})


def site_term(plan: Plan, records: Dataset) -> WeighedChange | SiteTerm:
    """Return the weighing of a site's change."""
    powers = LossPowers.of_plan(plan, records.schema.classes)
    return SiteTerm() if powers is None else WeighedChange(plan, powers)
