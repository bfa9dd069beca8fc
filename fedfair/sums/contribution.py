"""One collaborator's own addend, before it leaves the site.

Only code that runs at a collaborator (or in a simulation, which plays all of them) may import this module;
the aggregator and the round rules are kept from it by the import contracts. They see bytes that are added
and dropped, never a value of this type.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError, TrainingError
from fedfair.sums.spec import HEADER_DTYPE, SumSpec


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one collaborator adds to one sum.

    Attributes:
        header: float64 array (header_length,).
        body: float32 or float64 array (body_length,).
    """

    header: NDArray[np.float64]
    body: NDArray[np.floating]


def encode(contribution: Contribution, spec: SumSpec) -> bytes:
    """Return the bytes of an upload: header then body, little-endian, without padding.

    Raises:
        LocalProtocolError: the contribution does not have the shape of the sum (a bug on this side).
        TrainingError: a value is NaN or infinite, which would destroy everybody's sum.
    """
    header, body = contribution.header, contribution.body
    if header.shape != (spec.header_length,) or body.shape != (spec.body_length,):
        raise LocalProtocolError(
            f"{spec.purpose.value} contribution has {header.shape} header and {body.shape} body values, "
            f"the sum needs ({spec.header_length},) and ({spec.body_length},)"
        )
    for name, values in (("header", header), ("body", body)):
        if not np.isfinite(values).all():
            raise TrainingError(
                f"the {name} of this site's {spec.purpose.value} contribution holds "
                f"{int((~np.isfinite(values)).sum())} values that are NaN or infinite; nothing was sent",
                "lower learning_rate, or look for missing or extreme values in the local data",
            )
    return header.astype(HEADER_DTYPE, copy=False).tobytes() + body.astype(spec.body_dtype, copy=False).tobytes()
