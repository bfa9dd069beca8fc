"""Takes what the algorithms beside plain averaging need from a site's round: losses, groups, its own threshold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import GlobalModel
from fedfair.ids import RoundNumber
from fedfair.plan.known_groups import group_count
from fedfair.plan.learning_rates import local_rates
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset
from fedfair.terms.group_weights.site import GroupSums, record_groups
from fedfair.terms.group_weights.state import GroupRule
from fedfair.terms.loss_powers.site import LossPowers
from fedfair.terms.site_thresholds.state import ToldThreshold
from fedfair.training.local_change import LocalChange
from fedfair.training.site_memory import GroupFactors, OwnStart, Remembered


def adversary_of(plan: Plan, classes: int) -> GroupRule | None:
    """Return the adversary of a plan whose sums tell of groups; None where they tell of none."""
    groups = group_count(plan, classes)
    return GroupRule(plan, groups) if groups else None


class AlgorithmTerms:
    """The terms of one plan for one site.

    Args:
        plan: the plan.
        records: the site's training records; only their groups are read.
    """

    def __init__(self, plan: Plan, records: Dataset) -> None:
        classes = records.schema.classes
        self._plan = plan
        self._told = ToldThreshold(plan, classes)
        self._powers = LossPowers.of_plan(plan, classes)
        self._adversary = adversary_of(plan, classes)
        self._groups = record_groups(plan, records)

    @property
    def weighs_losses(self) -> bool:
        """Return whether a power of the site's mean loss weighs its change."""
        return self._powers is not None

    def takes_losses(self, number: RoundNumber) -> bool:
        """Return whether a round's sum tells something of the losses under the broadcast model."""
        return self.weighs_losses or (self._adversary is not None and self._adversary.looks_in(number))

    def record_weights(self, remembered: Remembered | None) -> NDArray[np.float64] | None:
        """Return by how much each record's coefficient is multiplied: array (n,); None for nothing."""
        if self._groups is None or not isinstance(remembered, GroupFactors):
            return None
        weights: NDArray[np.float64] = remembered.factors[self._groups]
        return weights

    def finished(
        self,
        change: LocalChange,
        model: GlobalModel,
        number: RoundNumber,
        remembered: Remembered | None,
        losses: NDArray[np.floating] | None,
        loss_unit: float = 1.0,
    ) -> LocalChange:
        """Return what the sum of the plan's algorithm takes of a change, whose memory it may take.

        Args:
            change: by the local steps; that of the threshold is clipped.
            model: of the state that asks for the round.
            number: the round.
            remembered: as in `summable_change`.
            losses: of the training records; None where the sum tells nothing of them.
            loss_unit: how many of their units one loss of the local steps has.
        """
        if isinstance(remembered, OwnStart):
            told = self._told(model.threshold, remembered.threshold, change.threshold)
            change = replace(change, threshold=told)
        if self._groups is not None and isinstance(remembered, GroupFactors):
            sums = GroupSums.of_losses(self._groups, losses, len(remembered.factors))
            change = replace(change, groups=sums)
        if self._powers is None or losses is None:
            return change
        values, means = change.model.astype(np.float64), np.array([float(losses.mean())])
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.array([values @ values])
            np.multiply(change.model, self._powers.factors(means)[0], out=change.model, casting="same_kind")
        rate = local_rates(self._plan, number).model / loss_unit
        curvatures = self._powers.curvatures(means, squares, rate)
        return replace(change, curvature=float(curvatures[0]))
