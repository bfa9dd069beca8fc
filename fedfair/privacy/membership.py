"""How well a score tells training records from held-out ones: ROC, AUC, and rates found with exact intervals.

The attack says "member" of every record whose score is at most some number (Yeom et al. 2018, "Privacy Risk in
Machine Learning"; Carlini et al. 2022, "Membership Inference Attacks From First Principles", who ask for the true
positive rate where false ones are rare). All that is known are counts in bins of the score, lowest first, so the
attack's numbers are the upper edges of bins.

Of an edge, F is the chance that it calls a held-out record a member, and T that it finds a training record. The
held-out records are a sample. Let S_k be the k-th lowest of m held-out scores: P(S <= S_k) is Beta(k, m - k + 1)
where scores are continuous, and with ties P(S < S_k) is no greater and P(S <= S_k) no smaller in distribution. So
for a k fixed beforehand, with X binomial of m trials of chance alpha,

    P(F(S_k) > alpha) <= P(X <= k - 1),    P(F(S_k) < alpha) <= P(X >= k).

Lower end: let k be the greatest with P(X <= k - 1) <= tail. An edge with fewer than k held-out records at or below
it lies below S_k, so the greatest of these has F <= alpha but with chance `tail`. Both rates grow with the edge.
So what is found at alpha is at least T there, and T at least Clopper and Pearson's lower end, from the training
records alone, on which the edge does not depend. Upper end: the smallest edge with k or more of them, for the
least k with P(X >= k) <= tail, has F >= alpha, and what is found is at most T there. An edge is chosen among all,
but its k is not: there is nothing to correct for. Each end is wrong with a chance of 2 `tail` at most.

The share of these very training records that an edge finds is known exactly; the interval holds for it as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.fairness.binomial_tail import chance_interval, upper_chance

ENDS = 4
"""The mistakes that an interval may make: the edge or the share, at either end."""


@dataclass(frozen=True, slots=True)
class ScoreCounts:
    """How many records have each score, in bins from the lowest score to the highest.

    Attributes:
        train: whole numbers, float64 array (bins,), of the training records.
        held_out: likewise, of records that no training has seen.

    Raises:
        LocalProtocolError: they are no counts of the same bins, or there are no records of either kind.
    """

    train: NDArray[np.float64] = field(repr=False)
    held_out: NDArray[np.float64] = field(repr=False)

    def __post_init__(self) -> None:
        both = np.concatenate([self.train, self.held_out])
        is_counts = self.train.ndim == 1 and bool((both >= 0.0).all() and (both == np.floor(both)).all())
        if not is_counts or self.train.shape != self.held_out.shape:
            raise LocalProtocolError("an attack is measured by counts of the same bins")
        if not (self.train.any() and self.held_out.any()):
            raise LocalProtocolError("an attack is measured by records of both kinds, and one kind has none")

    @property
    def found(self) -> NDArray[np.int64]:
        """Return how many training records are at or below each edge: (bins + 1,), from 0."""
        return _below(self.train)

    @property
    def mistaken(self) -> NDArray[np.int64]:
        """Return how many held-out records are at or below each edge: (bins + 1,), from 0."""
        return _below(self.held_out)

    @property
    def area(self) -> float:
        """Return the area under the ROC: P(a member scores lower) + P(both score alike) / 2, in [0, 1]."""
        mistaken = self.mistaken
        higher = mistaken[-1] - mistaken[1:] + 0.5 * self.held_out
        return float((self.train * higher).sum() / (float(self.found[-1]) * float(mistaken[-1])))


@dataclass(frozen=True, slots=True)
class FoundShare:
    """The share of training records that an attack finds, where few others are called members.

    Attributes:
        estimate: at the greatest edge whose counted share of mistakes is small enough.
        lower: end of the interval.
        upper: likewise.
    """

    estimate: float
    lower: float
    upper: float


def found_at(counts: ScoreCounts, mistakes: float, tail: float) -> FoundShare:
    """Return the share of training records that the attack finds at a rate of mistakes.

    Args:
        counts: of both kinds.
        mistakes: alpha in (0, 1), the share of held-out records that may be called members.
        tail: in (0, 1/2], the chance of each of the four mistakes (`ENDS`).
    """
    found, mistaken = counts.found, counts.mistaken
    records, others = int(found[-1]), int(mistaken[-1])
    # The counts grow with the edge, and so do both ends of Clopper and Pearson's interval for them.
    allowed = int(np.searchsorted(mistaken, _most(others, mistakes, tail), side="right")) - 1
    beyond = int(np.searchsorted(mistaken, _least(others, mistakes, tail), side="left"))
    at = int(np.searchsorted(mistaken, mistakes * others, side="right")) - 1
    lower = chance_interval(int(found[allowed]), records, tail)[0] if allowed >= 0 else 0.0
    upper = chance_interval(int(found[beyond]), records, tail)[1] if beyond < len(found) else 1.0
    return FoundShare(int(found[at]) / records, lower, upper)


def _most(others: int, mistakes: float, tail: float) -> int:
    """Return the greatest c with P(X <= c) <= tail, X binomial of chance `mistakes`; -1 where there is none."""
    return _first(others, lambda count: upper_chance(count, others, tail) > mistakes) - 1


def _least(others: int, mistakes: float, tail: float) -> int:
    """Return the least c with P(X >= c) <= tail, X as before; others + 1 where there is none."""
    return 1 + _first(others, lambda less: 1.0 - upper_chance(others - less - 1, others, tail) >= mistakes)


def _first(end: int, holds: Callable[[int], bool]) -> int:
    """Return the first whole number in [0, end) from which on something holds; `end` where it never does."""
    return bisect_left(range(end), True, key=holds)


def _below(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
