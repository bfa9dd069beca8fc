"""The local rule of FedSRCVaR: records with a loss above the threshold weigh more, and the threshold moves.

With sigma_i = s'(l_i - c) the gradients of the smoothed objective f are

    d/dtheta f_i = u_i dl_i/dtheta,   u_i = (1 - eps) sigma_i / rho + eps
    d/dc f_i     = (1 - eps) (1 - sigma_i / rho) = 1 - u_i

so that one backward pass over sum(u_i l_i), with u_i held constant, is the whole cost of a step; the threshold's
gradient, 1 - mean(u_i), comes with it. Source: FedSRCVaR paper, Algorithm 1, line 8.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from fedfair.fairness.rcvar import Objective
from fedfair.training.local_sgd import LossWeighting

BATCH_SIZES = 64
"""For so many batch sizes at once the constants are kept; a run has one or two for each collaborator."""


def tail_weighting(objective: Objective) -> LossWeighting:
    """Return the local rule of an objective: what to send backward for the gradient of mean(f_i) in theta.

    The rule takes the detached losses (..., batch) and the threshold c, (..., 1) or a scalar, and returns the
    tensor (..., batch) of u_i / batch; 1 minus its sum over the last dimension is the gradient in c.

    Args:
        objective: worst_group_size (rho), tradeoff (epsilon) and the smoothed plus function.
    """
    rho, eps, smoothed = objective.worst_group_size, objective.tradeoff, objective.smoothing

    # PyTorch wraps a Python number again each time one meets a tensor, which costs more than the arithmetic on a
    # batch: for a small model that was half of what a step takes beyond FedAvg's.
    @lru_cache(BATCH_SIZES)
    def constants(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        gamma = torch.tensor(smoothed.gamma, dtype=dtype, device=device)
        return gamma, torch.full_like(gamma, eps / size)

    def coefficients(losses: Tensor, threshold: Tensor) -> Tensor:
        size = losses.shape[-1]
        gamma, floor = constants(size, losses.dtype, losses.device)
        sigma = smoothed.slope((losses - threshold) / gamma)
        return torch.add(floor, sigma, alpha=(1.0 - eps) / (rho * size))

    return coefficients
