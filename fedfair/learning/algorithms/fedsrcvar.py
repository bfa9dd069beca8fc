"""The local rule of FedSRCVaR: records with a loss above the threshold weigh more, and the threshold moves.

With sigma_i = s'(l_i - c) the gradients of the smoothed objective f are

    d/dtheta f_i = u_i dl_i/dtheta,   u_i = (1 - eps) sigma_i / rho + eps
    d/dc f_i     = (1 - eps) (1 - sigma_i / rho) = 1 - u_i

so that one backward pass over sum(u_i l_i), with u_i held constant, is the whole cost of a step; the threshold's
gradient, 1 - mean(u_i), comes with it. Source: FedSRCVaR paper, Algorithm 1, line 8.
"""

from __future__ import annotations

from torch import Tensor

from fedfair.fairness.rcvar import Objective


def tail_coefficients(losses: Tensor, threshold: Tensor, objective: Objective) -> Tensor:
    """Return what to send backward for the gradient of mean(f_i) in theta; 1 minus its sum is the gradient in c.

    Args:
        losses: float tensor (batch,), the per-sample losses, detached.
        threshold: scalar tensor, the current threshold c.
        objective: worst_group_size (rho), tradeoff (epsilon) and the smoothed plus function.

    Returns:
        The tensor (batch,) of u_i / batch.
    """
    size, rho, eps = losses.shape[0], objective.worst_group_size, objective.tradeoff
    sigma = objective.smoothing.derivative(losses - threshold)
    # In place, on a tensor that nobody else holds: for a small model these few operations are what a step costs
    # beyond FedAvg's.
    return sigma.mul_((1.0 - eps) / (rho * size)).add_(eps / size)
