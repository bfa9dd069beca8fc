"""Draws the batches of one round, as a function of seed, round, attempt, participant and step.

A simulation, a deployed site and a vectorised simulation draw the same batches because all of them ask here.
Taking the records is the business of `device.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.local_rounds import stated_batch_size
from fedfair.plan.sections import TrainingSection
from fedfair.tables.seeds import derived_seed, draw_batch


def batch_indices(
    training: TrainingSection,
    participant: ParticipantId,
    count: int,
    number: RoundNumber,
    attempt: int,
    source: torch.Generator | None = None,
) -> Iterator[Tensor | None]:
    """Yield, for every local step of a round, the indices of its batch.

    Args:
        training: batch_size, local_steps or local_epochs, resample and seed.
        participant: whose records they are.
        count: how many training records it has, at least 1.
        number: the round, from 1.
        attempt: which attempt at the round, from 1.
        source: a CPU generator, seeded again for every draw, so that many iterators may share one; None makes one.

    Returns:
        int64 tensors (batch,) on the CPU; None where the batch is all records in their own order.
    """
    size = stated_batch_size(training, count)
    source = torch.Generator() if source is None else source

    def seeded(step: int) -> torch.Generator:
        return source.manual_seed(derived_seed(training.seed, "batch", int(number), attempt, participant, step))

    if training.local_epochs is not None:
        for epoch in range(training.local_epochs):
            order = torch.randperm(count, generator=seeded(epoch))
            yield from torch.split(order, size)
    elif size == count:
        for _ in range(training.local_steps):
            yield None
    elif training.resample == "round":
        indices = draw_batch(seeded(0), count, size)
        for _ in range(training.local_steps):
            yield indices
    else:
        for step in range(training.local_steps):
            yield draw_batch(seeded(step), count, size)
