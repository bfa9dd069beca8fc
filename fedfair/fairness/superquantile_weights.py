"""Computes an adversary's weights on the worst share of a whole: the dual of the superquantile.

    max over pi of sum pi_k F_k   subject to   0 <= pi_k <= p_k / share,   sum pi_k = 1

Parts above the quantile of level 1 - share count fully; those at the quantile share what is left, in proportion to
their masses, so that the maximum is the fractional superquantile and the weights are a subgradient of it, however
many parts tie. Source: Rockafellar and Uryasev 2000; for collaborators as parts, the dual form of the objective of
Laguel, Pillutla, Malick and Harchaoui 2021 (CISS).
"""

from __future__ import annotations

import numpy as np

from fedfair.errors import LocalProtocolError
from fedfair.fairness.simplex import Vector

TIE = 1e-12
"""Values this close, relative to the largest, count as equal."""


def worst_weights(values: Vector, masses: Vector, share: float) -> Vector:
    """Return the weights (pi) of parts: float64 array (n,), summing to 1.

    Args:
        values: array (n,), finite.
        masses: array (n,), positive, summing to 1 (p).
        share: how much of the whole is picked, in (0, 1].

    Raises:
        LocalProtocolError: a value is not finite, or the share is outside its range.
    """
    if not (0.0 < share <= 1.0 and np.isfinite(values).all()):
        raise LocalProtocolError(f"a worst share of {share} of values that must be finite cannot be picked")
    order = np.argsort(-values)
    reached = np.cumsum(masses[order])
    # The last part is in reach even where the masses sum to a little less than the share.
    quantile = values[order[min(int(np.searchsorted(reached, share)), len(values) - 1)]]
    # Means of equal losses over different numbers of records differ in their last digit; they tie all the same.
    slack = TIE * float(np.abs(values).max())
    above, level = values > quantile + slack, np.abs(values - quantile) <= slack
    weights = np.where(above, masses / share, 0.0)
    weights[level] = masses[level] / masses[level].sum() * (1.0 - weights.sum())
    return weights
