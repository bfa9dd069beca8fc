"""The groups of one site's training records, numbered as the plan tells, and what a sum takes of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.known_groups import group_names
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset
from fedfair.tables.feature_storage import blocks_of

Groups = NDArray[np.int64]
"""For every training record of one site the number of its group; array (n,)."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupSums:
    """The sums over the records of each group that a site adds; zeros in rounds in which nobody looks.

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
            losses: array (n,), in nats; None where nobody looks.
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
