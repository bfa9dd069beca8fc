"""Shows who is in the worst group: Table A.2 of the paper.

The worst group of a size is made of the records with the largest losses, the record on its edge in part; records
whose losses tie there belong to it with equal parts, whatever their order. Its members are counted by their group
and label, which only a simulation can do: it holds everybody's records.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.superquantile_weights import worst_weights

Shares = Mapping[tuple[str, int], float]
"""Share of each (group, label), adding up to 1."""


def everybody(groups: NDArray[np.generic], labels: NDArray[np.int64]) -> Shares:
    """Return the composition of all records.

    Args:
        groups: array (n,): the group of each record.
        labels: int64 array (n,).
    """
    return _shares(groups, labels, np.ones(len(labels)))


def worst_group(
    losses: NDArray[np.float64], groups: NDArray[np.generic], labels: NDArray[np.int64], group_size: float
) -> Shares:
    """Return the composition of the worst group.

    Args:
        losses: float64 array (n,), at least one.
        groups: array (n,).
        labels: int64 array (n,).
        group_size: share of all records (rho in the paper), in (0, 1].
    """
    equal = np.full(len(losses), 1.0 / len(losses))
    return _shares(groups, labels, worst_weights(losses, equal, group_size))


def distance(one: Shares, other: Shares) -> float:
    """Return half the sum of the absolute differences of two compositions' shares: 0 for the same, at most 1."""
    return sum(abs(one.get(kind, 0.0) - other.get(kind, 0.0)) for kind in {*one, *other}) / 2.0


def _shares(groups: NDArray[np.generic], labels: NDArray[np.int64], member: NDArray[np.float64]) -> Shares:
    kinds, place = np.unique(
        np.stack([groups.astype(str), labels.astype(str)], axis=1), axis=0, return_inverse=True
    )
    sums = np.bincount(place.ravel(), weights=member, minlength=len(kinds)) / member.sum()
    return {(str(group), int(label)): float(share) for (group, label), share in zip(kinds, sums, strict=True)}
