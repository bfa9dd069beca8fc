"""The local steps of one round at one site: its batches, its draws, and what the steps change.

The steps are `local_sgd.py`'s or, where single records are protected, `privacy.sample_level`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import LocalProtocolError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.learning_rates import local_rates
from fedfair.plan.local_rounds import round_length, round_weight, stated_batch_size
from fedfair.plan.schema import Plan
from fedfair.privacy.batch_parts import ALONE
from fedfair.privacy.planned_releases import training_release
from fedfair.privacy.sample_level import PrivateSteps
from fedfair.tables.seeds import derived_seed
from fedfair.terms.at_sites import NOTHING, Remembered, SiteTerms
from fedfair.terms.drift import Drift
from fedfair.terms.local_change import LocalChange
from fedfair.terms.table import training_layout
from fedfair.training.assembly import local_steps
from fedfair.training.batches import batch_indices
from fedfair.training.device import SplitRecords, plain_arithmetic
from fedfair.training.dp_sgd import PoissonBatches, RecordProtection
from fedfair.training.local_records import LocalRecords
from fedfair.training.local_sgd import Batch, LocalSteps
from fedfair.training.model_faults import training_faults


class LocalDescent:
    """The local steps of one site.

    Args:
        records: of the site, with its model.
        terms: of the plan, at this site.
        steps: how a step is made; by default as the plan says.
        protection: what its records are protected with; None where the plan asks for no differential privacy.

    Attributes:
        header: the layout of the training sum's.
        kept: array (k,), what the last steps left in the part of the model that stays here; None without one.
    """

    def __init__(
        self,
        records: LocalRecords,
        terms: SiteTerms,
        steps: LocalSteps | PrivateSteps | None,
        protection: RecordProtection | None,
    ) -> None:
        plan, schema = records.plan, records.splits.train.schema
        self.records, self._terms, self._protection = records, terms, protection
        self._plan, self._model = plan, records.model
        self._steps = steps or local_steps(plan, records.model, schema, records.parts)
        self.header = training_layout(plan, schema.classes)
        self.kept: NDArray[np.floating] | None = None

    @property
    def weight(self) -> int:
        """Return what this site's change of the model weighs in a round."""
        return round_weight(self._plan.training, len(self.records.splits.train))

    def training_change(
        self,
        model: GlobalModel,
        round_number: RoundNumber,
        attempt: int,
        *,
        remembered: Remembered = NOTHING,
        steps: int | None = None,
        record_weights: NDArray[np.floating] | None = None,
    ) -> LocalChange | None:
        """Return what this round's local steps change, not yet weighted; None without training records.

        Args:
            model: what was broadcast.
            round_number: the round, which decides the batches.
            attempt: which attempt at the round, which decides them too.
            remembered: what this site has kept of earlier rounds.
            steps: only the first so many local steps; None makes all of them.
            record_weights: array (training records,): by how much each record's coefficient is multiplied.

        Raises:
            TrainingError: the gradients cannot be represented in the plan's precision.
        """
        records = self.records.trained_on
        weight = self.weight
        if weight == 0:
            return None
        asked = {"remembered": remembered, "steps": steps, "record_weights": record_weights}
        self.records.parts.lead("training_change", model, round_number, attempt, **asked)
        own = self._model
        self.records.begin_kept(remembered.kept)
        self.records.load(model)
        if not own.training:
            own.train()
        start = remembered.start(model.threshold) / self.records.loss_unit
        threshold = torch.tensor(start, dtype=own.flat.dtype, device=own.flat.device)
        drawn = model_draws(
            self._plan, self.records.participant, self._model.flat.device, self._protection, round_number, attempt
        )
        with drawn, training_faults(), plain_arithmetic():
            if record_weights is None:
                record_weights = self._terms.record_weights(remembered)
            weights = None if record_weights is None else torch.as_tensor(record_weights).to(own.flat)
            moved = self._moved(records, round_number, attempt, weights, steps, threshold, remembered)
        # Both thresholds are rounded to the device's width, so that no step means no change, exactly.
        moved_by = (float(moved) - float(threshold)) * self.records.loss_unit
        self.kept = None if own.kept is None else own.kept.values()
        return LocalChange(weight, moved_by, own.take_change(), further=remembered.further, layout=self.header)

    def noise_alone(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> LocalChange | None:
        """Return what a round's private steps change with empty batches; None where no record is protected.

        A site whose training has failed adds this: zeros without noise would show that it failed.
        `training_change` has written the release down already.
        """
        descent = self._steps_of(round_number)
        if isinstance(descent, LocalSteps) or self._protection is None:
            return None
        records, own = self.records.placed["train"], self._model
        self.records.load(model)
        threshold = torch.tensor(
            model.threshold / self.records.loss_unit, dtype=own.flat.dtype, device=own.flat.device
        )
        nothing = Batch(*records.take(torch.empty(0, dtype=torch.int64)))
        expected = stated_batch_size(self._plan.training, len(records))
        batches = [nothing] * round_length(self._plan.training, len(records))
        noise = self._protection.draws("noise", int(round_number), attempt)
        with plain_arithmetic():
            moved = replace(descent, parts=ALONE).descend(batches, threshold, expected, noise)
        moved_by = (float(moved) - float(threshold)) * self.records.loss_unit
        return LocalChange(self.weight, moved_by, own.take_change(), layout=self.header)

    def _moved(
        self,
        records: SplitRecords,
        number: RoundNumber,
        attempt: int,
        weights: Tensor | None,
        steps: int | None,
        threshold: Tensor,
        remembered: Remembered,
    ) -> Tensor:
        """Make one round's steps; return the threshold after them. A release by private ones is written down."""
        protection, descent = self._protection, self._steps_of(number)
        if isinstance(descent, LocalSteps):
            batches = itertools.islice(self.batches(records, number, attempt, weights), steps)
            return descent.descend(records.ahead(batches), threshold, self._drift(remembered))
        if protection is None:
            raise LocalProtocolError("private steps need entropy and a ledger")
        if weights is not None or steps is not None:
            raise LocalProtocolError(
                "private steps are all the steps of a round, and weigh by the objective alone"
            )
        protection.record(training_release(self._plan, len(records)))
        training, noise = self._plan.training, protection.draws("noise", int(number), attempt)
        samples = PoissonBatches(records, training, protection.draws("batch", int(number), attempt))
        return descent.descend(samples, threshold, stated_batch_size(training, len(records)), noise)

    def _steps_of(self, number: RoundNumber) -> LocalSteps | PrivateSteps:
        """Return how a step of a round is made."""
        return self._steps.at(local_rates(self._plan, number))

    def _drift(self, remembered: Remembered) -> Drift | None:
        """Return the correction by control variates on the model's device, in its width; None without any."""
        if remembered.drift is None:
            return None
        vector, addend = remembered.drift
        like = self._model.flat
        threshold = torch.tensor(addend, dtype=like.dtype, device=like.device)
        return Drift(torch.from_numpy(vector).to(like), threshold)

    def batches(
        self, records: SplitRecords, number: RoundNumber, attempt: int, weights: Tensor | None = None
    ) -> Iterator[Batch]:
        """Yield the batches of one round, each record with its weight where there are weights."""
        everything: Batch | None = None
        for indices in batch_indices(self._plan.training, self.records.participant, len(records), number, attempt):
            if indices is None:
                everything = everything or Batch(*records.everything(), weights)
                yield everything
            else:
                taken = None if weights is None else weights[indices.to(weights.device)]
                yield Batch(*records.take(indices), taken)


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
