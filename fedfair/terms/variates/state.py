"""Control variates on (theta, c): what each site's steps are corrected by, and what a sum of changes makes of it.

A local step of site k uses g - v_k + v. Its own variate v_k is the mean of its gradients in the last round that
counted it; the federation's variate v is the weighted mean of those. After a round of tau steps from x to y_k

    v_k+ = v_k - v + (x - y_k) / (tau eta)        so        v_k+ - v_k = -v - change_k / (tau eta)

The difference does not depend on v_k. All sites make equally many steps, so the opened sum of the changes tells
the sum of the differences, and no second vector travels:

    V+ = V - v sum(w_k) - sum(w_k change_k) / (tau eta)        over the members of the sum

V is the sum of w_k v_k over all sites that a sum has ever counted, so that whoever is absent keeps its part. The
weight under it grows by one further number of the header: the weight of members who are counted for the first
time. `change_k` is what was really added, after clip and rounding, on both sides of the equation. V and the sum of
w_k v_k therefore differ by the rounding of this arithmetic alone: a relative 2^-53 for each round and, where the
body of a total is float32, 2^-24 of the total.

The threshold has a variate of its own, by the same rule with its own rate. Elementwise arithmetic only, so that
all processes compute the same bits. No torch: the aggregator imports this. Source: SCAFFOLD, option II
(Karimireddy et al. 2020, Algorithm 1); one vector instead of two as in SCALLION (Huang et al. 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.model_layout import Layout
from fedfair.errors import RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.learning_rates import local_rates
from fedfair.plan.schema import Plan
from fedfair.terms.kept import NEVER, CountedVariates, Variate, rounds_after, rounds_may_be
from fedfair.terms.term import Moved, OpenedRound, TermRule, TermSetting


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a gradient of 1 moves in one round: its number of steps times the rate.

    Attributes:
        model: of the model, above 0.
        threshold: of the threshold, in natural units of the loss; None where it stays as it is.
    """

    model: float
    threshold: float | None

    @classmethod
    def of_round(cls, plan: Plan, number: RoundNumber | int, loss_unit: float = 1.0) -> Pace:
        """Return the pace of a round of a plan with control variates.

        Args:
            plan: the plan.
            number: the round.
            loss_unit: how many natural units one loss of the local steps has.
        """
        rates, steps = local_rates(plan, number), plan.training.local_steps
        return cls(steps * rates.model, None if rates.threshold is None else steps * rates.threshold * loss_unit)


class VariateRule(TermRule[CountedVariates]):
    """The rule of one plan with control variates.

    Args:
        plan: the plan.
        layout: of its model.
    """

    is_read_by_sites = True

    def __init__(self, plan: Plan, layout: Layout) -> None:
        self._plan = plan
        self._names = plan.federation.collaborators
        self._untrained = tuple(place for entry, place in layout.slices() if not entry.trainable)
        self._dimension = layout.dimension

    @property
    def first(self) -> CountedVariates:
        """Return what is counted before round 1: no site."""
        return CountedVariates(self.zero, 0.0, (NEVER,) * len(self._names))

    @property
    def zero(self) -> Variate:
        """Return the variate of whoever was never counted."""
        return Variate(np.zeros(self._dimension), 0.0)

    def may_be(self, counted: CountedVariates, rounds_done: int) -> bool:
        """Return whether a run may have reached this, as far as shapes and numbers tell."""
        return (
            counted.total.vector.shape == (self._dimension,)
            and bool(np.isfinite(counted.total.vector).all())
            and math.isfinite(counted.total.threshold)
            and 0.0 <= counted.weight < math.inf
            and rounds_may_be(counted.rounds, self._names, rounds_done)
        )

    def apply(
        self, held: CountedVariates | None, opened: OpenedRound, model: Moved
    ) -> tuple[CountedVariates, Moved]:
        """Return what is counted after a round, and the model as it is; see `TermRule.apply`.

        Raises:
            RemoteProtocolError: a member is no collaborator of the plan, or the numbers cannot be right.
        """
        counted, number = held or self.first, opened.number
        rounds = rounds_after(counted.rounds, self._names, number, opened.members)
        weight, new_weight = float(opened.sums["weight"]), float(opened.sums["new_weight"])
        if not 0.0 <= new_weight <= weight:
            raise RemoteProtocolError(
                f"the members of round {number} weigh {weight:g}, and {new_weight:g} of that is counted for the "
                "first time"
            )
        pace, mean = Pace.of_round(self._plan, number, opened.loss_unit), counted.mean
        moved = self._mean_gradient(opened.total, float(opened.sums["threshold"]), pace)
        vector = counted.total.vector - mean.vector * weight + moved.vector
        threshold = counted.total.threshold - mean.threshold * weight + moved.threshold
        if not (np.isfinite(vector).all() and math.isfinite(threshold)):
            raise RemoteProtocolError(
                f"round {number} would make control variates that are not finite", "lower learning_rate"
            )
        return CountedVariates(Variate(vector, threshold), counted.weight + new_weight, rounds), model

    def renewed(
        self,
        own: Variate,
        mean: Variate,
        change: NDArray[np.floating],
        threshold: float,
        number: RoundNumber,
        loss_unit: float = 1.0,
    ) -> Variate:
        """Return v_k+, a site's own variate once a sum has counted its change.

        Args:
            own: v_k.
            mean: v.
            change: array (d,): the change of the model that it really added, not weighted.
            threshold: the same of the threshold.
            number: the round.
            loss_unit: as of a `Pace`.
        """
        moved = self._mean_gradient(change, threshold, Pace.of_round(self._plan, number, loss_unit))
        return Variate(own.vector - mean.vector + moved.vector, own.threshold - mean.threshold + moved.threshold)

    def _mean_gradient(self, change: NDArray[np.floating], threshold: float, pace: Pace) -> Variate:
        """Return -change / (tau eta), and 0 where nothing is trained."""
        vector = change.astype(np.float64) / -pace.model
        for place in self._untrained:
            vector[place] = 0.0
        return Variate(vector, 0.0 if pace.threshold is None else -threshold / pace.threshold)


def rule(setting: TermSetting) -> VariateRule:
    """Return the rule of a plan with control variates."""
    return VariateRule(setting.plan, setting.layout)
