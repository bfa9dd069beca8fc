"""What one site hands to secure aggregation: the change itself, its integer weight, and counts and limbs.

Only code that runs at a collaborator may import this, as with `sums.contribution`. The limbs are described in
`masked_sums.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import TrainingError
from fedfair.learning.task import LocalChange
from fedfair.secagg.masking import Update
from fedfair.sums.contribution import Contribution


def training_update(change: LocalChange) -> Update:
    """Return the update of a site that has trained; the body is not yet weighted.

    Raises:
        TrainingError: the threshold's change is not finite.
    """
    weighted = np.array([change.weight * change.threshold])
    return Update(_limbs(weighted), change.model, change.weight)


def noised_update(numbers: NDArray[np.int64]) -> Update:
    """Return the update of a site that takes part in a sum under noise; nothing in it but the body is its own.

    Args:
        numbers: int64 (length,), noise included.
    """
    return Update(np.zeros(0), numbers, 1)


def header_update(contribution: Contribution, counts: NDArray[np.bool_]) -> Update:
    """Return the update of an evaluation or a standardisation, which have a header only.

    Args:
        contribution: as it would be added in the clear.
        counts: which values of its header are counts.

    Raises:
        TrainingError: a value is not finite.
    """
    header = np.concatenate([contribution.header[counts], _limbs(contribution.header[~counts])])
    return Update(header, contribution.body, 1)


def _limbs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all nearest integers, then all rests; together they are the values exactly."""
    if not np.isfinite(values).all():
        raise TrainingError(
            "the contribution of this site holds values that are NaN or infinite; nothing was sent",
            "lower learning_rate, or look for missing or extreme values in the local data",
        )
    integers = np.rint(values)
    return np.concatenate([integers, values - integers])
