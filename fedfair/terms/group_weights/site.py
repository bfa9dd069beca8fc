"""The groups of one site's training records, numbered as the plan tells, and what a sum takes of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.errors import DataError, LocalProtocolError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.known_groups import group_names
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset
from fedfair.tables.feature_storage import blocks_of
from fedfair.terms.at_sites import AddedChange, FinishedRound, Remembered, SiteMemory, SiteTerm
from fedfair.terms.group_weights.state import GroupRule, GroupWeights
from fedfair.terms.local_change import LocalChange

Groups = NDArray[np.int64]
"""For every training record of one site the number of its group; array (n,)."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupSums:
    """The sums over each group that a site adds; zeros in rounds in which the adversary does not look.

    Attributes:
        counts: float64 array (groups,), its training records.
        losses: float64 array (groups,), the sums of their losses in nats.
    """

    counts: NDArray[np.float64] = field(repr=False)
    losses: NDArray[np.float64] = field(repr=False)

    @classmethod
    def of_losses(cls, groups: Groups, losses: NDArray[np.floating] | None, count: int) -> GroupSums:
        """Return the sums over records; zeros without losses.

        Args:
            groups: of the records.
            losses: array (n,), in nats; None in rounds in which the adversary does not look.
            count: how many groups there are.
        """
        if losses is None:
            return cls(np.zeros(count), np.zeros(count))
        counts = np.bincount(groups, minlength=count).astype(np.float64)
        return cls(counts, np.bincount(groups, losses, count).astype(np.float64))


def record_groups(plan: Plan, records: Dataset) -> Groups | None:
    """Return the group of every record; None where the plan tells of no groups.

    Raises:
        DataError: the records lack a feature that the plan's category becomes.
    """
    names = group_names(plan, records.schema.classes)
    if not names:
        return None
    if plan.training.options.group_column is None:
        return records.labels
    missing = sorted(set(names) - set(records.schema.names))
    if missing:
        raise DataError(f"the records have no feature {', '.join(missing)}, which their groups are read from")
    places = [records.schema.names.index(name) for name in names]
    return np.concatenate(
        [np.argmax(block[:, places], axis=1).astype(np.int64) for block in blocks_of(records.features)]
    )


@dataclass(frozen=True, slots=True, eq=False)
class GroupFactors(Remembered):
    """The factors by which the state of the run weighs groups; a site remembers nothing of its own for it.

    Attributes:
        factors: float64 array (groups,), by which every record's coefficient is multiplied.
    """

    factors: NDArray[np.float64] = field(repr=False)


class WeighedGroups(SiteTerm):
    """The weighing of one site's records by their groups, and what the sum takes of each group.

    Args:
        plan: a plan whose sums tell of groups.
        records: the site's training records.
    """

    def __init__(self, plan: Plan, records: Dataset) -> None:
        names = group_names(plan, records.schema.classes) or ()
        self._rule, self._count = GroupRule(plan, len(names)), len(names)
        self._groups = record_groups(plan, records)

    def takes_losses(self, number: RoundNumber) -> bool:
        """Return whether the adversary looks in a round."""
        return self._rule.looks_in(number)

    def record_weights(self, remembered: Remembered) -> NDArray[np.float64] | None:
        """Return mu_a / rho_a of every record's group: array (n,)."""
        if self._groups is None or not isinstance(remembered, GroupFactors):
            return None
        weights: NDArray[np.float64] = remembered.factors[self._groups]
        return weights

    def finished(self, change: LocalChange, about: FinishedRound) -> LocalChange:
        """Return the change with the records and the losses of every group beside it."""
        if self._groups is None or not isinstance(about.remembered, GroupFactors):
            return change
        sums = GroupSums.of_losses(self._groups, about.losses, self._count)
        told = {"group_counts": sums.counts, "group_losses": sums.losses}
        return replace(change, further={**change.further, **told})


def site_term(plan: Plan, records: Dataset) -> WeighedGroups:
    """Return the weighing of a site's records."""
    return WeighedGroups(plan, records)


class StatedGroups(SiteMemory):
    """The weights of groups, which are the state's; a site keeps nothing for them."""

    def correction(self, request: SumRequest, model: GlobalModel, weight: int) -> GroupFactors:
        """Return the factors of groups; see `SiteMemory.correction`. Raises LocalProtocolError without any."""
        del model, weight
        held = request.terms.get("groups")
        if not isinstance(held, GroupWeights):
            raise LocalProtocolError(f"a request for {request.purpose.value} weighs no groups")
        return GroupFactors(held.factors)

    def adding(self, request: SumRequest, model: GlobalModel, added: AddedChange) -> None:
        """Keep nothing; see `SiteMemory.adding`."""


def site_memory(
    _plan: Plan, _layout: Layout, _participant: ParticipantId, _opened: Callable[[int | None], object]
) -> StatedGroups:
    """Return what reads the weights of groups from the state."""
    return StatedGroups()
