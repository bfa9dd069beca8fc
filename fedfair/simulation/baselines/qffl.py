"""q-FFL by q-FedAvg: collaborators with larger losses weigh more, and the step shortens itself.

    min over theta of sum p_k F_k(theta)^(q+1) / (q+1)

    Delta_k = (theta - theta_k) / eta;   h_k = q F_k^(q-1) |Delta_k|^2 + F_k^q / eta
    theta <- theta - sum p_k F_k^q Delta_k / sum p_k h_k

q = 0 is FedAvg. The paper draws collaborators by p_k and takes a plain mean; everybody takes part here, so that
p_k stands in the sums. Source: Li, Sanjabi, Beirami and Smith 2020, "Fair Resource Allocation in Federated
Learning", Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedfair.aggregation.requests import GlobalModel
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import mean_losses, moved, present, shares
from fedfair.simulation.clients import Clients

MIN_LOSS = 1e-10
"""A loss below this counts as this, because F^(q-1) has a pole at 0 where q < 1."""


class FairResourceAllocation:
    """The rounds of q-FedAvg.

    Args:
        power: q, at least 0.
        learning_rate: eta, of the local steps of a round.
    """

    def __init__(self, power: float, learning_rate: Callable[[RoundNumber], float]) -> None:
        self._power = power
        self._learning_rate = learning_rate

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Make everybody's local steps and add them up, weighed by powers of their losses."""
        q, members, rate = self._power, present(cohort), self._learning_rate(number)
        share = shares(cohort, members)
        losses = np.maximum(mean_losses(cohort, model, members), MIN_LOSS)
        deltas = -cohort.changes(model, number, members=members).models / rate
        squares = np.einsum("kd,kd->k", deltas, deltas, dtype=np.float64)
        curvatures = q * losses ** (q - 1.0) * squares + losses**q / rate
        step = (share * losses**q) @ deltas / float(share @ curvatures)
        return moved(model, -step)
