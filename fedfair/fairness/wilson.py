"""A share of few people with the interval in which the truth probably is.

    (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n),   z = 1.96

It stays within 0 and 1, and has a width even where nobody or everybody was counted, as the usual interval, p -+ z
sqrt(p (1 - p) / n), has not. Source: Wilson 1927, "Probable inference, the law of succession, and statistical
inference".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedfair.errors import LocalProtocolError

Z = 1.959963984540054
"""Of a standard normal variable, 95 % lie between -Z and Z."""


@dataclass(frozen=True, slots=True)
class Proportion:
    """How many of some people have something.

    Attributes:
        count: who have it.
        of: all of them, at least 1.
    """

    count: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.of or self.of < 1:
            raise LocalProtocolError(f"{self.count} of {self.of} is no share")

    @property
    def share(self) -> float:
        """Return it as a number from 0 to 1."""
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends of the interval that holds the true share in about 95 of 100 cases."""
        square = Z * Z / self.of
        middle = self.share + 0.5 * square
        half = math.sqrt(square * (self.share * (1.0 - self.share) + 0.25 * square))
        ends = (middle - half) / (1.0 + square), (middle + half) / (1.0 + square)
        return max(ends[0], 0.0), min(ends[1], 1.0)


def proportion(count: int, of: int) -> Proportion | None:
    """Return how many of some people have something; None where there is nobody."""
    return Proportion(count, of) if of else None
