"""AFL, agnostic federated learning: descend for the collaborators, ascend for an adversary who weighs them.

    min over theta of max over lambda in the simplex of sum lambda_k F_k(theta)

    lambda^1 = p;  theta <- theta - eta sum lambda_k g_k;  lambda <- projection of lambda + eta_lambda F(theta^t)

with F_k the mean loss of collaborator k at the broadcast model. The maximum is that of the worst collaborator; the
mean of the iterates (`output: average`) is what converges. Source: Mohri, Sivek and Suresh 2019, "Agnostic
Federated Learning", Algorithm 1, with the losses of all training records instead of a batch's.
"""

from __future__ import annotations

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.simplex import Vector, project_on_simplex
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import adversary_acts, mean_losses, moved, present, shares
from fedfair.simulation.clients import AskedSteps, Clients


class AgnosticFederatedLearning:
    """The rounds of AFL.

    Args:
        learning_rate: eta_lambda, of the adversary.
        interval: rounds from one of its steps to the next, at least 1; a step is as long as so many.

    Attributes:
        weights: lambda, float64 array (collaborators with records,); None before the first round.
    """

    def __init__(self, learning_rate: float, interval: int = 1) -> None:
        self._learning_rate = learning_rate
        self._interval = interval
        self.weights: Vector | None = None

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Make one step of both players from the same model."""
        members = present(cohort)
        weights = shares(cohort, members) if self.weights is None else self.weights
        changes = cohort.changes(model, AskedSteps(number, members))
        if adversary_acts(number, self._interval):
            rate = self._interval * self._learning_rate
            self.weights = project_on_simplex(weights + rate * mean_losses(cohort, model, members))
        return moved(model, weights @ changes)
