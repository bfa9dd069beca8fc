"""Draws the batches of one round, as a function of seed, round, attempt, participant and step.

A simulation, a deployed site and a vectorised simulation draw the same batches because all of them ask here.
Taking the records is the business of `device.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fedfair.data.seeds import derived_seed, draw_batch
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import TrainingSection


def stated_batch_size(training: TrainingSection, count: int) -> int:
    """Return how many of `count` records a batch holds."""
    stated = training.batch_size
    return count if isinstance(stated, str) else min(stated, count)


def round_length(training: TrainingSection, count: int) -> int:
    """Return how many local steps a round has with `count` records, at least 1."""
    if training.local_epochs is None:
        return training.local_steps
    return training.local_epochs * math.ceil(count / stated_batch_size(training, count))


def round_weight(training: TrainingSection, count: int) -> int:
    """Return what a change made on `count` records weighs in a round: w_k = n_k, b_k or 1; 0 without records."""
    if count == 0:
        return 0
    return {"samples": count, "batch": stated_batch_size(training, count), "uniform": 1}[training.weights]


def round_draws(training: TrainingSection, count: int, number: RoundNumber, attempt: int) -> tuple[int, ...]:
    """Return what a site's batches of a round depend on, beside its records and the plan; nothing for all records.

    Two rounds with equal draws about one model are one and the same computation, of which no second sum over other
    sites may be opened. The order in which an epoch goes through all records in one batch counts for nothing.

    Args:
        training: batch_size.
        count: how many training records the site has, from 0 on.
        number: the round, from 1.
        attempt: which attempt at the round, from 1.
    """
    return () if stated_batch_size(training, count) == count else (int(number), attempt)


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
