"""Places each tensor of a model in the one flat vector that is trained, summed and sent.

Decides the order of the entries (sorted by name) and a digest of it, which both sides compare before a single
number is exchanged. Reading a model is `flat_model.py`'s business and files are `model_file.py`'s; a layout made
from either is the same. No torch: the aggregator imports this module.

Tied tensors appear once, under the first of their names; integer buffers (BatchNorm's `num_batches_tracked`) do
not appear. The vector is float32 for the precisions fp16, bf16 and fp32, and float64 for fp64.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError

DIGEST_LABEL = b"fedfair/layout/v1"
WIDTHS = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True, slots=True)
class LayoutEntry:
    """One tensor of a model.

    Attributes:
        name: the dotted name of the parameter or buffer, as in `state_dict`.
        shape: its shape; () for a scalar.
        trainable: False for a running statistic or a frozen parameter, which is averaged but gets no gradient.
    """

    name: str
    shape: tuple[int, ...]
    trainable: bool = True

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The order and shapes of a model's tensors in its flat vector.

    Attributes:
        entries: sorted by name; given in any order.
        dtype: float32 or float64, the width of the vector.
        frozen: 32 bytes, the digest of the model's frozen tensors, which are not in the vector; empty for none.
    """

    entries: tuple[LayoutEntry, ...]
    dtype: np.dtype[np.floating]
    frozen: bytes = b""

    def __post_init__(self) -> None:
        entries = tuple(sorted(self.entries, key=lambda entry: entry.name))
        for left, right in itertools.pairwise(entries):
            if left.name == right.name:
                raise LocalProtocolError(f"the model has two tensors called '{left.name}'")
        if self.dtype not in WIDTHS:
            raise LocalProtocolError(f"a flat vector is float32 or float64, not {self.dtype}")
        object.__setattr__(self, "entries", entries)

    @property
    def dimension(self) -> int:
        """Number of values in the vector (d, or |theta| in the paper)."""
        return sum(entry.size for entry in self.entries)

    @property
    def digest(self) -> bytes:
        """SHA-256 over label, width, every entry, and frozen tensors' digest, each with its length in front."""
        sha = hashlib.sha256()
        for field in self._canonical():
            sha.update(len(field).to_bytes(8, "big"))
            sha.update(field)
        return sha.digest()

    def _canonical(self) -> Iterator[bytes]:
        yield DIGEST_LABEL
        yield self.dtype.newbyteorder("<").str.encode()
        for entry in self.entries:
            yield entry.name.encode()
            yield b"trainable" if entry.trainable else b"buffer"
            yield b"".join(length.to_bytes(8, "big") for length in entry.shape)
        if self.frozen:
            yield self.frozen

    def slices(self) -> Iterator[tuple[LayoutEntry, slice]]:
        """Yield every entry with its place in the vector."""
        start = 0
        for entry in self.entries:
            yield entry, slice(start, start + entry.size)
            start += entry.size

    def unflatten(self, vector: NDArray[np.floating]) -> dict[str, NDArray[np.floating]]:
        """Return the tensors by name, as views into `vector`.

        Raises:
            LocalProtocolError: the vector has another length or width than the layout.
        """
        if vector.shape != (self.dimension,) or vector.dtype != self.dtype:
            raise LocalProtocolError(
                f"a vector of {vector.shape} {vector.dtype} does not fit a layout "
                f"of ({self.dimension},) {self.dtype}"
            )
        return {entry.name: vector[place].reshape(entry.shape) for entry, place in self.slices()}

    def flatten(self, tensors: Mapping[str, NDArray[np.floating]]) -> NDArray[np.floating]:
        """Return one new vector (dimension,) with every tensor in its place.

        Raises:
            LocalProtocolError: a tensor is missing, unknown, or has another shape or width; all are named.
        """
        faults = list(self._misfits(tensors))
        if faults:
            raise LocalProtocolError("the tensors do not fit the layout: " + "; ".join(faults))
        vector = np.empty(self.dimension, self.dtype)
        for entry, place in self.slices():
            vector[place] = tensors[entry.name].reshape(-1)
        return vector

    def _misfits(self, tensors: Mapping[str, NDArray[np.floating]]) -> Iterator[str]:
        known = {entry.name for entry in self.entries}
        yield from (f"'{name}' is unknown" for name in sorted(tensors.keys() - known))
        for entry in self.entries:
            if entry.name not in tensors:
                yield f"'{entry.name}' is missing"
                continue
            tensor = tensors[entry.name]
            if tensor.shape != entry.shape or tensor.dtype != self.dtype:
                yield f"'{entry.name}' is {tensor.shape} {tensor.dtype}, not {entry.shape} {self.dtype}"
