"""DRFA, distributionally robust federated averaging: AFL with several local steps and drawn collaborators.

    m collaborators drawn with replacement by lambda make tau local steps; theta <- their plain mean
    theta' = the plain mean of their models after t' steps, t' drawn from 1..tau
    m others, drawn evenly, tell F_k(theta');  v_k = (K / m) F_k for them and 0 for the rest
    lambda <- projection of lambda + tau eta_lambda v

lambda^1 = p. Source: Deng, Kamani and Mahdavi 2020, "Distributionally Robust Federated Averaging", Algorithm 1,
with the losses of all training records instead of a batch's.
"""

from __future__ import annotations

import numpy as np

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.simplex import Vector, project_on_simplex
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import mean_losses, moved, present, shares
from fedfair.simulation.clients import AskedSteps, Clients
from fedfair.tables.seeds import array_generator


class RobustFederatedAveraging:
    """The rounds of DRFA.

    Args:
        learning_rate: eta_lambda, of the adversary.
        local_steps: tau, as in the plan.
        drawn: m, how many draws a round makes; None makes one for each collaborator.
        seed: the plan's seed.

    Attributes:
        weights: lambda, float64 array (collaborators with records,); None before the first round.
    """

    def __init__(self, learning_rate: float, local_steps: int, drawn: int | None, seed: int) -> None:
        self._learning_rate = learning_rate
        self._local_steps = local_steps
        self._drawn = drawn
        self._seed = seed
        self.weights: Vector | None = None

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Make the local steps of those who are drawn, and weigh by the losses of others."""
        members = present(cohort)
        weights = shares(cohort, members) if self.weights is None else self.weights
        draws = array_generator(self._seed, "drfa", int(number))
        size = min(self._drawn or len(members), len(members))
        times = np.bincount(draws.choice(len(members), size, p=weights), minlength=len(members))
        early = int(draws.integers(1, self._local_steps, endpoint=True))
        told = draws.choice(len(members), size, replace=False)

        asked = [member for member, count in zip(members, times, strict=True) if count]
        portions = times[times > 0] / size
        changes = cohort.changes(model, AskedSteps(number, asked))
        snapshot = cohort.changes(model, AskedSteps(number, asked, early))
        between = moved(model, portions @ snapshot)
        estimate = np.zeros(len(members))
        estimate[told] = len(members) / size * mean_losses(cohort, between, members)[told]
        self.weights = project_on_simplex(weights + self._local_steps * self._learning_rate * estimate)
        return moved(model, portions @ changes)
