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
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedfair.privacy.sensitivity import MAX_SUMMED, MAX_WIDENED

ALL_RECORDS = slice(None)
"""All records of a batch."""

BETWEEN = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Identity)
"""Modules that may stand between two layers: they treat every record by itself, and have nothing to train."""


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
        self.most_summed = most_summed(next(module.parameters()))
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
        errors = torch.autograd.grad(losses.sum(), outputs)
        self._factors = [
            (layer, error.to(losses.dtype), self._passing[layer][0].to(losses.dtype))
            for layer, error in zip(self._layers, errors, strict=True)
        ]
        self._passing.clear()
        lengths = [
            outer_length(error, entered, bias=layer.bias is not None) for layer, error, entered in self._factors
        ]
        return joint_norms(lengths)

    def weigh(self, losses: Tensor, coefficients: Tensor, sound: Tensor, here: slice = ALL_RECORDS) -> None:  # noqa: ARG002 - one signature for all ways
        """Set every parameter's gradient to the weighted sum over the records at `here`."""
        factor, unsound = coefficients[here].unsqueeze(1), ~sound[here].unsqueeze(1)
        for layer, error, entered in self._factors:
            weighted, kept = (
                (error[here] * factor).masked_fill_(unsound, 0.0),
                entered[here].masked_fill(unsound, 0.0),
            )
            if widened(weighted, len(weighted)):
                weighted = weighted.double()
                gradient_of(layer.weight).copy_(weighted.t() @ kept.double())
            else:
                torch.mm(weighted.t(), kept, out=gradient_of(layer.weight))
            if layer.bias is not None:
                gradient_of(layer.bias).copy_(weighted.sum(0))

    def _keep(self, layer: nn.Module, entered: tuple[Tensor], left: Tensor) -> None:
        if torch.is_grad_enabled() and isinstance(layer, nn.Linear):
            self._passing[layer] = entered[0].detach(), left


def most_summed(like: Tensor) -> int:
    """Return how many vectors of this width, on this device, may be added up before rounding to a grid."""
    bits = significand_bits(like.dtype)
    return MAX_WIDENED if bits == 24 and like.device.type == "cpu" else MAX_SUMMED[bits]


def widened(like: Tensor, records: int) -> bool:
    """Return whether so many vectors must be added up in float64; never beyond the CPU, where that may be slow."""
    return like.device.type == "cpu" and like.dtype == torch.float32 and records > MAX_SUMMED[24]


def significand_bits(dtype: torch.dtype) -> int:
    """Return how many bits of a float's significand count: 53 for float64, else 24."""
    return 53 if dtype == torch.float64 else 24


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
    return lengths_of(values).clamp(min=least)


def lengths_of(values: Tensor) -> Tensor:
    """Return the norms (..., batch) of vectors (..., batch, entries), off by a rounding or two of their width.

    Squares are added up in float64: in float32 a norm of n entries may be off by n / 2 roundings. Apple's MPS has
    no float64.
    """
    width = values.dtype if values.device.type == "mps" else torch.float64
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1, dtype=width)
    return norms.to(values.dtype)


def joint_norms(parts: Sequence[Tensor]) -> Tensor:
    """Return the norms (...,) of vectors whose parts have these norms, each (...,)."""
    return lengths_of(torch.stack(list(parts), dim=-1))


def gradient_of(parameter: Tensor) -> Tensor:
    """Return the memory of a parameter's gradient; zeros where it has had none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
