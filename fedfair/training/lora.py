"""Low-rank adapters beside the linear layers of a model, and how they are merged into them.

    W x + b + (alpha / rank) B A x        A (rank, in), B (out, rank)

A is drawn as a layer's weights are, B is zero, so that the model begins as it was. Source: Hu et al., "LoRA:
Low-Rank Adaptation of Large Language Models" (2022), equation 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfair.errors import PlanError
from fedfair.plan.parameters import LoraSection, matching
from fedfair.tables.text_table import listed

DOWN, UP = "lora_down", "lora_up"
"""What the factors are called beside the weight of their layer."""

SHOWN = 5
"""So many names stand in a fault."""


class LoraLinear(nn.Linear):
    """A linear layer with an adapter; its own weight and bias keep their names.

    Args:
        layer: whose weight and bias it takes over.
        rank: of the adapter.
        alpha: what the adapter's answer is multiplied by, times the rank.
    """

    lora_down: nn.Parameter
    lora_up: nn.Parameter

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        # The layer's own tensors replace these, which are never made.
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.factor = alpha / rank
        self.lora_down = nn.Parameter(torch.empty(rank, layer.in_features, dtype=layer.weight.dtype))
        self.lora_up = nn.Parameter(torch.zeros(layer.out_features, rank, dtype=layer.weight.dtype))
        nn.init.kaiming_uniform_(self.lora_down, a=math.sqrt(5))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (..., out) of inputs (..., in)."""
        added = functional.linear(functional.linear(inputs, self.lora_down), self.lora_up)
        return functional.linear(inputs, self.weight, self.bias) + self.factor * added

    def merged(self) -> nn.Linear:
        """Return one plain layer that answers as this one does, up to rounding."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        weight = self.weight.double() + self.factor * (self.lora_up.double() @ self.lora_down.double())
        layer.weight = nn.Parameter(weight.detach().to(self.weight.dtype), requires_grad=False)
        layer.bias = self.bias
        return layer


def is_factor(name: str) -> bool:
    """Return whether a tensor's name is that of a factor of an adapter."""
    return name.rpartition(".")[2] in {DOWN, UP}


def with_adapters(model: nn.Module, stated: LoraSection) -> None:
    """Put adapters beside the linear layers that a plan names.

    Args:
        model: it is changed.
        stated: the layers, rank and scale.

    Raises:
        PlanError: a pattern names no linear layer.
    """
    linear = {name: layer for name, layer in model.named_modules() if type(layer) is nn.Linear and name}
    for pattern in stated.layers:
        if not matching(linear, (pattern,)):
            raise PlanError(
                f"training.parameters.lora.layers: {pattern} names no linear layer of the model",
                f"its linear layers are {listed(sorted(linear), SHOWN) or 'none'}",
            )
    for name in sorted(matching(linear, stated.layers)):
        put_layer(model, name, LoraLinear(linear[name], stated.rank, stated.alpha))


def merge_adapters(model: nn.Module) -> None:
    """Put a plain layer in the place of each with an adapter."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, LoraLinear):
            put_layer(model, name, layer.merged())


def put_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Put a layer in the place that a name of the model has."""
    above, _, own = name.rpartition(".")
    setattr(model.get_submodule(above), own, layer)
