"""Whom a model of two classes finds, misses and alarms for nothing, out of 100 people.

A model says "class 1" where its probability is one half or more, which is what the confusion matrix counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OUT_OF = 100


@dataclass(frozen=True, slots=True)
class PerHundred:
    """100 people, as whole numbers whose sum is 100, and the shares that medicine calls them by.

    Attributes:
        found: of class 1, and taken for it.
        missed: of class 1, and not taken for it.
        alarmed: not of class 1, and taken for it.
        spared: all others.
        sensitivity: share of class 1 that is found, 0 to 1; None where nobody is of class 1.
        specificity: share of the others that are spared; None where there are none.
        precision: share of the alarms that are right (positive predictive value); None without alarms.
    """

    found: int
    missed: int
    alarmed: int
    spared: int
    sensitivity: float | None
    specificity: float | None
    precision: float | None


def per_hundred(confusion: Sequence[Sequence[int]] | None) -> PerHundred | None:
    """Return the counts of a confusion matrix as 100 people; None for other than two classes, or nobody.

    Args:
        confusion: a row for each class and a column for what it was taken for.
    """
    if confusion is None or len(confusion) != 2 or not sum(map(sum, confusion)):
        return None
    (spared, alarmed), (missed, found) = confusion
    whole = dict(
        zip(("found", "missed", "alarmed", "spared"), _rounded((found, missed, alarmed, spared)), strict=True)
    )
    return PerHundred(
        **whole,
        sensitivity=_share(found, found + missed),
        specificity=_share(spared, spared + alarmed),
        precision=_share(found, found + alarmed),
    )


def _rounded(counts: Sequence[int]) -> list[int]:
    """Return whole numbers near the shares of 100, by largest remainder, so that they sum to 100."""
    exact = [OUT_OF * count / sum(counts) for count in counts]
    whole = [int(share) for share in exact]
    order = sorted(range(len(counts)), key=lambda place: whole[place] - exact[place])
    for place in order[: OUT_OF - sum(whole)]:
        whole[place] += 1
    return whole


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
