"""Skellam noise: what it is worth, how far it reaches, and how one share of it is drawn.

Sk(mu) is the difference of two independent Poisson numbers of mean mu / 2: whole numbers of mean 0 and variance
mu. The sum of shares is Sk of the sum of their variances, exactly, so that every site can add a share of its own
and no party needs to be trusted with the noise. For a vector of whole numbers of which one collaborator's part has
norms of at most D1 and D2, the sum with Sk(mu) on every entry is Renyi differentially private, with

    RDP(alpha) <= alpha D2^2 / (2 mu) + min( ((2 alpha - 1) D2^2 + 6 D1) / (4 mu^2),  3 D1 / (2 mu) )

for every whole alpha > 1: the Gaussian mechanism of the same variance and a term that is smaller by about a factor
mu. Source: Agarwal, Kairouz, Liu 2021, "The Skellam Mechanism for Differentially Private Federated Learning",
Theorem 3.5 (there scaled by s, Corollary 4.1). More variance is never worth less: it is independent noise on top.
Whole numbers only, up to the sampler: numpy's Poisson numbers, whose acceptance test is computed in float64. No
torch.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import PrivacyError
from fedfair.privacy.releases import SkellamRelease

ORDERS = (*range(2, 64), *range(64, 256, 8), *(1 << power for power in range(8, 17)))
"""Whole Renyi orders at which releases are composed; the best one is taken."""

MAX_SHARE_VARIANCE = 1 << 28
"""The sampler weighs numbers near k by k log(k) in float64: at a mean of 2^27 its last bit is worth 5e-7."""


def renyi_divergence(order: int, release: SkellamRelease) -> float:
    """Return the bound on the Renyi divergence that one collaborator's part can cause in all sums together.

    Args:
        order: alpha, a whole number above 1.
        release: the sums.
    """
    squared, mu = release.delta_2**2, release.mu
    discrete = min(
        ((2 * order - 1) * squared + 6 * release.delta_1) / (4 * mu**2),
        3 * release.delta_1 / (2 * mu),
    )
    return release.count * (order * squared / (2 * mu) + discrete)


def skellam_epsilon(releases: Sequence[SkellamRelease], delta: float) -> float:
    """Return an epsilon for which the releases together are (epsilon, delta)-DP; nothing costs 0.

    Args:
        releases: everything that was let out about the same collaborator.
        delta: in (0, 1).

    Raises:
        PrivacyError: delta is outside (0, 1).
    """
    if not 0.0 < delta < 1.0:
        raise PrivacyError(
            f"delta is {delta}, outside (0, 1)", "use 1e-5, or less than one over the collaborators"
        )
    if not releases:
        return 0.0
    spent = {order: sum(renyi_divergence(order, release) for release in releases) for order in ORDERS}
    return max(0.0, min(converted(order, divergence, delta) for order, divergence in spent.items()))


def converted(order: int, divergence: float, delta: float) -> float:
    """Return an epsilon at delta that a bound on the Renyi divergence of one order implies.

    Source: Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", Proposition 12. Where
    delta^2 > 1 - exp(-divergence), delta alone covers it, by the inequality of Bretagnolle and Huber.
    """
    if delta**2 + math.expm1(-divergence) > 0.0:
        return 0.0
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def tail(variance: int, probability: float) -> int:
    """Return a size that Sk(variance) exceeds in magnitude with at most this probability.

    Chernoff: log E exp(l X) = mu (cosh l - 1), and l = asinh(t / mu) is best, so that
    P(|X| >= t) <= 2 exp(mu (sqrt(1 + (t / mu)^2) - 1) - t asinh(t / mu)).

    Args:
        variance: mu, at least 1.
        probability: in (0, 1).
    """

    def is_enough(size: int) -> bool:
        return _log_tail(size, variance) <= math.log(probability)

    beyond = 1
    while not is_enough(beyond):
        beyond *= 2
    return bisect_left(range(beyond), True, lo=beyond // 2, key=is_enough)


def _log_tail(size: int, variance: int) -> float:
    ratio = size / variance
    # sqrt(1 + x^2) - 1 without losing a small x.
    root = ratio**2 / (math.sqrt(1.0 + ratio**2) + 1.0)
    return math.log(2.0) + variance * root - size * math.asinh(ratio)


def noise_share(length: int, variance: int, seed: int) -> NDArray[np.int64]:
    """Return independent Sk(variance) numbers, int64 (length,).

    Args:
        length: how many.
        variance: v, from 1 to `MAX_SHARE_VARIANCE`.
        seed: a whole number from 0 on, known to this site alone and used once.
    """
    source = np.random.Generator(np.random.PCG64DXSM(seed))
    share: NDArray[np.int64] = source.poisson(variance / 2, length)
    return share - source.poisson(variance / 2, length)
