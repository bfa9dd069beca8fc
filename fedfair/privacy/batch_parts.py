"""The parts of a batch that several processes compute together; alone, a process computes all of it.

A step asks a `BatchParts` which records are its own, and for the sums over all parts. `Alone` answers with
everything and adds nothing, so that one code makes the step of one process and of many. The processes of one site
on several GPUs are `training/across_devices.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from torch import Tensor

Found = TypeVar("Found")


class BatchParts(Protocol):
    """One process among those that compute together."""

    @property
    def leads(self) -> bool:
        """Return whether this process draws noise, and speaks for all."""

    def part(self, count: int) -> slice:
        """Return which of so many records are this process's own; the parts follow one another."""

    def agreed(self) -> AbstractContextManager[None]:
        """Return a block that fails in every process if it fails in one, so that none waits for another."""

    def whole(self, values: Tensor, count: int) -> Tensor:
        """Return the values (count,) of all records, from those of this process's own part."""

    def add(self, values: Tensor) -> None:
        """Put the sum over all processes in the place of the values."""

    def share(self, values: Tensor) -> None:
        """Put what the leading process has in the place of the values."""

    def owns(self, batch: int) -> bool:
        """Return whether a batch of an evaluation is this process's own, by its number."""

    def gathered(self, found: Mapping[int, Found]) -> Mapping[int, Found]:
        """Return what all processes found together, by the number of the batch."""

    def lead(self, method: str, *given: object, **named: object) -> None:
        """Have every other process call the same method of its own client; in those, nothing."""


class Alone:
    """The only process."""

    leads = True
    _nothing = nullcontext()

    def part(self, count: int) -> slice:
        """Return all."""
        return slice(0, count)

    def agreed(self) -> AbstractContextManager[None]:
        """Return a block that is like any other."""
        return self._nothing

    def whole(self, values: Tensor, count: int) -> Tensor:
        """Return the values."""
        del count
        return values

    def add(self, values: Tensor) -> None:
        """Leave the values as they are."""

    def share(self, values: Tensor) -> None:
        """Leave the values as they are."""

    def owns(self, batch: int) -> bool:
        """Return True."""
        del batch
        return True

    def gathered(self, found: Mapping[int, Found]) -> Mapping[int, Found]:
        """Return what was found."""
        return found

    def lead(self, method: str, *given: object, **named: object) -> None:
        """Do nothing: there are no other processes."""


ALONE = Alone()
