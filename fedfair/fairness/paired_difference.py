"""Says by how much one model serves the worst group otherwise than another, judged on the same records.

CVaR is the mean of c + max(loss - c, 0) / rho at its own threshold c (Rockafellar and Uryasev 2000, Theorem 1). To
first order it varies with the records as the mean of these terms does at a fixed c, because c is a minimum. So the
difference of two models is a mean of differences, one for each record, and has the standard error of one. What
both models find hard in the same records takes no part in it. No torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.cvar import optimal_threshold, tail_count

LIKELY = 1.959964
"""So many standard errors on both sides hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The difference of two means over the same records.

    Attributes:
        value: the second model's less the first one's.
        low: the lower end of an interval that holds the difference over all people with about 95 %, where the
            records are drawn from them; infinite for a single record.
        high: the upper end.
    """

    value: float
    low: float
    high: float


def paired_difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> PairedDifference:
    """Return the difference of two means over the same records, such as `worst_group_terms` or 0 and 1.

    Args:
        first: a number for each record under the first model, (n,), n >= 1.
        second: the same under the second one, in the same order.
    """
    apart = second - first
    value = float(apart.mean())
    if len(apart) < 2:
        return PairedDifference(value, -math.inf, math.inf)
    reach = LIKELY * float(apart.std(ddof=1)) / math.sqrt(len(apart))
    return PairedDifference(value, value - reach, value + reach)


def worst_group_terms(losses: NDArray[np.float64], size: float) -> NDArray[np.float64]:
    """Return one number for each record, (n,), whose mean is the mean loss of the worst group.

    Args:
        losses: (n,), n >= 1, finite and not negative.
        size: rho, above 0 to 1; at 1 the terms are the losses.
    """
    threshold = optimal_threshold(losses, size)
    share = tail_count(len(losses), size) / len(losses)
    terms: NDArray[np.float64] = threshold + np.maximum(losses - threshold, 0.0) / share
    return terms
