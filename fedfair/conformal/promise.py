"""The promise of prediction sets: no group of a least size is missed more often than a share, nobody naming it.

A record is missed where its true answer is not in its set. Sets that miss a share rho * beta of all people miss at
most beta of every group G of share rho or more, because

    P(missed | G) = P(missed and G) / P(G) <= P(missed) / P(G) <= rho beta / rho = beta.

Decides how many of n held-out records may count as missed, how many records a promise needs, and what share of
people is missed with confidence. `threshold.py` makes a threshold of it.

On average over the held-out records and a new person, drawn alike, m = floor(rho beta (n + 1)) records keep
P(missed) at most rho beta (split conformal prediction). For one threshold, the share M of people that it misses
varies with the held-out records. It is at most the m-th smallest of n uniform numbers, which is Beta(m, n + 1 -
m): m is fixed by n and the plan before any score is seen, so that choosing the threshold by the scores is covered,
and ties only help. So with confidence 1 - delta, M is at most the u with P(Binomial(n, u) <= m - 1) = delta, and
then for all groups of all sizes at once, even those chosen afterwards, P(missed | G) <= u / P(G).

Sources: Papadopoulos et al. 2002, "Inductive confidence machines for regression"; Vovk 2012, "Conditional validity
of inductive conformal predictors", proposition 2b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from fedfair.fairness.binomial_tail import upper_chance

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Promise:
    """What sets are to keep.

    Attributes:
        group_size: the least share of people that a group has (rho), above 0 to 1.
        missed: the most of such a group that is missed (beta), above 0 and below 1.
        confidence: of what is said about one threshold (1 - delta), 1/2 to below 1.

    Raises:
        ValueError: one of them is out of its range.
    """

    group_size: float
    missed: float
    confidence: float

    def __post_init__(self) -> None:
        sizes = 0.0 < self.group_size <= 1.0 and 0.0 < self.missed < 1.0
        if not (sizes and 0.5 <= self.confidence < 1.0):
            raise ValueError(f"{self} promises nothing")

    @property
    def share(self) -> Fraction:
        """The share of all people that may be missed (alpha = rho * beta), of the two as decimals: exact."""
        return Fraction(str(self.group_size)) * Fraction(str(self.missed))

    def allowed(self, records: int) -> int:
        """Return how many of so many held-out records and one new person may be missed: floor(alpha (n + 1))."""
        return math.floor(self.share * (records + 1))

    def needed(self, fewest: int) -> int:
        """Return how many records let `fewest` of them and a new person be missed: the least such n."""
        return math.ceil(fewest / self.share) - 1

    def missed_at_most(self, records: int) -> float:
        """Return what share of people a threshold from so many records misses, with the confidence: u.

        To the next millionth above, so that the promise is not rounded away; `allowed` is at least 1.
        """
        found = upper_chance(self.allowed(records) - 1, records, 1.0 - self.confidence)
        return min(math.ceil(found * MILLION) / MILLION, 1.0)
