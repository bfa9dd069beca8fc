"""Chooses the device of tensors, and moves records and vectors there and back.

Decides `device: auto`, whether a split stays on the device, what memory is page-locked, and what arithmetic means;
what is computed is not its business. An accelerator copies from page-locked memory while the CPU continues, and
from any other only after the CPU has waited. `docs/how-to/gpu.md` says what is copied when.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.errors import PlanError
from fedfair.tables.feature_storage import BLOCK_BYTES, empty_beside, forget, joined, row_blocks, storage_of
from fedfair.tables.pixels import WHITE, Values, are_pixels, feature_values

Fetched = TypeVar("Fetched", bound=tuple[Tensor | None, ...])

Scaled = Callable[[NDArray[np.floating]], NDArray[np.floating]]
"""From features of some records to the same records scaled."""

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
    cudnn = torch.backends.cudnn
    flags = {"enabled": True, "benchmark": False, "deterministic": True, "allow_tf32": False}
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with cudnn.flags(**flags) if cudnn.is_available() else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


SMALL_MODEL = 1 << 14
"""Parameters up to which one thread computes: several would wait for each other longer than they work."""


def set_threads(stated: int | None, parameters: int) -> None:
    """Set in how many threads torch computes from now on.

    Args:
        stated: how many; None for as many as torch takes, but for one where the model is small.
        parameters: of the model.
    """
    if stated is not None or parameters <= SMALL_MODEL:
        torch.set_num_threads(stated or 1)


@contextmanager
def threads_for(parameters: int) -> Iterator[None]:
    """Compute in the block as a model of so many parameters wants it, and afterwards as before."""
    before = torch.get_num_threads()
    set_threads(None, parameters)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def host_memory(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return uninitialised memory of the CPU that is exchanged with a device: page-locked where that is a GPU."""
    return torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")


