"""One collaborator's own addend, before it leaves the site.

Only code that runs at a collaborator (or in a simulation, which plays all of them) may import this module;
the aggregator and the round rules are kept from it by the import contracts. They see bytes that are added
and dropped, never a value of this type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.spec import HEADER_DTYPE, SumSpec
from fedfair.errors import LocalProtocolError, TrainingError

BLOCK = 1 << 18
"""Values that are looked at at a time: small enough for the cache, large enough to hide the loop."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One collaborator's contribution to one sum.

    Attributes:
        header: float64 array (header_length,).
        body: float32 or float64 array (body_length,).
        replaced: how many numbers about its records the site replaced; only under masks more than 0.
    """

    header: NDArray[np.float64] = field(repr=False)
    body: NDArray[np.floating] = field(repr=False)
    replaced: int = 0


def encode(contribution: Contribution, spec: SumSpec) -> bytearray:
    """Return the bytes of an upload: header then body, little-endian, without padding.

    The body is copied once, into memory that is the upload's own: what it was made in may be used again.

    Raises:
        LocalProtocolError: the contribution does not have the shape of the sum (a bug on this side).
        TrainingError: a value is NaN or infinite, which would destroy the whole sum.
    """
    header, body = contribution.header, contribution.body
    if header.shape != (spec.header_length,) or body.shape != (spec.body_length,):
        raise LocalProtocolError(
            f"{spec.purpose.value} contribution has {header.shape} header and {body.shape} body values, "
            f"the sum needs ({spec.header_length},) and ({spec.body_length},)"
        )
    for name, values in (("header", header), ("body", body)):
        unsound = count_unsound(values)
        if unsound:
            raise TrainingError(
                f"the {name} of this site's {spec.purpose.value} contribution holds "
                f"{unsound} values that are NaN or infinite; nothing was sent",
                "lower learning_rate, or look for missing or extreme values in the local data",
            )
    upload = bytearray(spec.upload_bytes)
    np.frombuffer(upload, HEADER_DTYPE, spec.header_length)[:] = header
    np.frombuffer(upload, spec.body_dtype, spec.body_length, spec.header_bytes)[:] = body
    return upload


def count_unsound(values: NDArray[np.floating]) -> int:
    """Return how many values are NaN or infinite; a sound array is only looked through twice, and not copied."""
    if not values.size or (math.isfinite(float(values.min())) and math.isfinite(float(values.max()))):
        return 0
    blocks = (values[start : start + BLOCK] for start in range(0, len(values), BLOCK))
    return sum(int(np.count_nonzero(~np.isfinite(block))) for block in blocks)
