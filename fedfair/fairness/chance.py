"""How far a model may fall behind what could be had without it by chance alone, where its probabilities are right.

The worst group is chosen after the outcomes are known, so it holds the unlucky: even the true probabilities of
people without any groups have a worst tenth that loses more than log(classes). A verdict must not blame them.
Decides what chance explains. What a verdict makes of it is `fedfair.results.verdict`'s business.

Everything but the last function is a likelihood ratio. A record whose outcome y has the probability p_y loses
-log p_y. Take any other probabilities r that are fixed before the outcomes. Where the outcomes are drawn with p,
the product of r_y / p_y over all records has the mean 1. So by Markov's inequality it exceeds 1 / DELTA with a
probability of DELTA at most: r loses log(1 / DELTA) nats less than p, over all records together, hardly ever.

One such r is the model itself, mixed with the uniform guess: (1 - rho) p + rho / classes. It loses

    -log((1 - rho) exp(-l) + rho exp(-guess))

where the model loses l, so a histogram of losses tells its mean. This is concave in l, so the mean losses of bins
give at least the truth: the mixture is never taken for better than it is. The mixture is better where about
rho / 2 of all people or more are served as badly as by guessing, or worse, and the model is sure of them. No
torch, no scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError

DELTA = 1e-4
"""A model with the right probabilities is behind by more than chance less than once in ten thousand times."""

Array = NDArray[np.float64]


def hedged_loss(losses: Array, counts: Array, guess: float, share: float) -> float:
    """Return the mean loss of a model that is mixed with the uniform guess, or a little more.

    Args:
        losses: float64 array (m,), in nats, of single records or the means of bins; finite and not negative.
        counts: float64 array (m,), how many records have each; at least one record in all.
        guess: the loss of the uniform guess, in nats.
        share: of the guess in the mixture (rho), in (0, 1].

    Raises:
        DataError: there are no records.
    """
    records = float(counts.sum())
    if not records > 0.0:
        raise DataError("there are no losses, so no model to mix with the guess")
    mixed = (1.0 - share) * np.exp(-losses) + share * math.exp(-guess)
    # The sum is the same in any order of the records.
    return -math.fsum((counts * np.log(mixed)).tolist()) / records


def mean_by_chance(records: int) -> float:
    """Return by how much a mean loss in nats exceeds that of other, fixed probabilities by chance, at most.

    Args:
        records: how many, at least 1.
    """
    return math.log(1.0 / DELTA) / records


def base_rate_by_chance(counts: Sequence[int]) -> float:
    """Return the same for the shares of the classes among the very records, which are not fixed beforehand.

    The mixture of Krichevsky and Trofimov is fixed beforehand, and it loses at most (classes - 1) / 2 log n +
    log(classes) nats more than the shares that came true.

    Args:
        counts: records of each class, at least one record in all.
    """
    records, classes = sum(counts), len(counts)
    return mean_by_chance(records) + (0.5 * (classes - 1) * math.log(records) + math.log(classes)) / records


def fewer_right_by_chance(named: int) -> float:
    """Return how many fewer records are right by chance than by always naming one class, at most.

    A record for which the model names another class counts 1, 0 or -1. Its mean is 0 or more where the model is
    right about it, because the class that it names is the likeliest. By Hoeffding's inequality.

    Args:
        named: records for which the model may name another class.
    """
    return math.sqrt(2.0 * named * math.log(1.0 / DELTA))
