"""Sends losses backward, each with its weight: what a step on a weighted sum of losses needs."""

from __future__ import annotations

from torch import Tensor


def backward_weighted(losses: Tensor, weights: Tensor | None = None, *, keep_graph: bool = False) -> None:
    """Add the gradient of a weighted sum of losses to the gradients of the parameters.

    It is `torch.autograd.backward(losses, weights)` to the bit, which imports sympy at its first call. That takes
    seconds on a busy machine, in the middle of a round that others wait for.

    Args:
        losses: (records,).
        weights: (records,), not differentiated; None for one each.
        keep_graph: whether the same losses are sent backward again.
    """
    (losses if weights is None else losses * weights).sum().backward(retain_graph=keep_graph)
