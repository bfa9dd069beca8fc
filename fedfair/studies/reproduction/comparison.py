"""Compares the repetitions of two settings: Welch's t test, with a tolerance, and Holm's step-down for several.

A claim such as "A is not above B" is put to two tests, each with its own null hypothesis:

    it holds   once "mean A - mean B >= tolerance" is rejected,
    it fails   once "mean A - mean B <= tolerance" is rejected,

so that no difference found is not taken for agreement, and a difference too small to matter refutes nothing.
Variances are not assumed to be equal (Welch 1947). A claim about several places holds if each of its tests rejects
at the level, which needs no correction: the claim is the intersection (Berger 1982). It fails if one of them
rejects after Holm's correction (Holm 1979). Single repetitions decide nothing, since nobody knows their error.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_1samp, ttest_ind

LEVEL = 0.05
"""The probability of a wrong verdict about a claim that is just false, or just true."""

Values = Sequence[float]
"""One figure of every repetition."""


class Verdict(enum.StrEnum):
    """The outcome of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "not decided"


@dataclass(frozen=True, slots=True)
class RiskComparison:
    """One comparison of a claim.

    Attributes:
        sentence: what was compared, with the numbers.
        holds: p value of the null hypothesis that the claim is false here; None without repetitions.
        fails: p value of the null hypothesis that the claim is true here; None without repetitions.
    """

    sentence: str
    holds: float | None
    fails: float | None


def not_above(sentence: str, one: Values, other: Values, tolerance: float) -> RiskComparison:
    """Compare two means: the claim is that the first is above the second by no more than a tolerance.

    Args:
        sentence: what is compared.
        one: the first's figures.
        other: the second's.
        tolerance: in the unit of the figures, at least 0.
    """
    above = _greater(one, other, tolerance)
    return RiskComparison(sentence, None if above is None else 1.0 - above, above)


def alike(sentence: str, one: Values, other: Values, tolerance: float) -> RiskComparison:
    """Compare two means: the claim is that they are at most a tolerance apart (two one-sided tests)."""
    above, below = _greater(one, other, tolerance), _greater(other, one, tolerance)
    if above is None or below is None:
        return RiskComparison(sentence, None, None)
    # Either side may refute the claim, which is two tests.
    return RiskComparison(sentence, max(1.0 - above, 1.0 - below), min(1.0, 2.0 * min(above, below)))


def not_above_level(sentence: str, values: Values, level: float, tolerance: float) -> RiskComparison:
    """Compare a mean with a number: the claim is that it is above it by no more than a tolerance."""
    above = _greater(values, None, level + tolerance)
    return RiskComparison(sentence, None if above is None else 1.0 - above, above)


def verdict(comparisons: Sequence[RiskComparison], level: float = LEVEL) -> Verdict:
    """Return what several comparisons say together about one claim; undecided without any."""
    fails = holm([found.fails for found in comparisons if found.fails is not None])
    if any(adjusted <= level for adjusted in fails):
        return Verdict.FAILS
    sure = [found.holds is not None and found.holds <= level for found in comparisons]
    return Verdict.HOLDS if sure and all(sure) else Verdict.UNDECIDED


def holm(found: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's step-down procedure, in the order in which they came.

    Rejecting where these are at most a level makes any wrong rejection at most as probable as that level,
    however the tests depend on each other.
    """
    adjusted, greatest = [0.0] * len(found), 0.0
    for place, index in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        greatest = max(greatest, min(1.0, (len(found) - place) * found[index]))
        adjusted[index] = greatest
    return adjusted


def _greater(one: Values, other: Values | None, shift: float) -> float | None:
    """Return the p value of "mean of one - mean of other <= shift"; None where an error cannot be estimated."""
    if len(one) < 2 or (other is not None and len(other) < 2):
        return None
    moved = np.asarray(one, np.float64) - shift
    gap = float(moved.mean()) - (0.0 if other is None else float(np.mean(other)))
    if np.ptp(moved) == 0.0 and (other is None or np.ptp(other) == 0.0):
        # Repetitions without any spread: the limit of the test as the spread goes to nothing.
        return 0.5 if gap == 0.0 else float(gap < 0.0)
    if other is None:
        found = ttest_1samp(moved, 0.0, alternative="greater").pvalue
    else:
        found = ttest_ind(moved, other, equal_var=False, alternative="greater").pvalue
    return 0.5 if math.isnan(found) else float(found)
