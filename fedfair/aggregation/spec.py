"""The shape of one sum, known to both sides before anything is sent.

A contribution has two segments. The header is short and always float64: weights, weighted threshold changes,
counts and bin totals. The body is the long one: the weighted change of the model, in the plan's own width.
Every sum has a purpose, so that a contribution to one can never be counted in another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedfair.statistics.table import Purpose

HEADER_DTYPE = np.dtype("<f8")


@dataclass(frozen=True, slots=True)
class SumSpec:
    """The shape of one contribution to a sum.

    Attributes:
        purpose: why this is summed.
        header_length: number of float64 values in the header, at least 1.
        body_length: number of values in the body; 0 where the purpose has no body.
        body_dtype: little-endian float32 or float64.
    """

    purpose: Purpose
    header_length: int
    body_length: int
    body_dtype: np.dtype[np.floating]

    @property
    def header_bytes(self) -> int:
        """Bytes of the header segment."""
        return self.header_length * HEADER_DTYPE.itemsize

    @property
    def upload_bytes(self) -> int:
        """Bytes of one whole contribution; anything longer or shorter is refused."""
        return self.header_bytes + self.body_length * self.body_dtype.itemsize
