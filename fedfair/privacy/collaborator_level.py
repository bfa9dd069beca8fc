"""Noises one collaborator's part of a masked sum, so that the sum does not tell whether its data were in it.

Clip the whole vector to the norm C, multiply by a scale, round to whole numbers, add a share of noise:

    x = round(s clip_C(v)) + Sk(mu / h),     mu = h ceil((z D2)^2 / h)

with z the noise multiplier and h the fewest honest shares that are in any opened sum (h_min = fewest survivors
minus colluders). Whoever survives, the noise that the aggregator and its colluders do not know has a variance of
mu at least. Rounding to nearest moves a vector by at most sqrt(d) / 2, so D2 exceeds s C + sqrt(d) / 2,
and the norm of what is sent is checked in whole numbers. Everything after rounding is exact.

The scale is the largest with which (a) the sum of all vectors and of all shares fits the ring, but for a stated
probability over a whole run, and (b) a share is no wider than its sampler is exact. A sum that wraps round would
be wrong, and no less private. Decides no protocol and knows no plan; what the noise is worth is `skellam.py`'s.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError, PlanError
from fedfair.privacy.releases import SkellamRelease
from fedfair.privacy.skellam import MAX_SHARE_VARIANCE, noise_share, tail

OVERFLOW_PROBABILITY = 2.0**-40
"""Of any entry of any sum of a run wrapping round the ring."""

MAX_ROUNDING = 0.1
"""Share of D2 that rounding may take: beyond it, noise would be spent on the grid instead of the collaborators."""


@dataclass(frozen=True, slots=True)
class NoisedSums:
    """The noise of one run's sums; every party computes it from the plan.

    Attributes:
        length: entries of a vector (d).
        clip: largest L2 norm of a vector that counts in full (C), in units of the vector.
        bound: D2, largest L2 norm of the whole numbers that stand for a vector.
        share_variance: of every entry of one collaborator's noise (v), in squared steps.
        shares: how many honest shares are in every sum at least (h_min).
    """

    length: int
    clip: float
    bound: int
    share_variance: int
    shares: int

    @property
    def scale(self) -> float:
        """Steps of the ring in one unit of a vector (s)."""
        # One step less than rounding leaves: it covers the float64 arithmetic before rounding, many times over.
        return (self.bound - math.sqrt(self.length) / 2 - 1) / self.clip

    @property
    def variance(self) -> int:
        """Least variance of the noise on an entry of a sum that colluders do not know (mu), in squared steps."""
        return self.share_variance * self.shares

    @property
    def greatest_l1(self) -> float:
        """D1: whole numbers with an L2 norm of D2 have an L1 norm of at most min(sqrt(d) D2, D2^2)."""
        return min(math.sqrt(self.length) * self.bound, float(self.bound) ** 2)

    def release(self, count: int) -> SkellamRelease:
        """Return what `count` training sums release about one collaborator."""
        return SkellamRelease("training", self.greatest_l1, float(self.bound), float(self.variance), count)

    def whole_numbers(self, vector: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the whole numbers that stand for a vector, int64 (length,), with an L2 norm of at most `bound`.

        A vector with a NaN or an infinity counts as zeros: leaving the sum because of one's data would tell of
        them.

        Raises:
            LocalProtocolError: the vector has another length.
        """
        if vector.shape != (self.length,):
            raise LocalProtocolError(f"a vector of shape {vector.shape}, the noised sum needs ({self.length},)")
        values = vector.astype(np.float64)
        largest = float(np.abs(values).max(initial=0.0))
        if not (math.isfinite(largest) and largest > 0.0):
            return np.zeros(self.length, np.int64)
        # Divided by the largest entry first, no square overflows and no norm is lost to underflow.
        values /= largest
        norm = float(np.linalg.norm(values))
        values *= self.scale * min(largest, self.clip / norm)
        rounded = np.rint(values).astype(np.int64)
        if int(np.dot(rounded, rounded)) > self.bound**2:
            raise LocalProtocolError(f"a clipped and rounded vector has a norm above {self.bound}")
        return rounded

    def contribution(self, vector: NDArray[np.floating], seed: int) -> NDArray[np.int64]:
        """Return what one collaborator adds: the whole numbers and a share of noise, int64 (length,).

        Args:
            vector: float array (length,).
            seed: of the noise; known to this site alone, and used once.
        """
        return self.whole_numbers(vector) + noise_share(self.length, self.share_variance, seed)


def noised_sums(
    *,
    length: int,
    clip: float,
    noise_multiplier: float,
    members: int,
    shares: int,
    ring_bits: int,
    sums: int,
) -> NoisedSums:
    """Return the finest way to noise the sums of a run that fits the ring and the sampler.

    Args:
        length: entries of a vector, at least 1.
        clip: C, positive.
        noise_multiplier: z, deviation of the noise in units of what one collaborator can change; positive.
        members: most collaborators in a sum (n).
        shares: fewest honest noise shares in a sum (h_min), at least 1.
        ring_bits: bits of an entry on its way (b).
        sums: how many sums the run may have.

    Raises:
        PlanError: there is no honest share, or no bound for which the rounding stays small beside the clip.
    """
    if shares < 1:
        raise PlanError(
            f"privacy.collaborator_level: {shares} honest noise shares are in a sum",
            "raise federation.min_collaborators, or lower secure_aggregation.colluders",
        )
    room = (1 << (ring_bits - 1)) - 1
    probability = OVERFLOW_PROBABILITY / (length * sums)

    def share_variance(bound: int) -> int:
        return math.ceil(Fraction(noise_multiplier) ** 2 * bound * bound / shares)

    def fits(bound: int) -> bool:
        variance = share_variance(bound)
        if variance > MAX_SHARE_VARIANCE or members * bound > room:
            return False
        return members * bound + tail(members * variance, probability) <= room

    bound = bisect_left(range(1, room + 1), True, key=lambda bound: not fits(bound))
    if math.sqrt(length) / 2 + 1 > MAX_ROUNDING * bound:
        raise PlanError(
            f"privacy.collaborator_level: rounding is too coarse for a vector of {length} entries: {members} "
            f"clipped vectors with their noise leave room for a norm of {bound} steps in {ring_bits} bits, and "
            f"rounding moves one by up to {math.sqrt(length) / 2:.4g}",
            "raise secure_aggregation.ring_bits, choose a smaller model, or lower noise_multiplier",
        )
    return NoisedSums(length, clip, bound, share_variance(bound), shares)
