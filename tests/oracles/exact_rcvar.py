"""The objective of the paper with the plus function itself, and how its threshold descends, for every record."""

import math

import torch
from torch import Tensor

from fedfair.fairness.rcvar import Objective


def exact_per_sample(stated: Objective, losses: Tensor, threshold: Tensor | float) -> Tensor:
    """Return f_i: tensor (batch,); arguments as in `Objective.per_sample`."""
    if stated.is_plain_mean:
        return losses
    worst = threshold + (losses - threshold).clamp(min=0.0) / stated.worst_group_size
    return (1.0 - stated.tradeoff) * worst + stated.tradeoff * losses


def exact_weights(stated: Objective, losses: Tensor, threshold: Tensor | float) -> Tensor:
    """Return u_i with sigma_i = 1 above the threshold and 0 elsewhere: a subgradient of f_i; (batch,)."""
    if stated.is_plain_mean:
        return torch.ones_like(losses)
    sigma = (losses > threshold).to(losses.dtype)
    return sigma * ((1.0 - stated.tradeoff) / stated.worst_group_size) + stated.tradeoff


def threshold_gradient(stated: Objective, losses: Tensor, threshold: Tensor | float) -> Tensor:
    """Return d f~_i / dc for each record: tensor (batch,); 0 where the objective is the plain mean."""
    return 1.0 - stated.weights(losses, threshold)


def exact_threshold_gradient(stated: Objective, losses: Tensor, threshold: Tensor | float) -> Tensor:
    """Return the subgradient of f_i in c that belongs to `exact_weights`: tensor (batch,)."""
    return 1.0 - exact_weights(stated, losses, threshold)


def projected(stated: Objective, threshold: float) -> float:
    """Return the point of [0, loss_bound] that is nearest to a threshold."""
    return min(max(threshold, 0.0), math.inf if stated.loss_bound is None else stated.loss_bound)
