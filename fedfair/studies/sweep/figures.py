"""The figures of a finished point, and of several that differ only in their seed: means with standard errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedfair.results.document import ResultDocument
from fedfair.results.risks import SplitRisk

WORST, DISPARITY = "worst", "disparity"


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds.

    Attributes:
        mean: over at least one seed.
        standard_error: sample standard deviation (n - 1) over sqrt(n); None for a single seed.
    """

    mean: float
    standard_error: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        if len(values) == 1:
            return cls(values[0])
        return cls(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))


Figures: TypeAlias = Mapping[str, Spread]
"""By name: mean, accuracy, and worst_0.1, disparity_0.1 for every reported group size; losses in nats."""


def figure_name(kind: str, group_size: float) -> str:
    """Return the name of a figure of one group size, such as worst_0.1."""
    return f"{kind}_{group_size}"


def split_figures(results: Sequence[ResultDocument], split: str) -> Figures | None:
    """Return the figures of one split over several results; None where one of them has no such split.

    A figure that is not a number somewhere (an infinite loss) is left out.
    """
    read = [_numbers(result.splits[split]) for result in results]
    return None if None in read else averaged([numbers for numbers in read if numbers is not None])


def averaged(numbers: Sequence[Mapping[str, float]]) -> Figures:
    """Return the spread of every figure that all have, in the order of the first."""
    if not numbers:
        return {}
    common = [name for name in numbers[0] if all(name in other for other in numbers)]
    return {name: Spread.of([own[name] for own in numbers]) for name in common}


def _numbers(split: SplitRisk | None) -> dict[str, float] | None:
    """Return the figures of one split of one result."""
    if split is None:
        return None
    named: list[tuple[str, float | None]] = [("mean", split.mean), ("accuracy", split.accuracy)]
    for size, risk in split.by_group_size.items():
        named += [
            (figure_name(WORST, float(size)), risk.worst),
            (figure_name(DISPARITY, float(size)), risk.disparity),
        ]
    return {name: value for name, value in named if value is not None}
