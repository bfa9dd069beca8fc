"""The threshold between answers in a set and answers outside, from a histogram of how well true answers fit.

The histogram counts held-out records by how well the model fits their true answer, the worst bin first. A
threshold is an edge: of records in bins before it the true answer is outside of its set. Let m be the number that
`Promise.allowed` gives. The threshold is the best edge k with (records before k) + 1 <= m.

Proof of the promise. Let k* be the best edge with at most m of all n + 1 people before it, the new one included.
If the new person is before k, then at most m are, so k <= k*, and the new person is before k*. People are
exchangeable and k* treats them alike, so P(new before k) <= P(new before k*) <= m / (n + 1) <= alpha.

A bin may hold many records. All of those in the bin after the edge have their answer in their set. So the sets of
a histogram contain those of the records themselves, whose threshold, the m-th worst record, lies in that bin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.conformal.promise import Promise


def bins_missed(worst_first: NDArray[np.integer], allowed: int) -> int:
    """Return how many bins are before the threshold.

    Args:
        worst_first: int array (bins,), held-out records by bin, from where the true answer fits worst.
        allowed: m, from 1 to the number of records.
    """
    return int(np.searchsorted(np.cumsum(worst_first), allowed, side="left"))


def worst_kept(fits: NDArray[np.float64], promise: Promise) -> float:
    """Return the fit of the worst record whose answer is in its set: the m-th worst, of records without bins.

    Args:
        fits: (n,), how well the model fits each held-out record's true answer, higher where it fits better.
        promise: of the sets.

    Raises:
        ValueError: the records are too few for the promise.
    """
    allowed = promise.allowed(len(fits))
    if not allowed:
        raise ValueError(f"this promise takes {promise.needed(1)} held-out records, and there are {len(fits)}")
    return float(np.partition(fits, allowed - 1)[allowed - 1])
