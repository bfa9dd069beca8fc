"""How long one round is at a site, how large its batches are, and what its change weighs."""

from __future__ import annotations

import math

from fedfair.ids import RoundNumber
from fedfair.plan.sections import ReferenceSection, TrainingSection


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


def reference_draws(stated: ReferenceSection, count: int, number: int, attempt: int) -> tuple[int, ...]:
    """Return the same of a sum of the references, whose batches are of the records outside one fold.

    Args:
        stated: batch_size and folds.
        count: how many training records the site has, from 0 on.
        number: the sum, from 1.
        attempt: which attempt at it, from 1.
    """
    return () if stated.batch_size >= count - count // stated.folds else (number, attempt)
