"""Clopper and Pearson's interval, above all its upper end, without scipy: anybody may verify a certificate.

Decides which chance u makes `count` successes or fewer as rare as `level` in n = `records` trials. The tail is

    P(X <= c) = P(X = c) (1 + r_c + r_c r_(c-1) + ...),   r_j = j (1 - u) / ((n - j + 1) u),

whose ratios fall with j, so what is left after `MAX_TERMS` terms is at most a geometric series: the tail is then
overstated, and u with it. log P(X <= c) is concave in u, the complement of a beta distribution function. So
Newton's method, once beyond the root, comes back to it from above. P(X = c) is Loader's saddle-point form (2000,
"Fast and Accurate Computation of Binomial Probabilities"), which loses no digits where n is large.
"""

from __future__ import annotations

import functools
import math

import numpy as np

MAX_TERMS = 1 << 15
_SMALL = 16
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
_MAX_STEPS = 100
_CLOSE = 1e-15


@functools.lru_cache(4096)
def upper_chance(count: int, records: int, level: float) -> float:
    """Return u with P(X <= count) = level for X binomial of `records` trials of chance u, or slightly more.

    Args:
        count: c, from 0 to records - 1.
        records: n, at least 1, at most 2^50.
        level: in (0, 1/2].

    Returns:
        u in (0, 1]; relative error below 1e-11 up to 10^8 records, and never below the truth by more than that.
    """
    chance = (count + 1.0) / (records + 1.0)
    for _ in range(_MAX_STEPS):
        series = _series(count, records, chance)
        excess = _log_probability(count, records, chance) + math.log(series) - math.log(level)
        slope = (records - count) / ((1.0 - chance) * series)
        # A step beyond 1 would leave the range of a chance.
        following = min(chance + excess / slope, (1.0 + chance) / 2.0)
        if abs(following - chance) <= _CLOSE * chance:
            return following
        chance = following
    return chance


def chance_interval(count: int, records: int, tail: float) -> tuple[float, float]:
    """Return the ends of Clopper and Pearson's interval for a chance, each wrong in `tail` of cases at most.

    It holds for the mean of chances that differ between records, too: such a count strays less (Hoeffding 1956).

    Args:
        count: successes, from 0 to records.
        records: at least 1.
        tail: in (0, 1/2].
    """
    lower = 1.0 - upper_chance(records - count, records, tail) if count else 0.0
    return lower, upper_chance(count, records, tail) if count < records else 1.0


def _series(count: int, records: int, chance: float) -> float:
    """Return P(X <= count) / P(X = count), or an upper bound of it."""
    terms = min(count, MAX_TERMS)
    places = count - np.arange(terms, dtype=np.float64)
    ratios = places * (1.0 - chance) / ((records - places + 1.0) * chance)
    if not terms:
        return 1.0
    products = np.cumprod(ratios)
    rest, left = 0.0, count - terms
    if left:
        following = left * (1.0 - chance) / ((records - left + 1.0) * chance)
        rest = products[-1] * following / (1.0 - following) if following < 1.0 else math.inf
    return float(1.0 + products.sum() + rest)


def _log_probability(count: int, records: int, chance: float) -> float:
    """Return log P(X = count)."""
    if count == 0:
        return records * math.log1p(-chance)
    others = records - count
    saddle = _deviance(count, records * chance) + _deviance(others, records * (1.0 - chance))
    errors = _stirling_error(records) - _stirling_error(count) - _stirling_error(others)
    return errors - saddle + 0.5 * math.log(records / (count * others)) - _HALF_LOG_TAU


def _stirling_error(number: int) -> float:
    """Return log(n!) less Stirling's formula sqrt(2 pi n) (n / e)^n, for n from 1 on."""
    if number < _SMALL:
        return math.lgamma(number + 1.0) - (number + 0.5) * math.log(number) + number - _HALF_LOG_TAU
    square = float(number) * number
    inner = 1 / 1260 - (1 / 1680 - (1 / 1188 - 691 / 360360 / square) / square) / square
    return (1 / 12 - (1 / 360 - inner / square) / square) / number


def _deviance(found: float, expected: float) -> float:
    """Return found log(found / expected) + expected - found, without cancellation where the two are near."""
    difference, both = found - expected, found + expected
    if abs(difference) >= 0.1 * both:
        return found * math.log(found / expected) - difference
    part = difference / both
    total, power, odd = difference * part, 2.0 * found * part, 1
    while True:
        power *= part * part
        odd += 2
        following = total + power / odd
        if following == total:
            return total
        total = following
