"""Where the long vectors of a run's state that are rarely read are made: in memory, or where their owner has room.

A simulation holds them in memory. The aggregator and a site of a large model hold them in files without a name
(`store.spilled`). Nothing that is computed depends on it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.floating]


class VectorWriter(Protocol):
    """A vector that is made from its first number to its last."""

    def append(self, block: _Array) -> None:
        """Take the next numbers, in the width of the vector; `block` may be used again afterwards.

        Raises:
            OSError: there is no room.
        """

    def finished(self) -> tuple[_Array, bytes]:
        """Return the vector, and its SHA-256 as `requests.vector_sha256`; no bytes where it was not computed."""

    def close(self) -> None:
        """Let go of what is not finished; a finished vector stays."""


class VectorRoom(Protocol):
    """A place for vectors."""

    def begin(self, length: int, width: np.dtype[np.floating]) -> VectorWriter:
        """Begin a vector of so many numbers.

        Raises:
            OSError: there is no room.
        """

    def houses(self, vector: _Array) -> bool:
        """Return whether a vector is here already, or is no burden to anybody."""

    def forget(self, vector: _Array, place: slice) -> None:
        """Give back the memory of what was read of a vector; its values stay.

        Args:
            vector: any vector.
            place: of what was read; it begins where a page of 4096 bytes may begin.
        """


class _MemoryWriter:
    def __init__(self, length: int, width: np.dtype[np.floating]) -> None:
        self._vector = np.empty(length, width)
        self._done = 0

    def append(self, block: _Array) -> None:
        self._vector[self._done : self._done + block.size] = block
        self._done += block.size

    def finished(self) -> tuple[_Array, bytes]:
        return self._vector, b""

    def close(self) -> None:
        """Do nothing."""


class InMemory:
    """The room of whoever has no other."""

    def begin(self, length: int, width: np.dtype[np.floating]) -> VectorWriter:
        """Begin a vector of so many numbers."""
        return _MemoryWriter(length, width)

    def houses(self, vector: _Array) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return True."""
        return True

    def forget(self, vector: _Array, place: slice) -> None:
        """Do nothing."""


IN_MEMORY = InMemory()
