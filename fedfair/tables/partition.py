"""Divides the records of one machine over collaborators.

Every record goes to exactly one collaborator, every collaborator gets at least one for training, and the same seed
deals the same way on every machine. Records that come in parts (train, test) are dealt part by part under one
rule, so that a collaborator's test records come from the same distribution as its training records. Schemes:
`column` (by a raw column), `label` (one class each, or classes dealt in turn), `random`, `dirichlet` (label skew:
class shares drawn from Dirichlet(alpha), Hsu, Qi and Brown 2019), `contiguous` (in file order).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.likeness import meant
from fedfair.plan.sources import Partition
from fedfair.tables.dataset import Dataset
from fedfair.tables.seeds import array_generator, generator
from fedfair.tables.text_table import listed

Owners = NDArray[np.int64]
"""For every record the index of its collaborator, in the plan's order; array (n,)."""

SHOWN_VALUES = 10


def deal(
    parts: Sequence[Dataset], rule: Partition, participants: Sequence[ParticipantId], seed: int
) -> dict[ParticipantId, list[Dataset]]:
    """Deal every part of the data to the collaborators.

    Args:
        parts: the training records, and then any others that are only evaluated on.
        rule: the plan's partition.
        participants: the collaborators, in the plan's order.
        seed: the plan's seed.

    Returns:
        For every collaborator its records of each part, in their original order; the first part is never empty.

    Raises:
        PlanError: the rule does not fit the data, or leaves a collaborator without training records.
    """
    owners = _owners(parts, rule, len(participants), seed, participants)
    counts = np.bincount(owners[0], minlength=len(participants))
    if not counts.all():
        without = ", ".join(name for name, count in zip(participants, counts, strict=True) if not count)
        raise PlanError(
            f"task.partition: scheme {rule.scheme} leaves no training records to {without} "
            f"({len(parts[0])} records for {len(participants)} collaborators)",
            "name fewer collaborators or choose another scheme",
        )
    shares = [_shares(owner, len(participants)) for owner in owners]
    return {
        name: [part.take(share[k]) for part, share in zip(parts, shares, strict=True)]
        for k, name in enumerate(participants)
    }


def _shares(owners: Owners, count: int) -> list[NDArray[np.int64]]:
    """Return the records of each collaborator in their order, from one sort instead of a search for each."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owners, minlength=count))[:-1])


def _owners(
    parts: Sequence[Dataset], rule: Partition, count: int, seed: int, participants: Sequence[ParticipantId]
) -> list[Owners]:
    if rule.scheme == "column":
        return _by_column([_column(part, rule.column) for part in parts], rule.column or "", participants)
    if rule.scheme in {"label", "dirichlet"} and (not parts[0].schema.classes or parts[0].labels.ndim > 1):
        raise PlanError(
            f"task.partition: scheme {rule.scheme} deals classes, and these records have none",
            "use random, contiguous or column",
        )
    if rule.scheme == "label":
        return [_by_label(part.labels, part.schema.classes, count) for part in parts]
    if rule.scheme == "dirichlet":
        shares = _dirichlet_shares(parts[0].schema.classes, count, rule.alpha or 1.0, seed)
        return [_by_shares(part.labels, shares, seed, place) for place, part in enumerate(parts)]
    fractions = np.full(count, 1 / count) if rule.fractions is None else np.asarray(rule.fractions)
    if rule.scheme == "contiguous":
        return [_in_order(len(part), fractions) for part in parts]
    return [_in_order(len(part), fractions)[_shuffled(len(part), seed, place)] for place, part in enumerate(parts)]


def _by_column(
    columns: Sequence[NDArray[np.generic]], name: str, participants: Sequence[ParticipantId]
) -> list[Owners]:
    """Give each value of the column to the collaborator of that name, or, in sorted order, to the next one.

    Names are compared as the plan writes them: lower case, with '-' for anything but letters and digits.
    """
    values = np.unique(np.concatenate([np.asarray(column) for column in columns]))
    texts = [_as_name(value) for value in values]
    if set(texts) & set(participants):
        unmatched = sorted(set(texts) ^ set(participants))
        if unmatched or len(texts) != len(set(texts)):
            raise PlanError(
                f"task.partition.column: '{name}' and federation.collaborators do not name the same: "
                f"{listed(unmatched or sorted(texts), SHOWN_VALUES)}",
                f"name the collaborators {listed(texts, SHOWN_VALUES)}",
            )
        places = {name: place for place, name in enumerate(participants)}
        order = np.array([places[ParticipantId(text)] for text in texts])
    elif len(values) == len(participants):
        order = np.arange(len(values))
    else:
        raise PlanError(
            f"task.partition.column: '{name}' has {len(values)} values ({listed(texts, SHOWN_VALUES)}), "
            f"the plan names {len(participants)} collaborators",
            "name one collaborator for each value",
        )
    return [order[np.searchsorted(values, column)] for column in columns]


def _column(part: Dataset, name: str | None) -> NDArray[np.generic]:
    if name is None or name not in part.columns:
        known = sorted(part.columns)
        close = meant(name or "", known)
        hint = f"did you mean '{close}'?" if close else f"columns that were kept: {', '.join(known) or 'none'}"
        raise PlanError(f"task.partition.column: there is no column '{name}' to divide the records by", hint)
    return part.columns[name]


def _as_name(value: object) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(value).lower()).strip("-") or "unknown"


def _by_label(labels: NDArray[np.int64], classes: int, count: int) -> Owners:
    """Deal collaborators and classes in turn until both are used up; who shares a class shares it evenly."""
    owners = np.empty(len(labels), np.int64)
    for label in range(classes):
        takers = [turn % count for turn in range(max(classes, count)) if turn % classes == label]
        members = np.flatnonzero(labels == label)
        owners[members] = np.array(takers)[np.arange(len(members)) * len(takers) // max(1, len(members))]
    return owners


def _dirichlet_shares(classes: int, count: int, alpha: float, seed: int) -> NDArray[np.float64]:
    """Return each collaborator's share of every class: float array (classes, count), rows adding up to 1."""
    return array_generator(seed, "partition", "dirichlet").dirichlet(np.full(count, alpha), classes)


def _by_shares(labels: NDArray[np.int64], shares: NDArray[np.float64], seed: int, place: int) -> Owners:
    """Cut every shuffled class by its shares; then give every site without a record one from the largest."""
    owners = np.empty(len(labels), np.int64)
    order = _shuffled(len(labels), seed, place)
    for label, row in enumerate(shares):
        members = order[labels[order] == label]
        owners[members] = _in_order(len(members), row)
    counts = np.bincount(owners, minlength=shares.shape[1])
    for k in np.flatnonzero(counts == 0) if place == 0 else ():
        largest = int(np.argmax(counts))
        if counts[largest] > 1:
            owners[np.flatnonzero(owners == largest)[0]] = k
            counts[largest], counts[k] = counts[largest] - 1, 1
    return owners


def _in_order(n: int, fractions: NDArray[np.float64]) -> Owners:
    """Cut 0..n-1 into consecutive stretches in these proportions, each within one record of exact."""
    ends = np.rint(np.cumsum(fractions) / np.sum(fractions) * n)
    return np.searchsorted(ends, np.arange(n), side="right").astype(np.int64)


def _shuffled(n: int, seed: int, place: int) -> NDArray[np.int64]:
    order: NDArray[np.int64] = torch.randperm(n, generator=generator(seed, "partition", place)).numpy()
    return order
