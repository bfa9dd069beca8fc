"""The verdict on a fitted estimator: whether it serves the worst group better than a guess without features.

A fit is at the optimum of a convex problem, and a constant prediction is one of its models. So where the worst
group fares no better than by guessing, no linear model on these columns would serve it, and no setting but the
group's size helps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from fedfair.results.verdict import MARGIN

SIZES = tuple(percent / 100 for percent in range(5, 101, 5))


class WorstGroupWarning(UserWarning):
    """A fitted model serves the worst group no better than a guess."""


@dataclass(frozen=True, slots=True)
class FitVerdict:
    """The figures of the training records.

    Attributes:
        worst_group_size: the share that was protected.
        worst: mean loss of the worst group of that size.
        guess: the least that this is with one prediction for all records.
        served_from: the smallest of 5 %, 10 %, ... 100 % from which on every worst group fares better than that;
            None where no size does.
    """

    worst_group_size: float
    worst: float
    guess: float
    served_from: float | None

    @property
    def is_worse(self) -> bool:
        """Whether the worst group fares no better than by guessing."""
        return self.worst > self.guess - MARGIN * max(self.guess, MARGIN)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        share = f"{self.worst_group_size:.0%}"
        figures = f"their mean loss is {self.worst:.3g}, that of the best constant prediction {self.guess:.3g}"
        if not self.is_worse:
            return f"The worst {share} are served better than by guessing: {figures}."
        served = (
            "no group size is served better"
            if self.served_from is None
            else f"groups are served better from {self.served_from:.0%} on"
        )
        return (
            f"The worst {share} are served no better than by guessing: {figures}; {served}. A larger "
            "worst_group_size, or columns that tell more, would help; other settings would not."
        )


def fit_verdict(size: float, worst: Callable[[float], float], guess: Callable[[float], float]) -> FitVerdict:
    """Return the verdict, and warn where the worst group is served no better than by guessing.

    Args:
        size: the protected share.
        worst: from a group size to the model's risk.
        guess: from a group size to the least risk of a constant prediction.
    """
    served = None
    for other in reversed(SIZES):
        reference = guess(other)
        if worst(other) > reference - MARGIN * max(reference, MARGIN):
            break
        served = other
    verdict = FitVerdict(size, worst(size), guess(size), served)
    if verdict.is_worse:
        warnings.warn(verdict.sentence, WorstGroupWarning, stacklevel=3)
    return verdict
