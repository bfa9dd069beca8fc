"""The learning rates of a round: what the plan states, and how its schedule lowers them over the rounds.

One factor holds for every rate of a round: the model's and the threshold's at the sites, and the server
optimizer's. It is a function of the plan and of the round's number, so nobody has to be told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedfair.ids import RoundNumber
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import is_noised, learns_threshold
from fedfair.plan.schema import LinearModel, Plan, ServerOptimizerSection

_GRID = 1 << 32
"""A factor is rounded to one part in this many, so that every platform's cosine comes to the same number."""

_ADAPTIVE_RATE, _ADAPTIVE_RATE_OF_LINEAR = 0.01, 0.1

FIRST_ROUND = RoundNumber(1)
PLAIN_AVERAGING = ServerOptimizerSection(name="sgd")
ADAPTIVE = ServerOptimizerSection(name="adam")


@dataclass(frozen=True, slots=True)
class LearningRates:
    """The rates of one round at every site.

    Attributes:
        model: eta, above 0.
        threshold: eta_c, above 0; None where the threshold stays as it is.
    """

    model: float
    threshold: float | None


def rate_factor(plan: Plan, number: RoundNumber | int) -> float:
    """Return by how much the rates of a round are multiplied: 1 in the first round, above 0 in every one.

        constant 1;   linear (T - t + 1) / T;   cosine (1 + cos(pi (t - 1) / T)) / 2

    Args:
        plan: the plan; T are its rounds.
        number: t, from 1 to T.
    """
    rounds, done = plan.training.rounds, int(number) - 1
    match plan.training.schedule:
        case "constant":
            return 1.0
        case "linear":
            return (rounds - done) / rounds
        case "cosine":
            return max(round((1.0 + math.cos(math.pi * done / rounds)) / 2.0 * _GRID), 1) / _GRID


def local_rates(plan: Plan, number: RoundNumber | int) -> LearningRates:
    """Return the rates of every local step of a round.

    Args:
        plan: the plan.
        number: the round, from 1.
    """
    factor = rate_factor(plan, number)
    threshold = stated_threshold_rate(plan) * factor if learns_threshold(plan) else None
    return LearningRates(plan.training.learning_rate * factor, threshold)


def stated_threshold_rate(plan: Plan) -> float:
    """Return the rate of the threshold before any schedule."""
    stated = plan.training.threshold_learning_rate
    return plan.training.learning_rate if stated is None else stated


def server_optimizer_of(plan: Plan) -> ServerOptimizerSection:
    """Return how the federation steps with the mean of the changes.

    Where the plan does not say: Adam. Adam makes every coordinate move by about its rate, so that a coordinate in
    which noise exceeds the gradient goes astray: plain averaging where the plan adds noise.
    """
    if plan.training.server_optimizer is not None:
        return plan.training.server_optimizer
    adapts = ALGORITHMS[plan.training.algorithm].mean_of_changes and not is_noised(plan)
    return ADAPTIVE if adapts else PLAIN_AVERAGING


def server_rate(plan: Plan) -> float:
    """Return the rate of the server optimizer before any schedule, above 0."""
    stated = server_optimizer_of(plan)
    if stated.learning_rate is not None:
        return stated.learning_rate
    if stated.name in {"sgd", "momentum"}:
        return plan.training.learning_rate
    return _ADAPTIVE_RATE_OF_LINEAR if isinstance(plan.task.model, LinearModel) else _ADAPTIVE_RATE
