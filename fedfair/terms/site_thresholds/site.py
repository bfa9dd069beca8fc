"""A site's own threshold from round to round: where its steps begin, what it tells, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset
from fedfair.terms.at_sites import AddedChange, FinishedRound, Remembered, SiteMemory, SiteTerm
from fedfair.terms.kept import (
    NEVER,
    CountedVariates,
    KeptVariate,
    Variate,
    VariateMemory,
    counted_variates,
    lost,
    round_of,
)
from fedfair.terms.local_change import LocalChange
from fedfair.terms.site_thresholds.state import ReportedThreshold, renewed_threshold


@dataclass(frozen=True, slots=True)
class SiteStart(Remembered):
    """The threshold that a site's local steps begin from in place of that of the state.

    Attributes:
        threshold: c_k, in units of the loss.
    """

    threshold: float

    def start(self, shared: float) -> float:
        """Return c_k."""
        del shared
        return self.threshold


class ReportedSiteThreshold(SiteTerm):
    """The change of the threshold as the sum takes it: from the state's threshold to the site's own.

    Args:
        plan: a plan whose sites keep thresholds of their own.
        classes: how many there are.
    """

    def __init__(self, plan: Plan, classes: int) -> None:
        self._reported = ReportedThreshold(plan, classes)

    def finished(self, change: LocalChange, about: FinishedRound) -> LocalChange:
        """Return the change with told_k in place of what the steps did to c_k."""
        if not isinstance(about.remembered, SiteStart):
            return change
        told = self._reported(about.model.threshold, about.remembered.threshold, change.threshold)
        return replace(change, threshold=told)


def site_term(plan: Plan, records: Dataset) -> ReportedSiteThreshold:
    """Return what a site tells of its own threshold."""
    return ReportedSiteThreshold(plan, records.schema.classes)


class SiteThresholds(SiteMemory):
    """One site's own thresholds under one plan, kept as variates without a vector.

    Args:
        plan: a plan whose sites keep thresholds of their own.
        participant: whose they are.
        memory: where they are kept.
    """

    def __init__(self, plan: Plan, participant: ParticipantId, memory: VariateMemory) -> None:
        self._plan, self._participant, self._memory = plan, participant, memory

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> SiteStart:
        """Return c_k, the threshold that this round's steps begin from; see `SiteMemory.correction`."""
        del weight
        return SiteStart(self._counted(counted_variates(request), model))

    def adding(self, request: SumRequest, model: GlobalModel, added: AddedChange) -> None:
        """Keep c_k+; without records that is c_k. See `SiteMemory.adding`."""
        counted = counted_variates(request)
        own = self._counted(counted, model)
        if added.weight:
            own = renewed_threshold(self._plan, model.threshold, added.threshold)
        kept = KeptVariate(Variate(np.zeros(0), own), added.weight)
        self._memory.keep(request.round, kept, self._round(counted))

    def _round(self, counted: CountedVariates) -> RoundNumber:
        return round_of(counted, self._plan.federation.collaborators, self._participant)

    def _counted(self, counted: CountedVariates, model: GlobalModel) -> float:
        """Return c_k; whoever no sum has counted begins at the threshold of the state."""
        number = self._round(counted)
        if number == NEVER:
            return model.threshold
        kept = self._memory.found(number)
        if kept is None:
            raise lost(f"this site's own threshold of round {number}")
        return kept.variate.threshold


def site_memory(
    plan: Plan, _layout: Layout, participant: ParticipantId, opened: Callable[[int | None], VariateMemory]
) -> SiteThresholds:
    """Return the kept thresholds of one site."""
    return SiteThresholds(plan, participant, opened(0))
