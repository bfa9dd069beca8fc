"""The names of a result's figures, the same in the terminal, on pages and in charts, beside their JSON fields.

| name | field of `fedfair/result/1` |
|---|---|
| group size | key of `by_group_size` |
| worst group | `worst` |
| best group | `best` |
| disparity | `disparity` |
| proven interval | `bound`, or for an estimate `likely` |
| everybody | `mean` |
| accuracy | `accuracy` |
| uniform guess | `uniform_floor` |
| plain training | `baselines.plain` |
"""

from __future__ import annotations

from fedfair.results.loss_text import loss_text

GROUP_SIZE = "group size"
WORST_GROUP = "worst group"
BEST_GROUP = "best group"
DISPARITY = "disparity"
PROVEN_INTERVAL = "proven interval"
OVERALL = "everybody"
ACCURACY = "accuracy"
UNIFORM_GUESS = "uniform guess"
BASE_RATE = "base rate"
PLAIN_TRAINING = "plain training"

TOO_FEW = "too few people"
ESTIMATE = "estimate"
"""In place of the figures of a group below the plan's `evaluation.min_group`, and of an interval without proof."""

BY_GROUP_SIZE = (GROUP_SIZE, WORST_GROUP, PROVEN_INTERVAL, BEST_GROUP, DISPARITY)
"""The headings of a table by group size, in their order."""


def interval(bound: tuple[float, float] | None, likely: tuple[float, float] | None = None) -> str:
    """Return where the truth lies, or about where.

    Args:
        bound: an interval that is proven; None for an estimate.
        likely: of an estimate from sums under noise, where it lies with 95 %; None for any other.
    """
    if bound is None:
        return ESTIMATE if likely is None else f"{ESTIMATE}, {_between(likely)} with 95 %"
    low, high = bound
    return "exact" if low == high else _between(bound)


def _between(ends: tuple[float, float]) -> str:
    low, high = ends
    return f"{loss_text(low, 4, high)} to {loss_text(high, 4)}"
