"""FedMGDA+: a common descent direction for all collaborators, from updates of length one.

    u_k = change_k / |change_k|;   lambda = argmin |sum lambda_k u_k|^2 over the simplex with |lambda - p| <= range
    theta <- theta + eta_global sum lambda_k u_k

range = 0 keeps the weights p, range = 1 leaves them free (MGDA). The steps have the length that eta_global
gives them and do not shrink by themselves. Source: Hu, Shaloudegi, Zhang and Yu 2022, "Federated Learning Meets
Multi-Objective Optimization", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.min_norm import shortest_combination
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import moved, present, shares
from fedfair.simulation.clients import AskedSteps, Clients


class CommonDescent:
    """The rounds of FedMGDA+.

    Args:
        weight_range: how far each weight may be from p, in [0, 1] (epsilon in the paper).
        server_learning_rate: eta_global of a round, positive.
    """

    def __init__(self, weight_range: float, server_learning_rate: Callable[[RoundNumber], float]) -> None:
        self._weight_range = weight_range
        self._server_learning_rate = server_learning_rate

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Go one step along the shortest combination of all directions."""
        members = present(cohort)
        share = shares(cohort, members)
        changes = cohort.changes(model, AskedSteps(number, members))
        lengths = np.linalg.norm(changes.astype(np.float64), axis=1, keepdims=True)
        # Who does not want to move has the direction 0, which makes every step a step back for nobody.
        units = np.divide(changes, lengths, out=np.zeros(changes.shape), where=lengths > 0)
        lower = np.maximum(share - self._weight_range, 0.0)
        upper = np.minimum(share + self._weight_range, 1.0)
        weights = shortest_combination(units, lower, upper)
        return moved(model, self._server_learning_rate(number) * (weights @ units))
