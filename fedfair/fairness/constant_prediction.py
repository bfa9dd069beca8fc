"""The best that a prediction without features can do: one distribution over the classes, the same for all records.

A model that loses to it has learnt nothing that serves its aim. With class shares s, group size rho and tradeoff
epsilon, the best constant prediction minimises (1 - epsilon) CVaR_rho + epsilon mean of the cross-entropy. By the
dual form of CVaR (`cvar.py`) and the minimax theorem this is the greatest entropy of a distribution v with

    epsilon s_k  <=  v_k  <=  epsilon s_k + (1 - epsilon) s_k / rho        for every class k,

because against fixed weights v the best prediction is v itself, at the price of its entropy. Entropy is greatest
where v is as even as its bounds allow: v_k = clip(t, lower_k, upper_k) for one number t. At epsilon = 1 it is the
entropy of the shares; at epsilon = 0 and rho at most the smallest share times the classes, log(classes). No torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError, PlanError
from fedfair.fairness.simplex import project_on_box


def best_constant_risk(counts: Sequence[int], group_size: float, tradeoff: float = 0.0) -> float:
    """Return the least (1 - tradeoff) CVaR + tradeoff mean that one prediction for all records can have, in nats.

    Args:
        counts: records of each class, at least one record in all; a class may have none.
        group_size: rho, in (0, 1].
        tradeoff: epsilon, in [0, 1]; 0 is the risk of the worst group, 1 the mean.

    Returns:
        A loss from 0 to log(classes); the rounding of a few float64 operations is its only error.

    Raises:
        DataError: there are no records, or a count is negative.
        PlanError: group_size or tradeoff is out of range.
    """
    shares = _shares(counts, group_size, tradeoff)
    lower = tradeoff * shares
    # No weight is above 1, and no bound needs to be: a tiny group size would overflow.
    upper = np.minimum(lower + (1.0 - tradeoff) * shares / group_size, 1.0)
    weights = project_on_box(np.zeros(len(shares)), lower, upper, 1.0)
    told = weights[weights > 0.0]
    return max(0.0, -float((told * np.log(told)).sum()))


def base_rate_risk(counts: Sequence[int], group_size: float) -> float:
    """Return the mean loss of the worst group where everybody is given the shares of the classes, in nats.

    At group_size 1 it is the entropy of the shares, which is the least mean loss of one prediction for all.

    Args:
        counts: as for `best_constant_risk`.
        group_size: rho, in (0, 1].

    Raises:
        DataError: there are no records, or a count is negative.
        PlanError: group_size is out of range.
    """
    shares = _shares(counts, group_size, 0.0)
    told = np.sort(shares[shares > 0.0])
    # The rarest class has the highest loss; the last class of the worst group counts with its part in it.
    before = np.concatenate([[0.0], np.cumsum(told)[:-1]])
    inside = np.clip(group_size - before, 0.0, told)
    return max(0.0, -float(inside @ np.log(told)) / group_size)


def majority_share(counts: Sequence[int]) -> float:
    """Return the accuracy of naming the most frequent class for all records, in (0, 1].

    Args:
        counts: records of each class, at least one record in all.

    Raises:
        DataError: there are no records.
    """
    if sum(counts) <= 0:
        raise DataError(f"the classes have {list(counts)} records, so none is the most frequent")
    return max(counts) / sum(counts)


def _shares(counts: Sequence[int], group_size: float, tradeoff: float) -> NDArray[np.float64]:
    """Return the share of each class, after a look at everything that is given."""
    held = np.array(counts, np.float64)
    if not held.size or held.min() < 0.0 or not held.sum() > 0.0:
        raise DataError(f"the classes have {list(counts)} records, which no records have")
    if not (0.0 < group_size <= 1.0 and 0.0 <= tradeoff <= 1.0):
        raise PlanError(f"group size {group_size} is outside (0, 1], or tradeoff {tradeoff} outside [0, 1]")
    shares: NDArray[np.float64] = held / held.sum()
    return shares
