"""The smoothed fair objective on pooled records: what FedSRCVaR would reach if nothing were federated.

Two ways down: the very steps of local training on one full batch, and a solver that goes to the minimum. The
solver differentiates the whole objective by autograd, in theta and in c, and shares nothing with the one-backward
step; so the two check each other.
"""

from itertools import repeat

import torch
from torch import Tensor

from fedfair.fairness.rcvar import Objective
from fedfair.plan.learning_rates import LearningRates
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch, LocalSteps, loss_function
from fedfair.training.loss_weightings.fedsrcvar import tail_weighting
from tests.oracles.erm import descend_mean
from tests.oracles.solver import Optimum, minimise


def descend_rcvar(
    model: FlatModel,
    features: Tensor,
    labels: Tensor,
    objective: Objective,
    threshold: float,
    *,
    steps: int,
    learning_rate: float,
    threshold_learning_rate: float,
) -> float:
    """Take full-batch gradient steps on (theta, c), c kept in [0, loss_bound] after each.

    Args:
        model: changed in place.
        features: float tensor (n, *input_shape) on the model's device.
        labels: int64 tensor (n,).
        objective: what is minimised.
        threshold: c before the first step.
        steps: how many.
        learning_rate: eta, of the model.
        threshold_learning_rate: eta_c, of the threshold.

    Returns:
        The threshold after the last step; where the objective is the plain mean, the one before the first.
    """
    if objective.is_plain_mean:
        descend_mean(model, features, labels, steps=steps, learning_rate=learning_rate)
        return threshold
    losses = loss_function(model, "fp32", compiled=False)
    rule = tail_weighting(objective)
    taken = LocalSteps(model, losses, rule, LearningRates(learning_rate, threshold_learning_rate))
    level = torch.tensor(threshold, dtype=model.flat.dtype, device=model.flat.device)
    for batch in repeat(Batch(features, labels), steps):
        level = taken.descend([batch], level).clamp(0.0, objective.loss_bound)
    return float(level)


def minimise_rcvar(model: FlatModel, features: Tensor, labels: Tensor, objective: Objective) -> Optimum:
    """Return the minimum of the mean smoothed objective, from the fp64 `model` and threshold 1 on."""
    return minimise(
        model, features, labels, lambda losses, threshold: objective.per_sample(losses, threshold).mean(),
        loss_bound=objective.loss_bound,
    )  # fmt: skip
