"""The draws of a plan's own model, such as for dropout: from the seed of its round, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.schema import Plan
from fedfair.tables.seeds import derived_seed
from fedfair.training.dp_sgd import RecordProtection


@contextmanager
def model_draws(
    plan: Plan,
    participant: ParticipantId,
    device: torch.device,
    protection: RecordProtection | None,
    round_number: RoundNumber,
    attempt: int,
) -> Iterator[None]:
    """Let the plan's own model draw from this round's seed in the block, and leave the global generators alone.

    The built-in models draw nothing, and are spared what saving two generators costs in every round.

    Args:
        plan: the plan.
        participant: whose round it is.
        device: of the model.
        protection: of single records by noise; None without.
        round_number: the training round.
        attempt: at the round, from 1.
    """
    if not isinstance(plan.task.model, str):
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        words = ("model", int(round_number), attempt)
        if protection is None:
            seed = derived_seed(plan.training.seed, *words, participant)
        else:
            # Anyone who knew which units drop out for which place in a batch could tell who is not in it.
            seed = protection.entropy(*words) % (1 << 63)
        torch.manual_seed(seed)
        yield
