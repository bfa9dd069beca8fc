"""Prepares one site's update for secure aggregation: the change, its integer weight, counts and limbs.

Only code that runs at a collaborator may import this, as with `aggregation.contribution`. The limbs are described
in `masked_encoding.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.masked_encoding import HeaderParts
from fedfair.aggregation.sum_kinds import MAX_INTEGER
from fedfair.secagg.masking import Update
from fedfair.terms.local_change import LocalChange


def training_update(change: LocalChange) -> Update:
    """Return the update of a site that has trained; the body is not yet weighted.

    Args:
        change: what its local steps did; NaN and infinities in its body are replaced where it is encoded.
    """
    layout, values = change.layout, change.header
    counts = layout.counts(noised=False)
    limbs, replaced = _limbs(values[~counts])
    header = np.concatenate([values[counts & ~layout.weights()], limbs])
    return Update(header, change.model, change.weight, replaced=change.replaced + replaced)


def noised_update(numbers: NDArray[np.int64]) -> Update:
    """Return the update of a site that takes part in a sum under noise; nothing in it but the body is its own.

    Args:
        numbers: int64 (length,), noise included.
    """
    return Update(np.zeros(0), numbers, 1)


def header_update(contribution: Contribution, parts: HeaderParts) -> Update:
    """Return the update of an evaluation or a standardisation, which have a header only.

    Args:
        contribution: as it would be added in the clear.
        parts: of its header.
    """
    limbs, replaced = _limbs(contribution.header[parts.reals])
    header = np.concatenate([contribution.header[parts.counts], limbs])
    return Update(header, contribution.body, 1, replaced=contribution.replaced + replaced)


def _limbs(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return all nearest integers, then all rests, and how many values were replaced.

    Together an integer and its rest are the value exactly. NaN is replaced by 0, and what is beyond
    `MAX_INTEGER` by that, so that no site leaves a sum because of a value.
    """
    bound = MAX_INTEGER
    summable = np.minimum(np.maximum(np.where(np.isnan(values), 0.0, values), -bound), bound)
    integers = np.rint(summable)
    return np.concatenate([integers, summable - integers]), int(np.count_nonzero(summable != values))
