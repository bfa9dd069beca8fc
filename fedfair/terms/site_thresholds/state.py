"""Thresholds that sites keep to themselves: what a site tells of its own, and which of them the state counts.

Site k begins a round at c_k, its own threshold after the last round that counted it, and ends at

    c_k+ = c + told_k,    told_k = clip(clip(c_k + moved_k, 0, B) - c, -R, R)

where c is the threshold of the state, moved_k is what the local steps did to c_k, B is the plan's loss bound, and
R is `derived.threshold_limit`. The sum carries w_k told_k where others carry the weighted change of c. So the next
c is the weighted mean of the thresholds of its members, and nothing else is disclosed of any. With a loss bound
the outer clip never binds; without one a threshold is at most R from c. Whoever no sum has counted begins at c.

The state holds the last round that counted each site. No torch: the aggregator imports this.
"""

from __future__ import annotations

import math

from fedfair.plan.derived import threshold_limit
from fedfair.plan.schema import Plan
from fedfair.terms.kept import SitesCounted
from fedfair.terms.term import TermSetting


def rule(setting: TermSetting) -> SitesCounted:
    """Return the counting of a plan whose sites keep thresholds of their own."""
    return SitesCounted(setting.plan)


class ReportedThreshold:
    """The rule for how a site tells of its own threshold.

    Args:
        plan: a plan whose sites keep thresholds of their own.
        classes: how many there are.
    """

    def __init__(self, plan: Plan, classes: int) -> None:
        self._limit = threshold_limit(plan, classes)
        self._upper = _upper_end(plan)

    def __call__(self, shared: float, start: float, moved: float) -> float:
        """Return told_k.

        Args:
            shared: c.
            start: c_k.
            moved: by how much the local steps moved it.
        """
        own = min(max(start + moved, 0.0), self._upper)
        return min(max(own - shared, -self._limit), self._limit)


def renewed_threshold(plan: Plan, shared: float, told: float) -> float:
    """Return c_k+, which a sum has counted.

    Args:
        plan: the plan.
        shared: c.
        told: what the site has really told.
    """
    return min(max(shared + told, 0.0), _upper_end(plan))


def _upper_end(plan: Plan) -> float:
    bound = plan.objective.loss_bound
    return math.inf if bound is None else bound
