"""How sharply each smoothed plus function bends, and the largest stable step of the threshold that follows.

The functions themselves are `smoothing.py`'s. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

SMOOTHNESS: Mapping[str, float] = MappingProxyType(
    {"softplus": 0.25, "zang": 1.0, "quadratic": 0.5, "chks": 0.25, "gaussian": 1.0 / math.sqrt(2.0 * math.pi)}
)
"""The largest second derivative of each at gamma = 1; at another gamma it is divided by gamma."""

SYNONYMS: Mapping[str, str] = MappingProxyType({"soft-relu": "softplus"})
"""Other names that a plan may use; `soft-relu` is what the paper calls softplus."""


def smoothness_of(name: str, gamma: float) -> float:
    """Return the largest second derivative of a smoothed plus function that a plan names."""
    return SMOOTHNESS[SYNONYMS.get(name, name)] / gamma


def stable_threshold_rate(worst_group_size: float, tradeoff: float, smoothness: float) -> float:
    """Return the largest learning rate with which plain descent on the threshold cannot overshoot.

    The objective's curvature in c is at most (1 - eps) / rho times the smoothness of s; this is its
    inverse: 4 gamma rho / (1 - eps) with softplus. Infinite where the objective is the plain mean.
    """
    if worst_group_size == 1.0 or tradeoff == 1.0:
        return math.inf
    return worst_group_size / ((1.0 - tradeoff) * smoothness)
