"""What stands for the draws of a contribution: 32 bytes that a site compares, whatever its values become."""

from __future__ import annotations

import hashlib

from fedfair.ids import RoundNumber
from fedfair.plan.derived import reference_of
from fedfair.plan.local_rounds import reference_draws, round_draws
from fedfair.plan.schema import Plan
from fedfair.privacy.noise import Entropy
from fedfair.signed_message import labelled_message
from fedfair.statistics.table import Purpose


def contribution_draws(
    plan: Plan,
    training_records: int,
    entropy: Entropy | None,
    purpose: Purpose,
    round_number: RoundNumber,
    attempt: int,
) -> bytes:
    """Return 32 bytes that stand for what is drawn for a contribution, whatever its values become.

    They are equal where the same records are in the same batches. A contribution under noise has draws of its
    own each time. What a "module:function" draws does not count, because it may draw nothing.

    Args:
        plan: the plan.
        training_records: how many the site has.
        entropy: of the site's noise; None where the plan asks for no differential privacy.
        purpose: of the sum.
        round_number: the round, or which sum of the references it is.
        attempt: which attempt at the sum, from 1, by this site's own count.
    """
    words: tuple[int, ...] = ()
    if entropy is not None:
        words = (entropy("draws", purpose.value, int(round_number), attempt),)
    elif purpose.statistic.is_round:
        words = round_draws(plan.training, training_records, round_number, attempt)
    elif purpose.statistic.draws_anew:
        words = reference_draws(reference_of(plan), training_records, int(round_number), attempt)
    return hashlib.sha256(labelled_message("fedfair/draws/v1", [str(word).encode() for word in words])).digest()
