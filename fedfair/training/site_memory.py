"""The memory of a site of the rounds that counted it, where an algorithm needs one: one interface for all workers.

A memory commits nothing. What the site adds in round r is kept under r before it is sent, and the state of the run
says which round counted this site last. So a sum that is lost, repeated or opened without this site leaves what it
has as it is, wherever a process ends in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.training_sum import TRAINING_LAYOUT
from fedfair.errors import LocalProtocolError, StateError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import keeps_own_thresholds
from fedfair.plan.known_groups import names_groups
from fedfair.plan.schema import Plan
from fedfair.terms.group_weights.state import GroupWeights
from fedfair.terms.site_thresholds.state import renewed_threshold
from fedfair.terms.variates.site import (
    NEW_RUN,
    Correction,
    KeptVariate,
    OwnVariates,
    VariateMemory,
    counted_variates,
)
from fedfair.terms.variates.state import NEVER, CountedVariates, Variate, round_of


@dataclass(frozen=True, slots=True)
class OwnStart:
    """The threshold that a site's local steps begin from in place of that of the state.

    Attributes:
        threshold: c_k, in units of the loss.
    """

    threshold: float


@dataclass(frozen=True, slots=True, eq=False)
class GroupFactors:
    """The factors by which the state of the run weighs groups; a site remembers nothing of its own for it.

    Attributes:
        factors: float64 array (groups,), by which every record's coefficient is multiplied.
    """

    factors: NDArray[np.float64] = field(repr=False)


Remembered = Correction | OwnStart | GroupFactors


class SiteMemory(Protocol):
    """The memory of one site under one plan: its control variates, or its threshold."""

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> Remembered:
        """Return what this round's steps need of it.

        Args:
            request: the round that the state of the run asks for.
            model: of that state.
            weight: of this site, 0 without records.

        Raises:
            StateError: the run counts something of this site that it does not have.
        """

    def adding(
        self,
        request: SumRequest,
        model: GlobalModel,
        weight: int,
        change: NDArray[np.floating],
        threshold: float,
    ) -> None:
        """Keep what it becomes if the sum counts what is about to be sent; call it before anything is sent.

        Args:
            request: the round.
            model: of the state that asks for it.
            weight: of this site, 0 without records.
            change: array (d,): the change of the model that is really added, not weighted.
            threshold: the same of the threshold.

        Raises:
            StateError: as `correction`.
            FedfairError: it cannot be kept.
        """

    def adding_in_the_clear(self, request: SumRequest, model: GlobalModel, addend: Contribution) -> None:
        """Keep what it becomes if the sum counts this contribution; as `adding`."""


class OwnThresholds:
    """One site's own thresholds under one plan, kept as variates without a vector.

    Args:
        plan: a plan whose sites keep thresholds of their own.
        participant: whose they are.
        memory: where they are kept.
    """

    def __init__(self, plan: Plan, participant: ParticipantId, memory: VariateMemory) -> None:
        self._plan, self._participant, self._memory = plan, participant, memory

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> OwnStart:
        """Return c_k, the threshold that this round's steps begin from; see `SiteMemory.correction`."""
        del weight
        return OwnStart(self._counted(counted_variates(request), model))

    def adding(
        self,
        request: SumRequest,
        model: GlobalModel,
        weight: int,
        change: NDArray[np.floating],
        threshold: float,
    ) -> None:
        """Keep c_k+; without records that is c_k. See `SiteMemory.adding`."""
        del change
        counted = counted_variates(request)
        own = self._counted(counted, model)
        if weight:
            own = renewed_threshold(self._plan, model.threshold, threshold)
        self._memory.keep(request.round, KeptVariate(Variate(np.zeros(0), own), weight), self._round(counted))

    def adding_in_the_clear(self, request: SumRequest, model: GlobalModel, addend: Contribution) -> None:
        """Keep c_k+; see `SiteMemory.adding_in_the_clear`."""
        sums = TRAINING_LAYOUT.read(addend.header)
        weight = int(sums["weight"])
        self.adding(request, model, weight, addend.body, float(sums["threshold"]) / max(weight, 1))

    def _round(self, counted: CountedVariates) -> RoundNumber:
        return round_of(counted, self._plan.federation.collaborators, self._participant)

    def _counted(self, counted: CountedVariates, model: GlobalModel) -> float:
        """Return c_k; whoever no sum has counted begins at the threshold of the state."""
        number = self._round(counted)
        if number == NEVER:
            return model.threshold
        kept = self._memory.found(number)
        if kept is None:
            raise StateError(
                f"this site's own threshold of round {number} is lost: the run counts it, and no "
                "other number may take its place",
                f"copy this site's state folder back from its newest backup; or {NEW_RUN}",
            )
        return kept.variate.threshold


class StatedGroups:
    """The weights of groups, which are the state's; a site keeps nothing for them."""

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> GroupFactors:
        """Return the factors of groups; see `SiteMemory.correction`. Raises LocalProtocolError without any."""
        del model, weight
        held = request.terms.get("groups")
        if not isinstance(held, GroupWeights):
            raise LocalProtocolError(f"a request for {request.purpose.value} weighs no groups")
        return GroupFactors(held.factors)

    def adding(
        self,
        request: SumRequest,
        model: GlobalModel,
        weight: int,
        change: NDArray[np.floating],
        threshold: float,
    ) -> None:
        """Keep nothing; see `SiteMemory.adding`."""

    def adding_in_the_clear(self, request: SumRequest, model: GlobalModel, addend: Contribution) -> None:
        """Keep nothing; see `SiteMemory.adding_in_the_clear`."""


def site_memory(
    plan: Plan, layout: Layout, participant: ParticipantId, opened: Callable[[int], VariateMemory]
) -> SiteMemory | None:
    """Return what a site needs of earlier rounds under a plan; None where it needs nothing.

    Args:
        plan: the plan.
        layout: of its model.
        participant: whose memory it is.
        opened: from the length of the vectors that are kept to where they are kept.
    """
    if keeps_own_thresholds(plan):
        return OwnThresholds(plan, participant, opened(0))
    if plan.training.control_variates:
        return OwnVariates(plan, layout, participant, opened(layout.dimension))
    return StatedGroups() if names_groups(plan) else None
