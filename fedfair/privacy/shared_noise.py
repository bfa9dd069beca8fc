"""Noise for single records in one sum, of which every site adds a share: how much there is, and what it is worth.

A record is a vector of whole numbers. It has at most one number other than 0 in each of m parts (a histogram and
the number of records are a part, a mean is two: how many values there are, and their sum), and none is beyond s in
magnitude. So whatever the record, its L1 norm is at most D1 = m s, and its squared L2 norm at most D2^2 = m s^2.
Both are exact, because nothing is rounded after it, and both are attained. Numbers that are told apart by a
further column are no further parts: a record has them in one of its groups. The unit is a record that is zeroed
out (`statement.ZERO_OUT`); the number of records is one of the numbers, so that taking a record away is the same.

Every site adds Sk(v) to each number, so that the h honest shares of any opened sum add up to Sk(mu), mu = h v. By
the theorem of `skellam.py`, for every whole order a >= 2,

    RDP(a) <= a D2^2 / (2 mu) + ((2 a - 1) D2^2 + 6 D1) / (4 mu^2)
           <= (a / 2) (D2^2 / mu + D2^2 / mu^2 + 3 D1 / (2 mu^2)) = a / (2 z^2)

because 2 a - 1 <= 2 a and 1 <= a / 2. That is the divergence of the Gaussian mechanism of noise multiplier z at
every such order, so that by these orders releases of both kinds compose (`accounting.py`). No torch.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import PlanError
from fedfair.privacy.accounting import ORDERS
from fedfair.privacy.releases import SharedNoiseRelease
from fedfair.privacy.skellam import MAX_SHARE_VARIANCE, converted, noise_share, tail

LEAST_SCALE, GREATEST_SCALE = 1 << 4, 1 << 12
"""Steps of one record: a value of a mean is rounded to half a step, and a share of noise is in steps."""

_MARGIN = 1.0 - 1e-9
"""Of epsilon: far more than the rounding of what computes it, so that no site charges more than the plan says."""

_MAX_MULTIPLIER = 2.0**24
_HALVINGS = 80


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """The noise of one sum; every party computes it from the plan.

    Attributes:
        parts: in each of which a record has at most one number (m), at least 1.
        scale: the greatest magnitude of that number, in steps (s).
        share_variance: of one site's noise on every number (v), in squared steps.
        shares: how many honest shares are in any opened sum (h), at least 1.
    """

    parts: int
    scale: int
    share_variance: int
    shares: int

    @property
    def multiplier(self) -> float:
        """Return z: the divergence of a record is at most that of a Gaussian mechanism with this multiplier."""
        squared, variance = self.parts * self.scale**2, self.share_variance * self.shares
        cost = Fraction(squared, variance) + (squared + Fraction(3, 2) * self.parts * self.scale) / variance**2
        return math.sqrt(1 / cost)

    def share(self, length: int, seed: int) -> NDArray[np.int64]:
        """Return one site's share of the noise, int64 (length,).

        Args:
            length: numbers of the sum.
            seed: known to this site alone, and used once.
        """
        return noise_share(length, self.share_variance, seed)

    @property
    def release(self) -> SharedNoiseRelease:
        """Return what one site releases about its records in one attempt at the sum."""
        return SharedNoiseRelease("statistics", self.multiplier, 1)

    def deviation(self, members: int) -> float:
        """Return the standard deviation of the noise on a number of a sum over so many sites, in records."""
        return math.sqrt(members * self.share_variance) / self.scale

    def reach(self, members: int, chance: float) -> float:
        """Return what the noise of a sum over so many sites exceeds with at most this chance, in records."""
        return tail(members * self.share_variance, 2.0 * chance) / self.scale


@functools.lru_cache(256)
def least_multiplier(epsilon: float, delta: float) -> float:
    """Return about the least noise multiplier at which one sum costs no more than epsilon.

    Args:
        epsilon: above 0.
        delta: in (0, 1).
    """
    low, high = 0.0, _MAX_MULTIPLIER
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if middle > 0.0 and multiplier_epsilon(middle, delta) <= epsilon * _MARGIN:
            high = middle
        else:
            low = middle
    return high


def multiplier_epsilon(multiplier: float, delta: float) -> float:
    """Return what one sum of a noise multiplier costs at delta, by its Renyi divergences.

    Args:
        multiplier: above 0.
        delta: in (0, 1).
    """
    return max(0.0, min(converted(order, order / (2.0 * multiplier**2), delta) for order in ORDERS))


def shared_noise(parts: int, epsilon: float, delta: float, shares: int) -> SharedNoise:
    """Return the noise with which one sum costs a record no more than epsilon, in the finest steps.

    Args:
        parts: in each of which a record has at most one number.
        epsilon: above 0.
        delta: in (0, 1).
        shares: honest shares in any opened sum, at least 1.

    Raises:
        PlanError: a site's share would be wider than its sampler is exact.
    """
    wanted = least_multiplier(epsilon, delta)
    scale = GREATEST_SCALE
    while scale >= LEAST_SCALE:
        found = SharedNoise(parts, scale, _share_variance(parts, scale, wanted, shares), shares)
        if found.share_variance <= MAX_SHARE_VARIANCE:
            return found
        scale //= 2
    raise PlanError(
        f"statistics.epsilon: is {epsilon:g} for {parts} numbers of a record, which takes more noise than can be "
        "drawn exactly",
        "ask for fewer columns, or raise epsilon",
    )


def _share_variance(parts: int, scale: int, multiplier: float, shares: int) -> int:
    """Return the least share that gives the multiplier: 1 / z^2 >= a / mu + b / mu^2 solved for mu, rounded up."""
    first = parts * scale**2
    second = first + 1.5 * parts * scale
    variance = multiplier**2 * (first + math.sqrt(first**2 + 4.0 * second / multiplier**2)) / 2.0
    # One step more covers the float64 arithmetic of this line.
    return math.ceil(variance * (1.0 + 1e-12) / shares) + 1
