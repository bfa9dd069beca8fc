"""Distributionally robust optimisation on pooled records: descend on the records that an adversary picks.

Two adversaries, both over weights w >= 0 of mean 1, whose best answer to given losses is known exactly:

    CVaR:        w_i <= 1 / rho:          the worst share rho counts 1 / rho, the rest nothing
    chi-square:  mean(w_i^2) <= C^2:      w_i = C (l_i - eta)+ / sqrt(mean((l - eta)+^2)),
                 min over eta of C sqrt(mean((l - eta)+^2)) + eta,   C = sqrt(2 (1 / rho - 1)^2 + 1)

Records that the adversary leaves out do not count at all, which is why the mean can suffer. Source: Hashimoto,
Srivastava, Namkoong and Liang 2018, "Fairness Without Demographics in Repeated Loss Minimization", Proposition 2;
Duchi and Namkoong 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.simplex import Vector
from fedfair.fairness.superquantile_weights import TIE, worst_weights
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import adversary_acts, moved
from fedfair.simulation.centralised.pooled import pooled_losses
from fedfair.simulation.clients import AskedSteps, Clients

Reweighting = Callable[[Vector, float], Vector]
"""From losses (n,) and rho to the adversary's weights (n,), of mean 1."""


def cvar_weights(losses: Vector, group_size: float) -> Vector:
    """Return n times the weights of the worst group: 1 / rho in it, 0 outside, array (n,)."""
    count = len(losses)
    return count * worst_weights(losses, np.full(count, 1.0 / count), group_size)


def chi_square_weights(losses: Vector, group_size: float) -> Vector:
    """Return the weights of the chi-square adversary, array (n,) of mean 1.

    Args:
        losses: float64 array (n,), n >= 1, finite, from 0 on.
        group_size: rho in (0, 1]; 1 gives every record the weight 1.
    """
    spread = chi_square_spread(group_size)
    worst: NDArray[np.bool_] = losses >= losses.max() * (1.0 - TIE)
    if spread**2 * worst.mean() >= 1.0:
        # The bound allows all weight on the worst records, so nothing is better than that.
        return np.where(worst, 1.0 / float(worst.mean()), 0.0)
    if spread == 1.0:
        # All records, or a share so near to it that the bound is 1 in floating point: no weight may differ.
        return np.ones_like(losses)
    # The weights do not depend on the unit of the losses, whose squares may be too small for a float.
    scaled: Vector = losses / losses.max()
    excess = np.maximum(scaled - chi_square_threshold(scaled, spread), 0.0)
    # The mean is 1 at the exact threshold; dividing by it takes the last rounding away.
    return excess / float(excess.mean())


def chi_square_spread(group_size: float) -> float:
    """Return C = sqrt(2 (1 / rho - 1)^2 + 1)."""
    return math.sqrt(2.0 * (1.0 / group_size - 1.0) ** 2 + 1.0)


def chi_square_threshold(losses: Vector, spread: float) -> float:
    """Return the eta at which C sqrt(mean((l - eta)+^2)) + eta is least, by bisection on its slope.

    Below every loss the slope vanishes where mean(l) - eta = deviation / sqrt(C^2 - 1); that or the smallest
    loss is therefore a lower end. At the greatest loss the slope is positive unless the worst records hold 1 /
    C^2 of all.

    Args:
        losses: float64 array (n,), not all within the worst 1 / C^2.
        spread: C, above 1.
    """

    def falls(level: float) -> bool:
        excess = np.maximum(losses - level, 0.0)
        return spread * float(excess.mean()) > math.sqrt(float((excess**2).mean()))

    lowest = float(losses.mean()) - float(losses.std()) / math.sqrt(spread**2 - 1.0)
    return _bisect(falls, min(float(losses.min()), lowest), float(losses.max()))


def _bisect(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest double at which `is_below` is false, given that it is true at `low` and false at `high`.

    Halves the interval until no double lies between its ends, which takes at most about a hundred steps where the
    ends are of the size of the answer.
    """
    while low < (middle := low + (high - low) / 2) < high:
        if is_below(middle):
            low = middle
        else:
            high = middle
    return high


class WorstReweighting:
    """The rounds of DRO: the adversary answers the broadcast model, and the learner descends on its answer.

    Args:
        rule: the adversary.
        group_size: rho, in (0, 1].
        interval: rounds from one of the adversary's answers to the next, at least 1.
    """

    def __init__(self, rule: Reweighting, group_size: float, interval: int = 1) -> None:
        self._rule = rule
        self._group_size = group_size
        self._interval = interval
        self._weights: Vector | None = None

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Make one round on the pooled records."""
        if self._weights is None or adversary_acts(number, self._interval):
            self._weights = self._rule(pooled_losses(cohort, model), self._group_size)
        change = cohort.changes(model, AskedSteps(number, record_weights=[self._weights]))[0]
        return moved(model, change)
