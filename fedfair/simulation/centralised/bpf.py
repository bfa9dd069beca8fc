"""Blind Pareto fairness on pooled records: an adversary moves the weights of records, within limits.

    min over theta of max over w in [epsilon, 1]^n, mean w = rho, of sum w_i l_i(theta) / (n rho)

    w^1 = rho;  theta <- theta - eta sum w_i gradient_i / sum w_i;  w <- projection of w + eta_w l(theta^t)

The adversary's best answer to given losses is exact (`box_weights`), and a learner who descends on it needs no
adversary's learning rate; `dro.WorstReweighting` makes those rounds. The maximum is RCVaR((rho - epsilon) /
(1 - epsilon), epsilon / rho) for every model (`theory.rcvar_of_bpf`), so that the plan's objective, put through
the inverse, gives a BPF that minimises the very same function. The mean of the iterates converges. Source:
Martinez, Bertran, Papadaki, Rodrigues and Sapiro 2021, "Blind Pareto Fairness and Subgroup Robustness", Algorithm
1; Appendix A of the FedSRCVaR paper.
"""

from __future__ import annotations

import numpy as np

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.simplex import Vector, project_on_box
from fedfair.fairness.superquantile_weights import worst_weights
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import adversary_acts, moved
from fedfair.simulation.centralised.pooled import pooled_losses
from fedfair.simulation.clients import AskedSteps, Clients


def box_weights(losses: Vector, group_size: float, *, floor: float) -> Vector:
    """Return the adversary's best answer, divided by rho: array (n,) of mean 1.

    The linear programme max sum w_i l_i over w in [floor, 1]^n with mean rho gives the largest losses the weight 1
    as long as the mean allows, and all others the floor; records that tie at the edge share what is left there.

    Args:
        losses: float64 array (n,), finite.
        group_size: rho of BPF, above `floor` and at most 1.
        floor: epsilon of BPF, the least weight of a record, at least 0 and below 1.
    """
    count, raised = len(losses), (group_size - floor) / (1.0 - floor)
    worst = count * raised * worst_weights(losses, np.full(count, 1.0 / count), raised)
    return (floor + (1.0 - floor) * worst) / group_size


class BlindParetoFairness:
    """The rounds of BPF.

    Args:
        group_size: rho of BPF, above `floor` and at most 1.
        floor: epsilon of BPF, the least weight of a record, at least 0.
        learning_rate: eta_w, of the adversary.
        interval: rounds from one of its steps to the next, at least 1; a step is as long as so many.

    Attributes:
        weights: w, float64 array (n,), of mean rho; None before the first round.
    """

    def __init__(self, group_size: float, floor: float, learning_rate: float, interval: int = 1) -> None:
        self._interval = interval
        self._group_size = group_size
        self._floor = floor
        self._learning_rate = learning_rate
        self.weights: Vector | None = None

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Make one step of both players from the same model."""
        rho = self._group_size
        weights = np.full(int(cohort.counts.sum()), rho) if self.weights is None else self.weights
        change = cohort.changes(model, AskedSteps(number, record_weights=[weights / rho]))[0]
        if adversary_acts(number, self._interval):
            raised = weights + self._interval * self._learning_rate * pooled_losses(cohort, model)
            self.weights = project_on_box(raised, self._floor, 1.0, rho * len(weights))
        return moved(model, change)
