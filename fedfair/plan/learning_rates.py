"""The learning rates of a round: what the plan states, and how its schedule lowers them over the rounds.

One factor holds for every rate of a round: the model's and the threshold's at the sites, and the server
optimizer's. It is a function of the plan and of the round's number, so it is never sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedfair.ids import RoundNumber
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import is_noised, learns_threshold, rounds_before
from fedfair.plan.schema import Plan
from fedfair.plan.sections import ServerOptimizerSection
from fedfair.plan.task import LinearModel, MlpModel

_GRID = 1 << 32
"""A factor is rounded to one part in this many, so that every platform's cosine gives the same number."""

_ADAPTIVE_RATES: Mapping[type, float] = {LinearModel: 0.3, MlpModel: 0.03}
_OTHER_ADAPTIVE_RATE = 0.01
_DECAYS: Mapping[type, float] = {MlpModel: 0.03}

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
    """Return by how much the rates of a round are multiplied: above 0, and at most 1.

    A schedule that falls begins with W rounds in which the rates rise; l is what is left of the rounds after them:

        t <= W: t / (W + 1);    then l = (T - t + 1) / (T - W);    linear l;    cosine (1 - cos(pi l)) / 2

    A constant schedule has the factor 1 in every round.

    A continued run begins a schedule of its own: its rates rise and fall over the rounds that it adds.

    Args:
        plan: the plan; T are its rounds, and W is its `warm_up` of them, rounded up.
        number: t, from 1 to T; where a run continues, both are counted from its first round.
    """
    training, done = plan.training, rounds_before(plan)
    rounds, number = training.rounds - done, int(number) - done
    if training.schedule == "constant":
        return 1.0
    rising = min(math.ceil(training.warm_up * rounds), rounds - 1)
    if number <= rising:
        return number / (rising + 1)
    left = (rounds - number + 1) / (rounds - rising)
    if training.schedule == "linear":
        return left
    return max(round((1.0 - math.cos(math.pi * left)) / 2.0 * _GRID), 1) / _GRID


def local_rates(plan: Plan, number: RoundNumber | int) -> LearningRates:
    """Return the rates of every local step of a round.

    They follow the schedule, unless the server optimizer divides the change of a single step by them. There they
    cancel, and the optimizer's own rate follows the schedule. What is sent is rounded, so that a rate that fell
    would only leave more of the rounding in the quotient.

    Args:
        plan: the plan.
        number: the round, from 1.
    """
    factor = 1.0 if _cancels(plan) else rate_factor(plan, number)
    threshold = stated_threshold_rate(plan) * factor if learns_threshold(plan) else None
    return LearningRates(plan.training.learning_rate * factor, threshold)


def _cancels(plan: Plan) -> bool:
    """Return whether the sites' rates make no difference but that of rounding.

    With noise for whole collaborators they do: a change is clipped before it is noised.
    """
    training = plan.training
    single = training.local_steps == 1 and training.local_epochs is None
    return single and not averages_plainly(plan) and not is_noised(plan)


def averages_plainly(plan: Plan) -> bool:
    """Return whether the mean of the changes is added to the model as it is."""
    stated = server_optimizer_of(plan)
    return stated.name == "sgd" and stated.learning_rate is None


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


def adapts_steps(plan: Plan) -> bool:
    """Return whether the server's rate alone decides the size of the step, whatever the sites' rates are."""
    return server_optimizer_of(plan).name in {"adam", "yogi"}


def server_rate(plan: Plan) -> float:
    """Return the rate of the server optimizer before any schedule, above 0."""
    stated = server_optimizer_of(plan)
    if stated.learning_rate is not None:
        return stated.learning_rate
    if stated.name in {"sgd", "momentum"}:
        return plan.training.learning_rate
    return _ADAPTIVE_RATES.get(type(plan.task.model), _OTHER_ADAPTIVE_RATE)


def weight_decay_of(plan: Plan) -> float:
    """Return the share of every weight that a round takes away at the full rate, from 0 to below 1.

    Where the plan does not say: that of perceptrons whose steps Adam or Yogi makes, which else become too sure.
    """
    stated = plan.training.weight_decay
    if stated is not None:
        return stated
    return _DECAYS.get(type(plan.task.model), 0.0) if adapts_steps(plan) else 0.0
