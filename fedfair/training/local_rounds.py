"""One site's part in a round of training: its change of the model and of the threshold, bounded and weighed.

Decides what is added where training fails or a value cannot be summed. The steps are `local_descent.py`'s.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution, count_unsound
from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import LocalProtocolError, TrainingError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import threshold_limit
from fedfair.terms.at_sites import NOTHING, FinishedRound, Remembered, SiteTerms
from fedfair.terms.local_change import LocalChange, weighted
from fedfair.training.dp_sgd import RecordProtection
from fedfair.training.local_descent import LocalDescent
from fedfair.training.local_records import LocalRecords


class LocalRounds:
    """The training rounds of one site.

    Args:
        records: of the site, with its model.
        descent: its local steps.
        terms: of the plan, at this site.
        protection: what its records are protected with; None where the plan asks for no differential privacy.
    """

    def __init__(
        self,
        records: LocalRecords,
        descent: LocalDescent,
        terms: SiteTerms,
        protection: RecordProtection | None,
    ) -> None:
        plan = records.plan
        self._records, self._descent, self._terms, self._protection = records, descent, terms, protection
        self._noised = distributed_dp(plan, records.model.layout.dimension)
        self._threshold_limit = threshold_limit(plan, records.splits.train.schema.classes)

    def contribution(
        self,
        model: GlobalModel,
        round_number: RoundNumber,
        attempt: int,
        remembered: Remembered = NOTHING,
    ) -> Contribution:
        """Return w, w * change of c, and w * change of theta, after this round's local steps.

        Raises:
            TrainingError: as `bounded_change`.
        """
        change = self.bounded_change(model, round_number, attempt, remembered)
        if change is None:
            return Contribution(self._descent.header.zeros(), np.zeros_like(model.vector))
        return weighted(change)

    def bounded_change(
        self,
        model: GlobalModel,
        round_number: RoundNumber,
        attempt: int,
        remembered: Remembered = NOTHING,
    ) -> LocalChange | None:
        """Return `training_change` with the change of c clipped to `derived.threshold_limit`.

        None for a site without training records, which adds zeros. Where single records are protected and training
        fails, it is noise alone: to leave would tell of a record.

        Raises:
            TrainingError: the model fails on a batch, or its gradients exceed the plan's precision.
        """
        if self._noised is not None:
            raise LocalProtocolError(
                "this plan adds noised whole numbers, and no change leaves a site without them"
            )
        self._records.fault = ""
        self._records.begin_kept(remembered.kept)
        losses, _ = self._training_losses(model, round_number)
        try:
            change = self._descent.training_change(model, round_number, attempt, remembered=remembered)
        except TrainingError as fault:
            change = self._descent.noise_alone(model, round_number, attempt)
            if change is None:
                raise
            self._records.fault = fault.diagnostics()
        if change is None:
            return None
        threshold = float(np.clip(change.threshold, -self._threshold_limit, self._threshold_limit))
        about = FinishedRound(model, round_number, remembered, losses, self._records.loss_unit)
        return self._terms.finished(replace(change, threshold=threshold), about)

    def summable_change(
        self,
        model: GlobalModel,
        round_number: RoundNumber,
        attempt: int,
        remembered: Remembered = NOTHING,
    ) -> LocalChange | None:
        """Return `training_change` for a masked sum, which this site never leaves because of a value.

        Where training fails, every change is 0, with the weight as it is; where single records are protected, it
        is noise alone, and a release like any other round. The change of the threshold is clipped. NaN and
        infinities in the change of the model stay: what encodes it replaces and counts them. `last_fault` says
        what was wrong.

        Raises:
            PrivacyError: the release must not happen.
        """
        self._records.fault = ""
        self._records.begin_kept(remembered.kept)
        losses, replaced = self._training_losses(model, round_number)
        try:
            change = self._descent.training_change(model, round_number, attempt, remembered=remembered)
        except TrainingError as fault:
            self._records.fault = fault.diagnostics()
            zeros = np.zeros_like(model.vector)
            # Under noise nothing is counted: what became of single records would need noise of its own.
            change = self._descent.noise_alone(model, round_number, attempt) or LocalChange(
                self._descent.weight, 0.0, zeros, zeros.size + 1, remembered.further, self._descent.header
            )
        if change is None:
            return None
        limit = self._threshold_limit
        threshold = 0.0 if math.isnan(change.threshold) else min(max(change.threshold, -limit), limit)
        beyond = int(threshold != change.threshold)
        unsound = count_unsound(change.model) + beyond
        if unsound and not self._records.fault:
            self._records.fault = (
                f"{unsound} values of this site's change are NaN, infinite or beyond their bound; they were "
                "replaced and counted -> lower learning_rate, or look for missing or extreme values in the data"
            )
        if self._terms.whole and count_unsound(change.model):
            # The curvature is of the whole change, so none of it counts where it is not known.
            change.model.fill(0.0)
            replaced += change.model.size
        change = replace(change, threshold=threshold, replaced=change.replaced + replaced + beyond)
        return self._terms.finished(
            change, FinishedRound(model, round_number, remembered, losses, self._records.loss_unit)
        )

    def noised_numbers(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> NDArray[np.int64]:
        """Return the whole numbers that this site adds to a sum that protects it, its share of noise included.

        Whatever the data, the site takes part: without records, and where training fails, it adds noise alone.

        Raises:
            PrivacyError: the release must not happen; no noise was drawn.
        """
        noised, protection = self._noised, self._protection
        if noised is None or protection is None:
            raise LocalProtocolError("the plan asks for no differential privacy of collaborators")
        protection.record(noised.sums.release(1))
        vector, self._records.fault = np.zeros(noised.sums.length), ""
        try:
            change = self._descent.training_change(model, round_number, attempt)
        except TrainingError as fault:
            # To leave the sum would tell the others something of these data.
            change, self._records.fault = None, fault.message
        if change is not None:
            vector = noised.vector(change.model, change.threshold)
        if not np.isfinite(vector).all():
            self._records.fault = (
                "the change of the model holds values that are NaN or infinite; lower learning_rate"
            )
        return noised.sums.contribution(vector, protection.entropy("collaborator", int(round_number), attempt))

    def _training_losses(self, model: GlobalModel, number: RoundNumber) -> tuple[NDArray[np.floating] | None, int]:
        """Return the losses of the training records, array (n,), and how many of them had to be replaced.

        The losses are None in a round whose sum tells nothing of them, and without training records.
        """
        if not len(self._records.splits.train) or not self._terms.takes_losses(number):
            return None, 0
        losses, replaced = self._records.summable_losses(model, ("train",))
        return losses["train"].values, replaced
