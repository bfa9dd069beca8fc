"""The local rule of FedAvg: every record of the batch counts the same, and there is no threshold to learn.

FedSRCVaR with tradeoff=1 or worst_group_size=1 is this rule, by the same code. Source: McMahan et al. 2017,
"Communication-Efficient Learning of Deep Networks from Decentralized Data", Algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


def equal_coefficients(losses: Tensor, threshold: Tensor) -> Tensor:  # noqa: ARG001  # one signature for all local rules
    """Return what to send backward for the gradient of mean(l_i).

    Args:
        losses: float tensor (..., batch), the per-sample losses.
        threshold: tensor (..., 1) or a scalar; not used.

    Returns:
        The tensor (..., batch) of 1 / batch; they add up to 1, so that the threshold has no gradient.
    """
    return torch.full_like(losses, 1.0 / losses.shape[-1])
