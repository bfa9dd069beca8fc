"""One site's own control variates: which of them the run counts, and the one that a contribution would make.

Nothing is committed here. What the site adds in round r is kept under r before it is sent. The state of the run
says which round counted this site last, and the variate of that round is v_k. So a sum that is lost, repeated or
opened without this site leaves v_k as it is, wherever a process ends in between. Each attempt at a round replaces
the one before.

A site whose variate is lost cannot continue: the run counts a number that nobody knows any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.errors import StateError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.terms.at_sites import AddedChange, Remembered, SiteMemory
from fedfair.terms.kept import (
    NEVER,
    NEW_RUN,
    CountedVariates,
    KeptVariate,
    VariateMemory,
    counted_variates,
    lost,
    round_of,
)
from fedfair.terms.variates.state import VariateRule


@dataclass(frozen=True, slots=True, eq=False)
class Correction(Remembered):
    """The correction of a round's local steps.

    Attributes:
        vector: float64 array (d,), v - v_k.
        threshold: the same of the threshold.
        new_weight: the site's weight where no sum has counted it before; otherwise 0.
    """

    vector: NDArray[np.float64] = field(repr=False)
    threshold: float
    new_weight: int

    @property
    def drift(self) -> tuple[NDArray[np.float64], float]:
        """Return v - v_k."""
        return self.vector, self.threshold

    @property
    def further(self) -> Mapping[str, ArrayLike]:
        """Return the weight of a site that is counted for the first time."""
        return {"new_weight": float(self.new_weight)}


class SiteVariates(SiteMemory):
    """One site's variates under one plan.

    Args:
        plan: a plan with control variates.
        layout: of its model.
        participant: whose they are.
        memory: where they are kept.
    """

    def __init__(self, plan: Plan, layout: Layout, participant: ParticipantId, memory: VariateMemory) -> None:
        self._rule, self._names = VariateRule(plan, layout), plan.federation.collaborators
        self._participant, self._memory = participant, memory

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> Correction:
        """Return what this round's steps are corrected by.

        Args:
            request: the round that the state of the run asks for.
            model: of that state, on which no variate depends.
            weight: of this site, 0 without records.

        Raises:
            StateError: the run counts a variate of this site that it does not have, or with another weight.
        """
        del model
        counted = counted_variates(request)
        own, mean = self._counted_own(counted, weight), counted.mean
        return Correction(
            mean.vector - own.variate.vector,
            mean.threshold - own.variate.threshold,
            0 if own.weight else weight,
        )

    def adding(self, request: SumRequest, model: GlobalModel, added: AddedChange) -> None:
        """Keep what v_k becomes if the sum counts what is about to be sent; see `SiteMemory.adding`."""
        del model
        counted = counted_variates(request)
        kept = self._counted_own(counted, added.weight)
        if added.weight:
            renewed = self._rule.renewed(
                kept.variate, counted.mean, added.change, added.threshold, request.round, request.loss_unit
            )
            kept = KeptVariate(renewed, added.weight)
        self._memory.keep(request.round, kept, self._counted_round(counted))

    def counted(self, variates: CountedVariates) -> KeptVariate | None:
        """Return what the run counts of this site: v_k and w_k; None where it is lost."""
        number = self._counted_round(variates)
        return KeptVariate(self._rule.zero, 0) if number == NEVER else self._memory.found(number)

    def _counted_round(self, variates: CountedVariates) -> RoundNumber:
        return round_of(variates, self._names, self._participant)

    def _counted_own(self, variates: CountedVariates, weight: int) -> KeptVariate:
        own = self.counted(variates)
        if own is None:
            raise lost(f"the control variate of round {self._counted_round(variates)}")
        if own.weight and weight and own.weight != weight:
            raise StateError(
                f"the run counts this site's control variate with weight {own.weight}, and its training records "
                f"have weight {weight} now",
                f"bring back the records with which it began this run; or {NEW_RUN}",
            )
        return own


def site_memory(
    plan: Plan, layout: Layout, participant: ParticipantId, opened: Callable[[int | None], VariateMemory]
) -> SiteVariates:
    """Return the kept variates of one site."""
    return SiteVariates(plan, layout, participant, opened(layout.dimension))
