"""The gradients of single records of linear layers in a row, without making any of them.

With a^(l-1) what goes into layer l, and e^l the gradient of a record's loss in what comes out of it, the record's
gradient in that layer's weights is the outer product e^l a^(l-1)', and in its bias e^l. So

    norm^2 = sum over layers of |e^l|^2 (|a^(l-1)|^2 + 1),     sum_i f_i grad_i = (f * e^l)' a^(l-1)

(Goodfellow 2015, "Efficient Per-Example Gradient Computations"): one backward pass without weights, then one
product of matrices for each layer, which is what an ordinary step costs. Both come from the very same numbers, so
that a norm is that of what is added, whatever the precision of the layers. Decides which modules are such a row.
"""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor, nn

BETWEEN = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Identity)
"""What may stand between two layers: it treats every record by itself, and has nothing to train."""


def is_row_of_linear_layers(module: nn.Module) -> bool:
    """Return whether a module flattens its records and sends them through linear layers, each of them once."""
    if type(module) is not nn.Sequential:
        return False
    first, *others = module
    layers = [layer for layer in others if type(layer) is nn.Linear]
    return (
        type(first) is nn.Flatten
        and first.start_dim == 1
        and len(others) > 0
        and all(type(layer) in (nn.Linear, *BETWEEN) for layer in others)
        and len({id(parameter) for parameter in module.parameters()})
        == sum(2 - (one.bias is None) for one in layers)
        and all(parameter.requires_grad for parameter in module.parameters())
    )


class LinearGradients:
    """Knows the gradient of every record by its two factors; see `per_sample.PerSample`.

    Args:
        module: a row of linear layers.
    """

    drops_unsound = True

    def __init__(self, module: nn.Module) -> None:
        self._layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
        # Nothing is kept for each record but what an ordinary step keeps, so nothing limits how many there are.
        self.most_records = sys.maxsize
        self._passing: dict[nn.Linear, tuple[Tensor, Tensor]] = {}
        self._factors: list[tuple[nn.Linear, Tensor, Tensor]] = []
        for layer in self._layers:
            layer.register_forward_hook(self._keep)

    def reset(self) -> None:
        """Forget what an earlier batch left behind."""
        self._passing.clear()
        self._factors.clear()

    def norms(self, losses: Tensor) -> Tensor:
        """Return the norm of each record's gradient, (batch,)."""
        outputs = [self._passing[layer][1] for layer in self._layers]
        errors = torch.autograd.grad(losses, outputs, torch.ones_like(losses))
        self._factors = [
            (layer, error.to(losses.dtype), self._passing[layer][0].to(losses.dtype))
            for layer, error in zip(self._layers, errors, strict=True)
        ]
        self._passing.clear()
        lengths = [
            outer_length(error, entered, bias=layer.bias is not None) for layer, error, entered in self._factors
        ]
        joint: Tensor = torch.linalg.vector_norm(torch.stack(lengths), dim=0)
        return joint

    def weigh(self, losses: Tensor, coefficients: Tensor, sound: Tensor) -> None:  # noqa: ARG002 - one signature for all ways
        """Set every parameter's gradient to the weighted sum over the records."""
        factor, unsound = coefficients.unsqueeze(1), ~sound.unsqueeze(1)
        for layer, error, entered in self._factors:
            weighted = (error * factor).masked_fill_(unsound, 0.0)
            torch.mm(weighted.t(), entered.masked_fill(unsound, 0.0), out=gradient_of(layer.weight))
            if layer.bias is not None:
                torch.sum(weighted, 0, out=gradient_of(layer.bias))
        self._factors.clear()

    def _keep(self, layer: nn.Module, entered: tuple[Tensor], left: Tensor) -> None:
        if torch.is_grad_enabled() and isinstance(layer, nn.Linear):
            self._passing[layer] = entered[0].detach(), left


def outer_length(error: Tensor, entered: Tensor, *, bias: bool = True) -> Tensor:
    """Return the norm (..., batch) of each record's gradient in one layer.

    Args:
        error: tensor (..., batch, out), e.
        entered: tensor (..., batch, in), a.
        bias: whether the layer has one, whose gradient is e itself.
    """
    width = _no_shorter(entered)
    if bias:
        width = torch.hypot(width, torch.ones_like(width))
    return _no_shorter(error) * width


def _no_shorter(values: Tensor) -> Tensor:
    """Return the norms (..., batch) of vectors (..., batch, entries), overstated where their squares are lost.

    The other factor may be as large as its own square allows, and a product with 0 would pass any clip.
    """
    least = math.sqrt(values.shape[-1] * torch.finfo(values.dtype).tiny)
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1).clamp(min=least)
    return norms


def gradient_of(parameter: Tensor) -> Tensor:
    """Return the memory of a parameter's gradient; zeros where it has had none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
