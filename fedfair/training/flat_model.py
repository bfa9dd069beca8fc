"""A model whose parameters are views into one flat vector, and whose gradients are views into another.

Turns loading a broadcast model, zeroing gradients and a step of gradient descent into one operation each, however
many layers the model has, and makes the vector that is sent the memory that was trained. Of a module's
floating-point parameters and persistent buffers those take part that travel (`travelling.py`), tied ones once,
under the first of their names. Those that a site keeps are in a vector of their own (`kept_part.py`), and the
others are frozen. Every other buffer (a count of batches, a cache) starts
afresh with each broadcast, so that what a site computes depends on the broadcast alone and not on what was trained
in the same memory before. What is broadcast arrives, and what changed leaves, through one vector in the CPU's
memory. Order and digest are `model_layout.py`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.errors import LocalProtocolError
from fedfair.training.device import host_memory
from fedfair.training.kept_part import KeptPart
from fedfair.training.record_loss import CROSS_ENTROPY, OutputsAndTargets, RecordLoss
from fedfair.training.travelling import ALL_TRAVEL, Parts, distinct_tensors, frozen_digest

ARRAY_WIDTHS: dict[torch.dtype, np.dtype[np.floating]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


def layout_of(model: nn.Module, dtype: torch.dtype, travels: Collection[str] | None = None) -> Layout:
    """Return the layout of a model's floating-point tensors.

    Args:
        model: any module.
        dtype: float32 or float64, the width of the vector.
        travels: the names of those that take part; None for all. The layout names the others by their digest.
    """
    if dtype not in ARRAY_WIDTHS:
        raise LocalProtocolError(f"a flat vector is float32 or float64, not {dtype}")
    tensors = distinct_tensors(model)
    held = [name for name in tensors if travels is None or name in travels]
    entries = tuple(LayoutEntry(name, tuple(tensors[name].shape), tensors[name].requires_grad) for name in held)
    frozen = {name: tensor for name, tensor in tensors.items() if name not in set(held)}
    return Layout(entries, ARRAY_WIDTHS[dtype], frozen_digest(frozen))


class FlatModel(nn.Module):
    """A module on one device whose tensors live in one vector.

    Attributes:
        module: the wrapped model.
        layout: where each tensor lies.
        flat: float tensor (d,) on the device, the model itself; a change of it changes the model.
        moving: names of the tensors that travel or stay.
        gradient: float tensor (d,), what backward() adds to; always zero at entries that are not trainable.
        record_loss: what its outputs for a record cost, under the scaling that targets have now.
        kept: what is trained and stays at a site; None where nothing does.
        excess: from its outputs and a reference's answers to what local steps follow in place of the loss; None
            where they follow the loss.
    """

    flat: Tensor
    gradient: Tensor

    def __init__(
        self,
        module: nn.Module,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        record_loss: RecordLoss = CROSS_ENTROPY,
        parts: Parts = ALL_TRAVEL,
    ) -> None:
        super().__init__()
        self.record_loss = record_loss
        self.excess: OutputsAndTargets | None = None
        self.layout = layout_of(module, dtype, parts.travel)
        self.module = module.to(device)
        tensors = distinct_tensors(module)
        stay = {name: tensors[name] for name in sorted(parts.stay)}
        self.kept = KeptPart(stay, dtype, ARRAY_WIDTHS[dtype]) if stay else None
        self.moving = held = {entry.name for entry in self.layout.entries} | parts.stay
        frozen = [tensor.requires_grad_(False) for name, tensor in tensors.items() if name not in held]
        self._at_rest = _with_frozen_statistics(module, frozen)
        self._rest = [(buffer, buffer.clone()) for buffer in _other_buffers(module, tensors)]
        self.flat = torch.empty(self.layout.dimension, dtype=dtype, device=device)
        self.gradient = torch.zeros_like(self.flat)
        # The steps since it was loaded, added up by themselves: a model is far larger than a step, and rounds it.
        self._stepped = torch.zeros_like(self.flat)
        # On the CPU nothing need be carried.
        on, length = self.flat.device, self.layout.dimension
        self._host = None if on.type == "cpu" else host_memory((length,), dtype, on)
        # What no step moves, and what it was when it was loaded: its change is counted from that.
        self._untrained: list[tuple[slice, Tensor]] = []
        for entry, place in self.layout.slices():
            tensor = tensors[entry.name]
            view = self.flat[place].view(entry.shape)
            view.copy_(tensor.detach())
            tensor.data = view
            if entry.trainable:
                tensor.grad = self.gradient[place].view(entry.shape)
            else:
                self._untrained.append((place, self.flat[place].clone()))
        # A module comes in either mode, and what is at rest must be so from the first step on.
        self.train()

    def forward(self, features: Tensor) -> Tensor:
        """Return the outputs (batch, *outputs) of features (batch, *input_shape): of classes, their logits."""
        logits: Tensor = self.module(features)
        return logits

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation; what has frozen running statistics stays in evaluation, and keeps them."""
        super().train(mode)
        for module in self._at_rest:
            module.eval()
        return self

    @property
    def followed(self) -> OutputsAndTargets:
        """Return what local steps follow: from outputs (n, *outputs) and answers to a number for each record."""
        return self.record_loss.per_record if self.excess is None else self.excess

    def load(self, vector: NDArray[np.floating]) -> None:
        """Overwrite the whole model.

        Args:
            vector: array (d,) of the layout's width.

        Raises:
            LocalProtocolError: the vector has another length or width.
        """
        if vector.shape != (self.layout.dimension,) or vector.dtype != self.layout.dtype:
            raise LocalProtocolError(
                f"a vector of {vector.shape} {vector.dtype} does not fit the model's "
                f"({self.layout.dimension},) {self.layout.dtype}"
            )
        if self._host is None:
            np.copyto(self.flat.numpy(), vector)
        else:
            # Waiting here costs nothing, since the device has nothing else to do, and frees the host's memory.
            np.copyto(self._host.numpy(), vector)
            self.flat.copy_(self._host)
        self._stepped.zero_()
        if self.kept is not None:
            self.kept.load()
        for place, loaded in self._untrained:
            loaded.copy_(self.flat[place])
        for buffer, first in self._rest:
            buffer.copy_(first)

    def take_change(self) -> NDArray[np.floating]:
        """Return by how much the model has changed since it was loaded, array (d,); once after each `load`.

        For trained entries that is the sum of the steps, which a difference of two models would lose where steps
        are small. It is computed on the device and copied to the host once. The array is memory that the next
        `load` and the next change overwrite: encode it, or copy it, before.
        """
        for place, loaded in self._untrained:
            torch.sub(self.flat[place], loaded, out=self._stepped[place])
        moved = self._stepped if self._host is None else self._host.copy_(self._stepped)
        change: NDArray[np.floating] = moved.numpy()
        return change

    def vector(self) -> NDArray[np.floating]:
        """Return a copy of the whole model, array (d,) of the layout's width."""
        copy: NDArray[np.floating] = self.flat.to("cpu", copy=True).numpy()
        return copy

    def zero_gradient(self) -> None:
        """Set every gradient to zero, keeping the views."""
        for gradient in self.gradients:
            gradient.zero_()

    @property
    def gradients(self) -> tuple[Tensor, ...]:
        """Return every gradient that backward() adds to: that of what travels first."""
        return (self.gradient,) if self.kept is None else (self.gradient, self.kept.gradient)

    def step(self, learning_rate: float) -> None:
        """Move every trainable entry against its gradient; the others have gradient 0 and stay."""
        self.flat.add_(self.gradient, alpha=-learning_rate)
        self._stepped.add_(self.gradient, alpha=-learning_rate)
        if self.kept is not None:
            self.kept.step(learning_rate)

    def go_back_to(self, values: Tensor) -> None:
        """Overwrite the vector with that of the model as it was loaded, as if no step had been made."""
        self.flat.copy_(values)
        self._stepped.zero_()
        if self.kept is not None:
            self.kept.load()

    def _apply(self, fn: object, recurse: bool = True) -> NoReturn:  # noqa: ARG002 - nn.Module's signature
        raise LocalProtocolError("a FlatModel cannot be moved or cast: that would break its views; make a new one")


def _with_frozen_statistics(model: nn.Module, frozen: Sequence[Tensor]) -> list[nn.Module]:
    """Return the modules that hold a frozen buffer, which training would move."""
    held = {id(tensor) for tensor in frozen}
    return [part for part in model.modules() if any(id(one) in held for one in part.buffers(recurse=False))]


def _other_buffers(model: nn.Module, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the buffers that are neither held nor frozen: integer ones, and those that are not persistent."""
    held = {id(tensor) for tensor in tensors.values()}
    return [buffer for buffer in model.buffers() if id(buffer) not in held]
