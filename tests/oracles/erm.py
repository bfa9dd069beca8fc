"""Empirical risk minimisation on pooled records: what FedAvg would reach if nothing were federated.

Two ways down: the very steps of local training on one full batch, and a solver that goes to the minimum.
"""

from itertools import repeat

import torch
from torch import Tensor

from fedfair.plan.learning_rates import LearningRates
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch, LocalSteps, loss_function
from fedfair.training.loss_weightings.fedavg import equal_coefficients
from tests.oracles.solver import Optimum, minimise


def descend_mean(model: FlatModel, features: Tensor, labels: Tensor, *, steps: int, learning_rate: float) -> None:
    """Take full-batch gradient steps on the mean loss; `model` is changed in place."""
    losses = loss_function(model, "fp32", compiled=False)
    taken = LocalSteps(model, losses, equal_coefficients, LearningRates(learning_rate, None))
    taken.descend(repeat(Batch(features, labels), steps), torch.zeros(()))


def minimise_mean(model: FlatModel, features: Tensor, labels: Tensor) -> Optimum:
    """Return the minimum of the mean loss, in nats, from the fp64 `model` on; its threshold means nothing."""
    return minimise(model, features, labels, lambda losses, _: losses.mean())
