"""The groups of the training records of all sites of a simulation: their weights, and what a sum takes of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import SumRequest
from fedfair.ids import RoundNumber
from fedfair.plan.known_groups import group_count
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset
from fedfair.terms.group_weights.site import GroupSums, record_groups
from fedfair.terms.group_weights.state import GroupRule


class PooledGroups:
    """The known groups of all sites.

    Args:
        plan: a plan whose sums tell of groups.
        records: the training records of each site.
    """

    def __init__(self, plan: Plan, records: Sequence[Dataset]) -> None:
        self._count = group_count(plan, records[0].schema.classes)
        self._rule = GroupRule(plan, self._count)
        self._groups = [found for each in records if (found := record_groups(plan, each)) is not None]

    def factors(self, request: SumRequest, members: Sequence[int]) -> list[NDArray[np.float64]] | None:
        """Return what every record of each member is multiplied by, array (n,) each; None for nothing."""
        told = request.terms.get("groups")
        return None if told is None else [told.factors[self._groups[member]] for member in members]

    def looks_in(self, number: RoundNumber) -> bool:
        """Return whether a round's sum tells of groups."""
        return self._rule.looks_in(number)

    def add_to(self, sums: NDArray[Any], losses: NDArray[np.floating]) -> None:
        """Write the records of each group, and their losses in nats, (n,) of all sites, into a header."""
        told = GroupSums.of_losses(np.concatenate(self._groups), losses, self._count)
        sums["group_counts"], sums["group_losses"] = told.counts, told.losses