@dataclass(frozen=True, slots=True)
class SplitRecords:
    """The features and labels of one split, ready to be taken to a device.

    Attributes:
        features: tensor (n, *input_shape), on the device or in the CPU's memory: floats, or the bytes of images.
        labels: the records' answers, int64 tensor (n,) of classes or tensor (n, *targets), beside the features.
        device: where batches go.
        width: of the numbers that the bytes of images become, on the device; None for float32.
        filed: the features as numpy has them, where they are in a file; None where they are in memory.
    """

    features: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    device: torch.device
    width: torch.dtype | None = None
    filed: Values | None = field(default=None, repr=False)

    @classmethod
    def place(
        cls,
        features: Values,
        labels: NDArray[Any],
        dtype: torch.dtype,
        device: torch.device,
        scaled: Scaled | None = None,
    ) -> SplitRecords:
        """Return the records with features in `dtype`, on the device if they fit there well.

        Args:
            features: array (n, *input_shape) as a `Dataset` has them.
            labels: the records' answers, array (n, ...).
            dtype: of the numbers that batches have.
            device: where batches go.
            scaled: what is done to the numbers of each record before; None for nothing.

        Raises:
            DataError: the features are in a file, and there is no room for another one.
        """
        if are_pixels(features):
            held = _in_one_piece(features)
        elif scaled is None and _shares(features, dtype):
            held = np.asarray(features, _width(dtype))
        else:
            held = _placed([features], features.shape[1:], dtype, scaled)
        return cls._kept(held, labels, dtype, device)

    @classmethod
    def place_joined(
        cls,
        parts: Sequence[Values],
        record_shape: tuple[int, ...],
        labels: NDArray[Any],
        dtype: torch.dtype,
        device: torch.device,
        scaled: Scaled | None = None,
    ) -> SplitRecords:
        """Return the records of several, one after the other, as one split.

        Args:
            parts: for each an array (n_k, *record_shape).
            record_shape: of one record.
            labels: the records' answers, array (n_1 + n_2 + ..., ...).
            dtype: as for `place`.
            device: as for `place`.
            scaled: as for `place`.

        Raises:
            DataError: as `place`.
        """
        if parts and all(map(are_pixels, parts)):
            held = _in_one_piece(joined(parts))
        else:
            held = _placed(parts, record_shape, dtype, scaled)
        return cls._kept(held, labels, dtype, device)

    @classmethod
    def _kept(cls, held: Values, labels: NDArray[Any], dtype: torch.dtype, device: torch.device) -> SplitRecords:
        features, labelled = torch.from_numpy(held), torch.as_tensor(labels)
        if labelled.is_floating_point() and device.type == "mps":
            labelled = labelled.float()  # it has no numbers of 64 bits
        if device.type != "cpu" and held.nbytes + labelled.nbytes <= RESIDENT_SHARE * _free_bytes(device):
            return cls(features.to(device), labelled.to(device), device, dtype)
        return cls(features, labelled, device, dtype, None if storage_of(held) is None else held)

    def __len__(self) -> int:
        return self.labels.shape[0]

    @property
    def resident(self) -> bool:
        """True where the records are on the device for good."""
        return self.labels.device.type == self.device.type

    def everything(self) -> tuple[Tensor, Tensor]:
        """Return all records on the device."""
        return self._numbers(self.features.to(self.device)), self.labels.to(self.device)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return on the device the records at `indices`, int64 (batch,) on the CPU, without waiting for it."""
        if self.resident:
            places = indices if self.device.type == "cpu" else _sent(indices, self.device)
            return self._numbers(self.features.index_select(0, places)), self.labels.index_select(0, places)
        return self._numbers(self._gathered(self.features, indices)), self._gathered(self.labels, indices)

    def ahead(self, batches: Iterable[Fetched]) -> Iterator[Fetched]:
        """Yield batches that `take` makes; one that must travel to a GPU does so while the last one is used."""
        return iter(batches) if self.resident or self.device.type != "cuda" else _fetched(batches, self.device)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all records on the device in batches whose activations fit in memory.

        Of features in a file a few megabytes are in memory at a time. After a pass none are: those of a training
        that went before it neither.
        """
        values = max(1, math.prod(self.features.shape[1:]))
        size = max(1, min(EVALUATION_RECORDS, EVALUATION_VALUES // values))
        read = 0
        for start in range(0, len(self), size):
            if self.filed is not None and read >= BLOCK_BYTES:
                forget(self.filed)
                read = 0
            features, labels = self.features[start : start + size], self.labels[start : start + size]
            if not self.resident:
                features, labels = _sent(features, self.device), _sent(labels, self.device)
            read += features.nbytes
            yield self._numbers(features), labels
        if self.filed is not None:
            forget(self.filed)

    def _numbers(self, features: Tensor) -> Tensor:
        """Return features on the device as numbers: bytes of images as `feature_values` has them."""
        if features.dtype != torch.uint8:
            return features
        # By a number of the device's own: by one of the host's, a GPU multiplies by the rounded 1 / 255.
        white = torch.full((), WHITE, dtype=torch.float32, device=features.device)
        return features.to(torch.float32).div_(white).to(self.width or torch.float32)

    def _gathered(self, values: Tensor, indices: Tensor) -> Tensor:
        """Return rows of host memory on the device, gathered straight into memory that it copies from."""
        batch = host_memory((len(indices), *values.shape[1:]), values.dtype, self.device)
        return torch.index_select(values, 0, indices, out=batch).to(self.device, non_blocking=True)


def _shares(features: NDArray[np.generic], dtype: torch.dtype) -> bool:
    """Return whether PyTorch takes features as they are: in its width, or in memory, and not read-only."""
    return features.flags.writeable and (storage_of(features) is None or features.dtype == _width(dtype))


def _in_one_piece(features: Values) -> Values:
    """Return the bytes of images as they are; a copy only of an array that PyTorch may not share."""
    if features.flags.writeable and features.flags.c_contiguous:
        return features
    return features.copy(order="C")


def _width(dtype: torch.dtype) -> np.dtype[np.generic]:
    """Return the same width as numpy has it."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def _placed(
    parts: Sequence[Values], record_shape: tuple[int, ...], dtype: torch.dtype, scaled: Scaled | None
) -> Values:
    """Return the features of all parts in `dtype`, scaled; in a file where one of them is in one."""
    placed = empty_beside((sum(map(len, parts)), *record_shape), _width(dtype), *parts)
    tensor, start = torch.from_numpy(placed), 0
    for features in parts:
        for rows in row_blocks(features):
            block = feature_values(features[rows])
            values = np.ascontiguousarray(block if scaled is None else scaled(block))
            tensor[start + rows.start : start + rows.stop] = torch.as_tensor(values)
            forget(features)
            forget(placed)
        start += len(features)
    return cast("Values", placed)


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
