"""A site's own part of the model from round to round: where its steps and its losses begin, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.terms.at_sites import AddedChange, OwnPart, SiteMemory
from fedfair.terms.kept import (
    NEVER,
    CountedVariates,
    KeptVariate,
    Variate,
    VariateMemory,
    counted_in,
    lost,
    round_of,
)

_AS_BEFORE = np.zeros(0)
"""Kept by a site that has trained nothing yet, though rounds count it: it has no records."""


class KeptParameters(SiteMemory):
    """One site's own part of the model under one plan, kept as a variate is.

    Args:
        plan: a plan whose sites keep a part of the model.
        participant: whose it is.
        memory: where it is kept.
    """

    def __init__(self, plan: Plan, participant: ParticipantId, memory: VariateMemory) -> None:
        self._names, self._participant, self._memory = plan.federation.collaborators, participant, memory

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> OwnPart:
        """Return the own part that the state counts; see `SiteMemory.correction`."""
        del model, weight
        return OwnPart(self.own_part(request.terms))

    def adding(self, request: SumRequest, model: GlobalModel, added: AddedChange) -> None:
        """Keep what the own part became; without records, or where it is no number, it stays as it was."""
        del model
        counted, own = counted_in(request.terms), added.kept
        if not added.weight or own is None or not np.isfinite(own).all():
            own = self.own_part(request.terms)
        vector = _AS_BEFORE if own is None else own.astype(np.float64)
        kept = KeptVariate(Variate(vector, 0.0), added.weight)
        self._memory.keep(request.round, kept, self._round(counted))

    def own_part(self, terms: Mapping[str, object]) -> NDArray[np.float64] | None:
        """Return the own part that a state counts; see `SiteMemory.own_part`.

        Raises:
            StateError: it is lost.
        """
        number = self._round(counted_in(terms))
        if number == NEVER:
            return None
        kept = self._memory.found(number)
        if kept is None:
            raise lost(f"this site's own part of the model after round {number}")
        return kept.variate.vector if kept.variate.vector.size else None

    def _round(self, counted: CountedVariates) -> RoundNumber:
        return round_of(counted, self._names, self._participant)


def site_memory(
    plan: Plan, _layout: Layout, participant: ParticipantId, opened: Callable[[int | None], VariateMemory]
) -> KeptParameters:
    """Return the kept part of one site's model."""
    return KeptParameters(plan, participant, opened(None))
