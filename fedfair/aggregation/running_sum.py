"""A sum that grows by one upload at a time and forgets each upload at once.

`PlainSum` adds uploads in the clear. A masked sum offers the same three things (`spec`, `add`, `totals`), so the
driver of a sum need not know which of the two it drives.

Memory: one body, whatever the number of collaborators. The body is added in the plan's own width; with float32
the rounding error of a total is at most (contributors - 1) * 2^-24 * sum |addend|, below the rounding of the
float32 model itself; with float64, 2^-53 in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.spec import HEADER_DTYPE, SumSpec
from fedfair.errors import LocalProtocolError, RemoteProtocolError

BLOCK = 1 << 18
"""Values that are checked at a time: small enough for the cache, large enough to hide the loop."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The sum over all sites that contributed; the only numbers the aggregator ever reads.

    Attributes:
        header: float64 array (header_length,).
        body: array (body_length,) in the body's own width.
        contributors: how many uploads were added, at least 1.
        replaced: how many values sites had to replace because they could not be summed; in the clear none, because
            a site refuses to send them.
        replacing: how many sites had such values.
        clipped: how many values of the body were beyond the clip, over all sites; in the clear nothing is clipped.
        sizes: how many sites' largest change fell into each power of two, by `secagg.fixedpoint`; () where nothing
            can be clipped.
        used_up: whether the memory of the body may become something else, once the sum is applied.
    """

    header: NDArray[np.float64]
    body: NDArray[np.floating]
    contributors: int
    replaced: int = 0
    replacing: int = 0
    clipped: int = 0
    sizes: tuple[int, ...] = ()
    used_up: bool = False


class RunningSum(Protocol):
    """The interface of every kind of sum, plain or masked."""

    @property
    def spec(self) -> SumSpec:
        """Return the shape that every upload must have."""

    def add(self, payload: bytes | bytearray | memoryview) -> None:
        """Add one complete upload; refuse a malformed one and stay as before."""

    def totals(self) -> Totals:
        """Return the sum over all that were added."""


class PlainSum:
    """A running sum in the clear, for plans and sites that allow it."""

    def __init__(self, spec: SumSpec) -> None:
        self.spec = spec
        self._header = np.zeros(spec.header_length)
        self._body = np.zeros(spec.body_length, spec.body_dtype)
        self._contributors = 0

    def add(self, payload: bytes | bytearray | memoryview) -> None:
        """Add one complete upload.

        Raises:
            RemoteProtocolError: the upload has the wrong length or a value that is not finite; nothing was added.
        """
        if len(payload) != self.spec.upload_bytes:
            raise RemoteProtocolError(
                f"{self.spec.purpose.value} upload has {len(payload)} bytes, expected {self.spec.upload_bytes}",
                "the sender works on another model layout; compare the plan digests",
            )
        header = np.frombuffer(payload, HEADER_DTYPE, self.spec.header_length)
        body = np.frombuffer(payload, self.spec.body_dtype, self.spec.body_length, self.spec.header_bytes)
        if not (_sum_is_finite(self._header, header) and _sum_is_finite(self._body, body)):
            raise RemoteProtocolError(
                f"{self.spec.purpose.value} upload holds a NaN, an infinity or a value too large to add",
                "the sender must abstain instead",
            )
        self._header += header
        self._body += body
        self._contributors += 1

    def totals(self) -> Totals:
        """Return the sum; the arrays are the running ones, so nothing may be added afterwards.

        Raises:
            LocalProtocolError: nothing was added.
        """
        if not self._contributors:
            raise LocalProtocolError("a sum over no site has no totals")
        return Totals(self._header, self._body, self._contributors)


def _sum_is_finite(total: NDArray[np.floating], addend: NDArray[np.floating]) -> bool:
    # In blocks, so that checking an upload needs no second array of the model's length.
    with np.errstate(over="ignore", invalid="ignore"):
        return all(
            np.isfinite(total[start : start + BLOCK] + addend[start : start + BLOCK]).all()
            for start in range(0, len(total), BLOCK)
        )
