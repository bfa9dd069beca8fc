"""An interval for the mean measure of a slice that holds for all slices that were looked at, from counts and sums.

With a chance of about 95 % every interval holds its slice's true mean: by Bonferroni the chance of a mistake is
shared by all slices. Both ends are Student's t. Below the mean the variance is the sample's own, or where that is
smaller the moderated one of Smyth (2004), in which the variance of all records counts as `PRIOR` records: a slice
in which nobody has erred yet does not look certain. Above the mean the variance is no less than that of all
records, because measures lean to the right, and few of them miss what makes the mean high. For the same reason the
lower end is safer than promised, and the upper end gets the smaller share of the mistakes. Slices are ordered by
their lower ends. Bernstein's inequality needs no approximation, and is so wide that it finds nothing among
hundreds of people. A test draws populations. Without scipy, because an aggregator computes it.
"""

from __future__ import annotations

import math
from functools import lru_cache

LOWER_TAIL, UPPER_TAIL = 0.04, 0.01
"""The chance of a mistake at either end, over all slices: one in twenty together."""

PRIOR = 4
"""The variance of all records counts as that of so many of the slice."""

_TINY = 1e-300
_MAX_TERMS = 500


def slice_interval(
    count: int, total: float, squares: float, overall_variance: float, slices: int
) -> tuple[float, float]:
    """Return both ends of an interval for a mean; infinite ends for fewer than two records.

    Args:
        count: records of the slice.
        total: the sum of their measures.
        squares: the sum of the squares.
        overall_variance: of all records.
        slices: how many slices have been looked at, at least 1.
    """
    if count < 2:
        return -math.inf, math.inf
    mean, free = total / count, count - 1
    own = max(squares - total * mean, 0.0) / free
    moderated = (free * own + PRIOR * overall_variance) / (free + PRIOR)
    error = math.sqrt(1.0 / count)
    below, above = (t_quantile(tail / slices, free) * error for tail in (LOWER_TAIL, UPPER_TAIL))
    return mean - below * math.sqrt(max(own, moderated)), mean + above * math.sqrt(max(own, overall_variance))


@lru_cache(maxsize=4096)
def t_quantile(tail: float, free: int) -> float:
    """Return t with P(T > t) = tail for Student's T.

    Args:
        tail: above 0, at most a half.
        free: degrees of freedom, at least 1.
    """
    low, high = 0.0, 1.0
    while _upper_tail(high, free) > tail:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if _upper_tail(middle, free) > tail else (low, middle)
    return high


def _upper_tail(value: float, free: int) -> float:
    """Return P(T > value), half of the regularised incomplete beta function I_x(free / 2, 1 / 2)."""
    return 0.5 * _beta(free / (free + value * value), free / 2.0, 0.5)


def _beta(x: float, a: float, b: float) -> float:
    """Return I_x(a, b) by its continued fraction (Lentz 1976)."""
    if x >= 1.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta(1.0 - x, b, a)
    ratio, inverse = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    product = inverse
    for term in range(1, _MAX_TERMS):
        even = term * (b - term) * x / ((a + 2 * term - 1) * (a + 2 * term))
        odd = -(a + term) * (a + b + term) * x / ((a + 2 * term) * (a + 2 * term + 1))
        step = 1.0
        for coefficient in (even, odd):
            inverse = 1.0 / _away(1.0 + coefficient * inverse)
            ratio = _away(1.0 + coefficient / ratio)
            step *= inverse * ratio
        product *= step
        if abs(step - 1.0) < 1e-15:
            break
    return front * product / a


def _away(value: float) -> float:
    """Return a number that is not 0."""
    return value if abs(value) > _TINY else _TINY
