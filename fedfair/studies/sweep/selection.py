"""Selects the best point of a sweep, by validation records alone.

A test split answers for people whom nothing was chosen by. Hence a candidate holds validation figures and nothing
else: no rule here could look at the test split, or at training losses, by mistake or on purpose. Every candidate
of a comparison is measured with one yardstick; its own objective would let a point win by asking for less.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from fedfair.errors import PlanError
from fedfair.plan.derived import reported_group_sizes
from fedfair.plan.losses import Loss, has_classes, loss_in_words
from fedfair.plan.schema import Plan
from fedfair.studies.sweep.figures import WORST, Figures, figure_name


class Criterion(enum.StrEnum):
    """The figure to minimise on the validation records."""

    WORST = "worst"
    MEAN = "mean"
    OBJECTIVE = "objective"


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The measure of candidates.

    Attributes:
        criterion: worst is the mean loss of the worst group of `group_size`, mean the overall one, objective
            (1 - tradeoff) * worst + tradeoff * mean.
        group_size: share of the population (rho in the paper), in (0, 1].
        tradeoff: weight of the mean (epsilon in the paper), in [0, 1].
    """

    criterion: Criterion
    group_size: float
    tradeoff: float

    def score(self, validation: Figures) -> float | None:
        """Return what is to be small, in the unit of the loss; None where the figures do not have it."""
        mean, worst = validation.get("mean"), validation.get(figure_name(WORST, self.group_size))
        if self.criterion is Criterion.MEAN:
            return None if mean is None else mean.mean
        if worst is None or mean is None:
            return None
        if self.criterion is Criterion.WORST:
            return worst.mean
        return (1 - self.tradeoff) * worst.mean + self.tradeoff * mean.mean


def yardstick_of(criterion: Criterion, plans: Sequence[Plan], base: Plan) -> Yardstick:
    """Return how these plans are compared.

    By the group size and the trade-off that they share; where they share none, by those of the base plan.

    Raises:
        PlanError: the losses of the plans are different measures, or a plan does not report the group size.
    """
    if any(_measure(plan.task.loss) != _measure(plans[0].task.loss) for plan in plans):
        losses = dict.fromkeys(loss_in_words(plan.task.loss) for plan in plans)
        raise PlanError(
            f"points are compared by their loss, and these losses are different measures: {'; '.join(losses)}",
            "compare --per the key of task.loss that the grid varies",
        )
    sizes = {plan.objective.worst_group_size for plan in plans}
    tradeoffs = {plan.objective.tradeoff for plan in plans}
    size = sizes.pop() if len(sizes) == 1 else base.objective.worst_group_size
    tradeoff = tradeoffs.pop() if len(tradeoffs) == 1 else base.objective.tradeoff
    if criterion is not Criterion.MEAN and any(size not in reported_group_sizes(plan) for plan in plans):
        raise PlanError(
            f"points are compared by their worst group of {size}, which not all of them report",
            f"add {size} to evaluation.group_sizes, or compare --per worst_group_size",
        )
    return Yardstick(criterion, size, tradeoff)


def _measure(loss: Loss) -> object:
    """Return what is the same for losses whose numbers can be compared."""
    # Of a class each is the negative logarithm of its probability, whatever the outputs are.
    return "a class" if has_classes(loss) else loss.model_dump(exclude={"target_range"})


def best_of(candidates: Sequence[Figures | None], yardstick: Yardstick) -> int | None:
    """Return the index of the candidate with the smallest score, the first of equals; None where none has one.

    Args:
        candidates: their validation figures; None for a candidate that cannot be chosen.
        yardstick: how they are measured.
    """
    scores = [None if figures is None else yardstick.score(figures) for figures in candidates]
    scored = [(score, index) for index, score in enumerate(scores) if score is not None]
    return min(scored)[1] if scored else None
