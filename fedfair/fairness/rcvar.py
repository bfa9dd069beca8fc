"""The relaxed conditional value-at-risk of one record at a threshold, exact and smoothed, and its gradients.

Decides what a record's loss counts for; sorting losses, and the best threshold for them, are `cvar.py`'s
business. With s' for the derivative of the smoothed plus function and sigma_i = s'(l_i - c):

    f_i  = (1 - eps) [c + (l_i - c)+ / rho] + eps l_i              equation (7) of the FedSRCVaR paper
    f~_i = (1 - eps) [c + s(l_i - c) / rho] + eps l_i              its smoothed form
    grad_theta f~_i = u_i grad l_i,    u_i = (1 - eps) sigma_i / rho + eps
    d f~_i / dc     = (1 - eps) (1 - sigma_i / rho) = 1 - u_i

so one backward pass over sum(u_i l_i), with u_i held constant, is the whole gradient, and the threshold's own
gradient is free. (c = threshold, rho = worst_group_size, eps = tradeoff.)

Where worst_group_size or tradeoff is 1 the objective IS the mean: at tradeoff 1 because the tail has no
weight, at worst_group_size 1 because the whole population is the worst group, whose exact value c + mean((l -
c)+) is the mean for every c <= min l. Then no threshold is needed: every weight is exactly 1, f~_i = l_i and
the threshold stays where it is. Smoothing would only add a bias there, and plain federated averaging could
not be recovered exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfair.errors import PlanError
from fedfair.fairness.smoothing import SmoothedPlus
from fedfair.fairness.smoothness import stable_threshold_rate


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective: (1 - tradeoff) * mean of the worst group + tradeoff * overall mean.

    Attributes:
        worst_group_size: smallest share of the population that is protected (rho in the paper), in (0, 1].
        tradeoff: weight of the overall mean (epsilon in the paper), in [0, 1].
        smoothing: the smoothed plus function and its gamma.
        loss_bound: upper end of the threshold's range (B in the paper), positive; None for no upper end.
    """

    worst_group_size: float
    tradeoff: float
    smoothing: SmoothedPlus
    loss_bound: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.worst_group_size <= 1.0:
            raise PlanError(f"worst_group_size is {self.worst_group_size}, outside (0, 1]")
        if not 0.0 <= self.tradeoff <= 1.0:
            raise PlanError(f"tradeoff is {self.tradeoff}, outside [0, 1]")
        if self.loss_bound is not None and not (self.loss_bound > 0.0 and math.isfinite(self.loss_bound)):
            raise PlanError(f"loss_bound is {self.loss_bound}", "give a positive number, or null for none")

    @property
    def is_plain_mean(self) -> bool:
        """True where the objective is the mean loss, so that training is plain federated averaging."""
        return self.worst_group_size == 1.0 or self.tradeoff == 1.0

    @property
    def stable_threshold_learning_rate(self) -> float:
        """The largest learning rate with which plain descent on the threshold cannot overshoot."""
        return stable_threshold_rate(self.worst_group_size, self.tradeoff, self.smoothing.smoothness)

    def per_sample(self, losses: Tensor, threshold: Tensor | float) -> Tensor:
        """Return f~_i.

        Args:
            losses: float tensor (batch,), finite.
            threshold: the threshold c, a number or a scalar tensor.

        Returns:
            Tensor (batch,), differentiable in both arguments; its mean is the smoothed empirical RCVaR at c.
        """
        if self.is_plain_mean:
            return losses
        worst = threshold + self.smoothing.value(losses - threshold) / self.worst_group_size
        return (1.0 - self.tradeoff) * worst + self.tradeoff * losses

    def weights(self, losses: Tensor, threshold: Tensor | float) -> Tensor:
        """Return u_i, by which each record's own gradient counts.

        Args:
            losses: float tensor (batch,), finite.
            threshold: the threshold c, a number or a scalar tensor.

        Returns:
            Tensor (batch,) in [tradeoff, (1 - tradeoff) / worst_group_size + tradeoff], without a gradient;
            exactly 1 everywhere where the objective is the plain mean.
        """
        if self.is_plain_mean:
            return torch.ones_like(losses)
        sigma = self.smoothing.derivative((losses - threshold).detach())
        return sigma * ((1.0 - self.tradeoff) / self.worst_group_size) + self.tradeoff
