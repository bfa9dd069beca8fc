"""The parts of a batch that several processes compute together; alone, a process computes all of it.

A step asks a `BatchParts` which records are its own, and for the sums over all parts. `ALONE` answers with
everything and adds nothing, so that one code makes the step of one process and of many. The processes of one site
on several GPUs are `training/across_devices.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from torch import Tensor

Found = TypeVar("Found")


class BatchParts:
    """One process among those that compute together; this one is the only one.

    Attributes:
        leads: whether this process draws noise, and speaks for all.
    """

    leads = True
    _nothing = nullcontext()

    def part(self, count: int) -> slice:
        """Return which of so many records are this process's own; the parts follow one another."""
        return slice(0, count)

    def agreed(self) -> AbstractContextManager[None]:
        """Return a block that fails in every process if it fails in one, so that none waits for another."""
        return self._nothing

    def whole(self, values: Tensor, count: int) -> Tensor:  # noqa: ARG002 - of all records
        """Return the values (count,) of all records, from those of this process's own part."""
        return values

    def add(self, values: Tensor) -> None:
        """Put the sum over all processes in the place of the values."""

    def share(self, values: Tensor) -> None:
        """Put what the leading process has in the place of the values."""

    def owns(self, batch: int) -> bool:  # noqa: ARG002 - every batch
        """Return whether a batch of an evaluation is this process's own, by its number."""
        return True

    def gathered(self, found: Mapping[int, Found]) -> Mapping[int, Found]:
        """Return what all processes found together, by the number of the batch."""
        return found

    def lead(self, method: str, *given: object, **named: object) -> None:
        """Have every other process call the same method of its own client; in those, nothing."""


ALONE = BatchParts()
