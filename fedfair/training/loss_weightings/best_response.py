"""The local rule of DRO and BPF whose adversary answers the losses of the very batch that is stepped on.

The adversary picks weights w of mean 1 with floor <= w_i <= top, and its best answer to given losses is exact:
the worst share of the batch has the most that it may have, the rest the floor. With a share s and a floor f,

    coefficients   u_i = (1 - f) v_i / s + f,    v_i in [0, 1] the part of record i within the worst s * batch

so that their mean is 1. DRO's form for the conditional value at risk has f = 0 and s = rho. BPF's weights in
[epsilon, 1] of mean rho, divided by rho, have s = (rho - epsilon) / (1 - epsilon) and f = epsilon / rho
(`fairness.theory.rcvar_of_bpf`). A batch of all records makes the answer exact for all records; a smaller one
takes the worst of fewer records, whose mean risk lies below the overall one by O(1 / sqrt(s * batch)). Source:
Levy, Carmon, Duchi and Sidford 2020, "Large-Scale Methods for Distributionally Robust Optimization", section 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedfair.fairness.superquantile_weights import TIE
from fedfair.training.local_sgd import LossWeighting


def best_response(worst_share: float, floor: float = 0.0) -> LossWeighting:
    """Return the local rule: from losses (..., batch) to coefficients u_i / batch, which add up to 1.

    Args:
        worst_share: share of the batch that the adversary raises, above 0 to 1.
        floor: the least coefficient of a record before the division by the batch, 0 to 1.
    """

    def coefficients(losses: Tensor, threshold: Tensor) -> Tensor:  # noqa: ARG001  # one signature for all rules
        size = losses.shape[-1]
        taken = worst_share * size
        # The record on the edge is the last that is in the group at least in part.
        edge = min(size, max(1, math.ceil(taken)))
        quantile = torch.topk(losses, edge, dim=-1).values[..., -1:]
        slack = TIE * losses.abs().amax(dim=-1, keepdim=True)
        above = (losses > quantile + slack).to(losses.dtype)
        level = ((losses - quantile).abs() <= slack).to(losses.dtype)
        # Records that tie at the edge share what is left of the group, whatever their order.
        left = taken - above.sum(dim=-1, keepdim=True)
        member = above + level * (left / level.sum(dim=-1, keepdim=True))
        return member.mul_((1.0 - floor) / (worst_share * size)).add_(floor / size)

    return coefficients
