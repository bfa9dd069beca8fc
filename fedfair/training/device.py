"""Chooses the device of tensors, and moves records and vectors there and back.

Decides `device: auto`, whether a split stays on the device, what memory is page-locked, and what arithmetic means;
what is computed is not its business. An accelerator copies from page-locked memory while the CPU continues, and
from any other only after the CPU has waited. `docs/how-to/gpu.md` says what is copied when.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.errors import PlanError

Fetched = TypeVar("Fetched", bound=tuple[Tensor | None, ...])

RESIDENT_SHARE = 0.5
"""A split stays on an accelerator if it takes at most this share of the free memory; the rest is for training."""

EVALUATION_VALUES = 1 << 22
EVALUATION_RECORDS = 1 << 12
"""An evaluation batch holds at most so many input values and records: that bounds its activations.

Activations of so many records stay in a processor's cache: with four times as many records, a hidden layer of 512
took five times as long for each of them.
"""


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


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Let 32 bits be 32 bits, and equal rounds on one device be equal.

    TensorFloat-32 would round what goes into a product to 11 bits: a gradient that was clipped could then be
    longer than the clip. cuDNN's trials would choose another algorithm each time. Who wants speed asks for bf16.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def host_memory(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return uninitialised memory of the CPU that is exchanged with a device: page-locked where that is a GPU."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


@dataclass(frozen=True, slots=True)
class SplitRecords:
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
    ) -> SplitRecords:
        """Return the records with features in `dtype`, on the device if they fit there well."""
        records = cls(torch.as_tensor(features, dtype=dtype), torch.as_tensor(labels), device)
        needed = records.features.nbytes + records.labels.nbytes
        if device.type != "cpu" and needed <= RESIDENT_SHARE * _free_bytes(device):
            return cls(*records.everything(), device)
        return records

    def __len__(self) -> int:
        return self.labels.shape[0]

    @property
    def resident(self) -> bool:
        """True where the records are on the device for good."""
        return self.labels.device.type == self.device.type

    def everything(self) -> tuple[Tensor, Tensor]:
        """Return all records on the device."""
        return self.features.to(self.device), self.labels.to(self.device)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return on the device the records at `indices`, int64 (batch,) on the CPU, without waiting for it."""
        if self.resident:
            places = indices if self.device.type == "cpu" else _sent(indices, self.device)
            return self.features.index_select(0, places), self.labels.index_select(0, places)
        return self._gathered(self.features, indices), self._gathered(self.labels, indices)

    def ahead(self, batches: Iterable[Fetched]) -> Iterator[Fetched]:
        """Yield batches that `take` makes; one that must travel to a GPU does so while the last one is used."""
        return iter(batches) if self.resident or self.device.type != "cuda" else _fetched(batches, self.device)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all records on the device in batches whose activations fit in memory."""
        values = max(1, math.prod(self.features.shape[1:]))
        size = max(1, min(EVALUATION_RECORDS, EVALUATION_VALUES // values))
        for start in range(0, len(self), size):
            batch = self.features[start : start + size], self.labels[start : start + size]
            yield batch if self.resident else (_sent(batch[0], self.device), _sent(batch[1], self.device))

    def _gathered(self, values: Tensor, indices: Tensor) -> Tensor:
        """Return rows of host memory on the device, gathered straight into memory that it copies from."""
        batch = host_memory((len(indices), *values.shape[1:]), values.dtype, self.device)
        return torch.index_select(values, 0, indices, out=batch).to(self.device, non_blocking=True)


def _fetched(batches: Iterable[Fetched], device: torch.device) -> Iterator[Fetched]:
    """Yield batches that are asked for on a stream of their own, which no computation waits in."""
    source, using, aside = iter(batches), torch.cuda.current_stream(device), torch.cuda.Stream(device)
    aside.wait_stream(using)
    while True:
        # All work on the last batch has been handed over by now, and this travels while the device is at it.
        with torch.cuda.stream(aside):
            batch = next(source, None)
        if batch is None:
            return
        using.wait_stream(aside)
        for tensor in batch:
            if tensor is not None:
                tensor.record_stream(using)
        yield batch


def _sent(values: Tensor, device: torch.device) -> Tensor:
    """Return a copy on a device of values in the CPU's memory, without waiting for it."""
    staged = host_memory(tuple(values.shape), values.dtype, device).copy_(values)
    return staged.to(device, non_blocking=True)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return 0  # of any other device nothing is known, and records travel batch by batch
