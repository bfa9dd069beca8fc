"""The batches of a group of collaborators, side by side in one tensor, step by step.

Decides how unequal batches are padded: with a record of the same collaborator whose coefficient is zero. Which
records are drawn is `batches.py`'s decision, so that the batches are those of a deployed site.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.sections import TrainingSection
from fedfair.simulation.vectorised.pool import Pool
from fedfair.training.batches import batch_indices
from fedfair.training.device import SplitRecords

NOTHING = torch.empty(0, dtype=torch.int64)
"""The batch of somebody who has made all its steps."""


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """The batches of one local step of a group.

    Attributes:
        features: tensor (k, b, columns) on the device.
        labels: the records' answers, tensor (k, b, *targets).
        factors: tensor (k, b) by which coefficients are multiplied, 0 for padding; None for 1 everywhere.
        active: tensor (k, 1): 0 for those who have made all their steps, else 1; None for 1 everywhere.
    """

    features: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    factors: Tensor | None = field(repr=False)
    active: Tensor | None = field(repr=False)


def group_batches(
    training: TrainingSection,
    pool: Pool,
    members: Sequence[tuple[int, ParticipantId]],
    number: RoundNumber,
    attempt: int,
    weights: Sequence[Tensor] | None,
) -> Iterator[GroupBatch]:
    """Yield the batches of a group, for every local step of a round.

    Args:
        training: how batches are drawn.
        pool: all training records.
        members: who is in the group, number and name, in its order.
        number: the round.
        attempt: which attempt at the round.
        weights: for each member a tensor (its records,) on the device, by which coefficients are multiplied; None
            for 1.
    """
    places = [place for place, _ in members]
    starts = torch.from_numpy(pool.starts[places])
    counts = np.diff(pool.starts)[places].tolist()
    source = torch.Generator()
    draws = [
        batch_indices(training, name, count, number, attempt, source)
        for (_, name), count in zip(members, counts, strict=True)
    ]
    record_weights = None if weights is None else pad_sequence(list(weights), batch_first=True)
    last: Sequence[Tensor | None] = ()
    batch: GroupBatch | None = None
    for drawn in itertools.zip_longest(*draws, fillvalue=NOTHING):
        # A batch of all records, and one that is kept for the whole round, is gathered once.
        if batch is None or not all(map(operator.is_, drawn, last)):
            batch = _gather(pool.records, _whole(drawn, counts), starts, record_weights)
        last = drawn
        yield batch


def _whole(drawn: Sequence[Tensor | None], counts: Sequence[int]) -> list[Tensor]:
    return [
        torch.arange(count) if indices is None else indices for indices, count in zip(drawn, counts, strict=True)
    ]


def _gather(
    records: SplitRecords, drawn: list[Tensor], starts: Tensor, record_weights: Tensor | None
) -> GroupBatch:
    """Return the records at the indices of each collaborator, padded with the first record of each."""
    sizes = [len(indices) for indices in drawn]
    even = min(sizes) == max(sizes)
    table = torch.stack(drawn) if even else pad_sequence(drawn, batch_first=True)
    features, labels = records.take((table + starts[:, None]).flatten())
    factors, active = None, None
    if not even:
        factors, active = _padding(torch.tensor(sizes), table.shape[1], features)
    if record_weights is not None:
        weights = record_weights.gather(1, table.to(record_weights.device))
        factors = weights if factors is None else factors * weights
    answers = labels.view(*table.shape, *labels.shape[1:])
    return GroupBatch(features.view(*table.shape, -1), answers, factors, active)


def _padding(sizes: Tensor, width: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return what makes a mean over `width` records one over the first `size`, and who has any."""
    column = sizes[:, None].to(like)
    factors = (torch.arange(width) < sizes[:, None]).to(like) * (width / column.clamp(min=1))
    return factors, None if bool(sizes.all()) else (column > 0).to(like)
