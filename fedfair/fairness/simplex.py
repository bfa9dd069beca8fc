"""Nearest points with a given sum: on the simplex, and in a box, where adversaries keep their weights.

Projection onto {x : lower <= x <= upper, sum x = total} is clip(v - t, lower, upper) for one number t, because the
multiplier of the sum is the only thing that the entries share. The clipped sum falls with t in straight pieces
between the ends at which an entry begins or ceases to be clipped: bisection finds the piece, and there t is exact.
Source: Held, Wolfe and Crowder 1974, "Validation of subgradient optimization"; Duchi et al. 2008 for the simplex.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError

Vector = NDArray[np.float64]


def project_on_simplex(point: Vector) -> Vector:
    """Return the point of {x >= 0, sum x = 1} nearest to `point`: the same bits on every platform.

    With the k largest entries left above 0, the shift is (their sum - 1) / k; the k-th is above its shift for all
    k up to the right one, and for none after it.

    Args:
        point: finite float64 array (n,), n >= 1.

    Raises:
        LocalProtocolError: an entry is not finite.
    """
    if not np.isfinite(point).all():
        raise LocalProtocolError("an entry of a point that is to be projected on the simplex is not finite")
    # A shift of all entries changes nothing, and keeps what is far above 1 apart from it.
    below = point - float(point.max())
    falling = sorted(below.tolist(), reverse=True)

    def shift(count: int) -> float:
        return (math.fsum(falling[:count]) - 1.0) / count

    # The first entry is always above its shift, by 1.
    count = bisect_left(range(2, len(falling) + 1), True, key=lambda k: falling[k - 1] <= shift(k)) + 1
    nearest: Vector = np.maximum(below - shift(count), 0.0)
    return nearest


def project_on_box(point: Vector, lower: Vector | float, upper: Vector | float, total: float) -> Vector:
    """Return the point of {lower <= x <= upper, sum x = total} nearest to `point`.

    Args:
        point: finite float64 array (n,), n >= 1.
        lower: array (n,) or one number for all.
        upper: array (n,) or one number for all, nowhere below `lower`.
        total: the sum, from that of `lower` to that of `upper`.

    Returns:
        float64 array (n,) in the box; its sum is off by at most a few roundings of its entries.

    Raises:
        LocalProtocolError: the box holds no point with that sum, or an entry is not finite.
    """
    low, high = (np.broadcast_to(np.asarray(end, np.float64), point.shape) for end in (lower, upper))
    slack = 1e-12 * max(1.0, abs(total))
    if not (np.isfinite(point).all() and low.sum() - slack <= total <= high.sum() + slack):
        raise LocalProtocolError(
            f"no point of the box can sum up to {total:g} (its sums run from {low.sum():g} to "
            f"{high.sum():g}), or the point is not finite"
        )
    tops, bottoms = point - high, point - low
    ends = np.unique(np.concatenate([tops, bottoms]))
    # At the first end every entry is at its upper end, at the last one at its lower end.
    place = bisect_left(ends, -total, key=lambda shift: -float(np.clip(point - shift, low, high).sum()))
    place = min(place, len(ends) - 1)
    free = np.zeros(len(point), np.bool_)
    if place > 0:
        free = (tops <= ends[place - 1]) & (bottoms >= ends[place])
    shift = float(ends[place])
    if free.any():
        fixed = math.fsum(np.where(tops >= ends[place], high, low)[~free])
        shift = (math.fsum(point[free]) - (total - fixed)) / int(free.sum())
    nearest: Vector = np.clip(point - shift, low, high)
    return nearest
