"""Frozen linear layers whose weights are held as whole numbers of 8 bits, with a scale for each row.

    W_ij ~ s_i q_ij,    s_i = max_j |W_ij| / 127,    q_ij = round(W_ij / s_i), -127 to 127

They take a quarter of the memory. A layer computes with s_i q_ij, so that no entry is off by more than s_i / 2.
The bias stays as it is. Source: Dettmers et al., "LLM.int8()" (2022), the symmetric form by rows.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedfair.training.lora import LoraLinear, put_layer

GREATEST = 127
"""The largest whole number of a weight."""


class EightBitWeight(nn.Linear):
    """A linear layer whose `weight` is no parameter: it is made from whole numbers each time it is read.

    Attributes:
        codes: int8 tensor (out, in).
        scale: tensor (out, 1) in the width of the weight that was there.
    """

    codes: Tensor
    scale: Tensor

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """Return the weight, tensor (out, in)."""
        return self.codes.to(self.scale.dtype) * self.scale


class EightBitLinear(EightBitWeight):
    """A frozen linear layer."""


class EightBitLora(EightBitWeight, LoraLinear):
    """A frozen linear layer with an adapter, which stays as it is."""


def widen_eight_bits(model: nn.Module) -> None:
    """Put a plain layer in the place of each whose weights are held in 8 bits, and that has no adapter."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, EightBitLinear):
            plain = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
            plain.weight, plain.bias = nn.Parameter(layer.weight, requires_grad=False), layer.bias
            put_layer(model, name, plain)


def hold_in_eight_bits(model: nn.Module, moving: Collection[str]) -> None:
    """Hold the weights of frozen linear layers in 8 bits; call it once tensors are on their device.

    Args:
        model: it is changed.
        moving: names of the tensors that travel or stay, which are left as they are.
    """
    tied = [id(one) for part in model.modules() for one in part.parameters(recurse=False)]
    for name, layer in model.named_modules():
        kind = {nn.Linear: EightBitLinear, LoraLinear: EightBitLora}.get(type(layer))
        # A weight that another layer shares (an embedding) is that layer's too.
        if kind is None or f"{name}.weight" in moving or tied.count(id(layer.weight)) > 1:
            continue
        weight = layer.weight.detach()
        del layer.weight
        scale = weight.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny) / GREATEST
        # No buffers: they are in no file, and no broadcast brings them back.
        layer.codes, layer.scale = (weight / scale).round().to(torch.int8), scale
        layer.__class__ = kind
