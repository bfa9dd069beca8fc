"""An opened sum that the state of a run keeps whole: that of a statistic which no later sum depends on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.column_statistics import StatisticsSummary, statistics_layout, statistics_summary
from fedfair.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class KeptSum:
    """An opened sum that a run keeps.

    Attributes:
        header: float64 array, as the header of its statistic lays it out.
        members: whose training records it is of, sorted.
    """

    header: NDArray[np.float64]
    members: tuple[str, ...]


def statistics_of(kept: KeptSum | None, plan: Plan) -> StatisticsSummary | None:
    """Return what a kept sum of the plan's statistics says; None where none is kept."""
    return None if kept is None else statistics_summary(kept.header, len(kept.members), statistics_layout(plan))
