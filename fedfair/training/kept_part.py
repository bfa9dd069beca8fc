"""The tensors of a model that are trained and stay at a site, as one vector beside that of what travels.

    theta of a site = (what all sites share, what this one keeps)

They make the same local steps as the rest. What they become is the site's alone: its next round, its losses and
its predictions begin from that. With normalisation layers alone it is FedBN (Li et al. 2021). Source: Arivazhagan
et al., "Federated Learning with Personalization Layers" (2019).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.errors import StateError


class KeptPart:
    """Tensors that live in one vector; running statistics among them move as the model computes.

    Args:
        tensors: by name, on the model's device; they become views.
        width: of the vector, by torch's name.
        array_width: the same for arrays.

    Attributes:
        layout: where each tensor lies.
        flat: float tensor (k,), the values.
        gradient: float tensor (k,); zero at running statistics.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], width: torch.dtype, array_width: np.dtype[np.floating]
    ) -> None:
        entries = (LayoutEntry(name, tuple(one.shape), one.requires_grad) for name, one in tensors.items())
        self.layout = Layout(tuple(entries), array_width)
        device = next(iter(tensors.values())).device
        self.flat = torch.empty(self.layout.dimension, dtype=width, device=device)
        self.gradient = torch.zeros_like(self.flat)
        for entry, place in self.layout.slices():
            tensor, view = tensors[entry.name], self.flat[place].view(entry.shape)
            view.copy_(tensor.detach())
            tensor.data = view
            if entry.trainable:
                tensor.grad = self.gradient[place].view(entry.shape)
        self._first = self.flat.clone()
        self._begin = self._first

    def begin_from(self, values: NDArray[np.floating] | None) -> None:
        """Let every later `load` bring back these values.

        Args:
            values: array (k,); None for those before round 1.

        Raises:
            StateError: they are of another model.
        """
        if values is None:
            self._begin = self._first
        elif values.shape != tuple(self.flat.shape):
            raise StateError(
                f"this site keeps {values.size} values of its part of the model, which has {self.flat.numel()}",
                "copy this site's state folder back from its newest backup",
            )
        else:
            self._begin = torch.from_numpy(values).to(self.flat)

    def load(self) -> None:
        """Bring back the values that the site begins from."""
        self.flat.copy_(self._begin)

    def values(self) -> NDArray[np.floating]:
        """Return a copy of the present values, array (k,)."""
        copy: NDArray[np.floating] = self.flat.to("cpu", copy=True).numpy()
        return copy

    def step(self, learning_rate: float) -> None:
        """Move what is trained against its gradient."""
        self.flat.add_(self.gradient, alpha=-learning_rate)
