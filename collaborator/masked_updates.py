"""What a site adds to masked sums: the update of each, and its upload by secure aggregation.

Decides nothing about whether it may: `masked_worker.py` has asked the site's policy before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from collaborator.run_follower import RunFollower
from collaborator.worker import WorkerSums
from fedfair.aggregation.masked_encoding import HeaderParts
from fedfair.aggregation.requests import SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.process.kept_memory import nothing_kept
from fedfair.secagg.client import Contributing
from fedfair.secagg.effects import SiteEffect
from fedfair.secagg.fixedpoint import decode_body
from fedfair.secagg.masking import Update
from fedfair.secagg.participant import Participant
from fedfair.statistics.table import Purpose
from fedfair.terms.at_sites import SiteMemory
from fedfair.training.client import TrainingClient
from fedfair.training.masked_update import header_update, noised_update, training_update


class MaskedUpdates:
    """The updates of one site in masked sums.

    Args:
        task: what computes.
        parts: of the plain header of every sum.
        participant: this site in secure aggregation.
        follower: this site's copy of the run.
        sums: told what was wrong with an update.
        memory: what it keeps of the rounds that counted it; None where the plan needs nothing of the kind.
        is_noised: whether training sums carry noise for whole collaborators.
    """

    def __init__(
        self,
        task: TrainingClient,
        parts: Mapping[Purpose, HeaderParts],
        participant: Participant,
        follower: RunFollower,
        sums: WorkerSums,
        memory: SiteMemory | None,
        *,
        is_noised: bool,
    ) -> None:
        self._task, self._parts, self._participant = task, parts, participant
        self._follower, self._sums, self._memory = follower, sums, memory
        self._is_noised = is_noised

    def effects(self, request: SumRequest, attempt: int) -> list[SiteEffect]:
        """Return the upload of this site's update, or of nothing where it has no records.

        Raises:
            TrainingError: its weight is beyond the plan's; no other number makes a site leave.
            SecaggError: it must not leave this site.
        """
        draws = self._task.draws(request.purpose, request.round, attempt)
        request = replace(request, attempt=attempt)
        if self._memory is not None and request.purpose.statistic.is_round:
            return self._remembering(request, self._memory, draws)
        update = self._update(request)
        if update is None:
            return self._participant.abstain(draws)
        return self._participant.contribute(update, draws)

    def _remembering(self, request: SumRequest, memory: SiteMemory, draws: bytes) -> list[SiteEffect]:
        """Return the upload of a change whose steps needed what this site remembers.

        What its memory becomes by it is on the disk before the upload is in the log, and so before it is sent. It
        follows from what is really added: the elements of the ring before they are masked.
        """
        model = self._follower.replica.state.model
        remembered = memory.correction(request, model, self._task.training_weight)
        change = self._task.summable_change(model, request.round, request.attempt, remembered)
        self._sums.fault = self._task.last_fault
        if change is None:
            effects = self._participant.abstain(draws)
            memory.adding(request, model, 0, np.zeros(0), 0.0)
            return effects
        phase, encoded = self._participant.phase, np.empty(change.model.size, np.uint32)
        if not isinstance(phase, Contributing):
            raise LocalProtocolError("no update is due; wait for Contribute")
        effects = self._participant.contribute(training_update(change), draws, encoded)
        added = decode_body(encoded, phase.code, np.dtype(np.float64))
        added /= change.weight
        memory.adding(request, model, change.weight, added, change.threshold)
        return effects

    def _update(self, request: SumRequest) -> Update | None:
        model, number, attempt = self._follower.replica.state.model, request.round, request.attempt
        kind = request.purpose.statistic
        if kind.is_round and self._is_noised:
            numbers = self._task.noised_numbers(model, number, attempt)
            self._sums.fault = self._task.last_fault
            return noised_update(numbers)
        if kind.is_round:
            change = self._task.summable_change(model, number, attempt)
            self._sums.fault = self._task.last_fault
            return None if change is None else training_update(change)
        # An evaluation takes more than a round, and other lengths.
        with nothing_kept(model.vector.nbytes):
            contribution = self._task.contribution(request, model)
        self._sums.fault = self._task.last_fault
        return header_update(contribution, self._parts[request.purpose])
