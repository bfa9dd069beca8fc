"""Where tensors live: the choice of the device, and records that are on it for good or go there batch by batch.

Decides `device: auto` and whether a split fits on the device; what is computed there is not its business.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.errors import PlanError

RESIDENT_SHARE = 0.5
"""A split stays on an accelerator if it takes at most this share of the free memory; the rest is for training."""

EVALUATION_VALUES = 1 << 22
EVALUATION_RECORDS = 1 << 14
"""An evaluation batch holds at most so many input values and records: that bounds its activations."""


def choose_device(name: str) -> torch.device:
    """Return the device that a plan or site names; `auto` takes cuda, then mps, then the CPU.

    Raises:
        PlanError: the named accelerator is not there.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(candidate for candidate, there in available.items() if there)
    if not available[name]:
        raise PlanError(f"device '{name}' is not available on this machine", "use device: auto or device: cpu")
    return torch.device(name)


@dataclass(frozen=True, slots=True)
class Records:
    """The features and labels of one split, ready to be taken to a device.

    Attributes:
        features: float tensor (n, *input_shape), on the device or in the CPU's memory.
        labels: int64 tensor (n,), beside the features.
        device: where batches go.
    """

    features: Tensor
    labels: Tensor
    device: torch.device

    @classmethod
    def place(
        cls,
        features: NDArray[np.floating],
        labels: NDArray[np.int64],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Records:
        """Return the records with features in `dtype`, on the device if they fit there well."""
        records = cls(torch.as_tensor(features, dtype=dtype), torch.as_tensor(labels), device)
        needed = records.features.nbytes + records.labels.nbytes
        if device.type != "cpu" and needed <= RESIDENT_SHARE * _free_bytes(device):
            return cls(*records.everything(), device)
        return records

    def __len__(self) -> int:
        return self.labels.shape[0]

    def everything(self) -> tuple[Tensor, Tensor]:
        """Return all records on the device."""
        return self.features.to(self.device), self.labels.to(self.device)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the records at `indices`, an int64 tensor (batch,) on the CPU, on the device."""
        if self.labels.device.type == self.device.type:
            places = indices.to(self.device, non_blocking=True)
            return self.features.index_select(0, places), self.labels.index_select(0, places)
        # Only page-locked memory is copied to an accelerator while the CPU goes on.
        batch = self.features.index_select(0, indices).pin_memory(), self.labels[indices].pin_memory()
        return batch[0].to(self.device, non_blocking=True), batch[1].to(self.device, non_blocking=True)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all records on the device in batches whose activations fit in memory."""
        values = max(1, math.prod(self.features.shape[1:]))
        size = max(1, min(EVALUATION_RECORDS, EVALUATION_VALUES // values))
        for start in range(0, len(self), size):
            batch = slice(start, start + size)
            yield self.features[batch].to(self.device), self.labels[batch].to(self.device)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
