"""One collaborator's part in every sum: what it adds, computed from its own records and the broadcast model.

Decides which records make up a batch, what a site weighs, and what the segments of a contribution hold. The steps
are `local_sgd.py`'s, the shapes `requests.py`'s. A contribution is a function of (plan, records, model, request),
so that a simulation and a deployed site compute the same one. `assembly.py` says what a plan's words mean.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.evaluation_sums import confused_classes, planned_layout
from fedfair.aggregation.loss_histogram import SPLITS, bounded_losses
from fedfair.aggregation.loss_metrics import bounded_figures, figure_count
from fedfair.aggregation.quantile_query import QueryStep, exact_header
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest, histogram_spec, vector_sha256
from fedfair.aggregation.score_histogram import bounded_scores
from fedfair.aggregation.target_scaling import AS_IT_IS, summed_units, target_scaling
from fedfair.errors import LocalProtocolError, TrainingError
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import (
    is_noised,
    protects_records,
    published_sites,
    reported_group_sizes,
    score_columns,
    standardises,
    threshold_limit,
)
from fedfair.plan.learning_rates import local_rates
from fedfair.plan.local_rounds import round_draws, round_length, round_weight, stated_batch_size
from fedfair.plan.schema import Plan
from fedfair.privacy.batch_parts import ALONE, BatchParts
from fedfair.privacy.planned_releases import sample_level_of, training_release
from fedfair.privacy.releases import GaussianRelease
from fedfair.privacy.sample_level import PrivateSteps
from fedfair.signed_message import labelled_message
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.terms.at_sites import NOTHING, FinishedRound, Remembered, SiteTerms
from fedfair.terms.drift import Drift
from fedfair.terms.local_change import LocalChange, weighted
from fedfair.terms.table import training_layout
from fedfair.training.assembly import local_steps, objective_of
from fedfair.training.batches import batch_indices
from fedfair.training.device import SplitRecords, plain_arithmetic
from fedfair.training.dp_sgd import PoissonBatches, PrivateStepping, RecordProtection
from fedfair.training.dp_statistics import noised_column_sums, noised_evaluation_header
from fedfair.training.flat_model import FlatModel
from fedfair.training.inference import evaluate, evaluate_or_nan
from fedfair.training.local_sgd import Batch, LocalSteps
from fedfair.training.model_draws import model_draws
from fedfair.training.model_faults import training_faults
from fedfair.training.placed_records import placed_records
from fedfair.training.statistics import (
    evaluation_header,
    fill_row,
    standardisation_header,
    summed_columns,
    survey_header_of,
)

FIRST_EVALUATION = RoundNumber(0)


class TrainingClient:
    """The computations of one collaborator; the aggregator never sees one.

    Args:
        plan: the plan that everybody approved.
        participant: whose records these are; part of what seeds its draws.
        splits: its records, unscaled.
        model: the plan's model on the device to work on; its content is overwritten by every broadcast, so several
            tasks of one thread may share it.
        steps: how a step is made on that model; by default as the plan says.
        protection: what its records are protected with; needed where the plan asks for differential privacy.
        masked: whether what it adds is masked. Then it never leaves a sum because of a value: what cannot be
            summed is replaced and counted. It never does so where noise protects its records either. Otherwise it
            refuses to send such values.
        parts: the processes of this site that compute together; each has a client of its own.

    Attributes:
        participant: whose records these are.
        layout: of the model.
        last_losses: what the last evaluation found, by split; for a simulation, since a site never sends them.
        last_fault: what was wrong with its last contribution, for its own operator; empty where nothing was.
        scaling: of the features that every contribution is made from; None where they are not scaled.
    """

    def __init__(
        self,
        plan: Plan,
        participant: ParticipantId,
        splits: Splits,
        model: FlatModel,
        steps: LocalSteps | PrivateStepping | None = None,
        protection: RecordProtection | None = None,
        *,
        masked: bool = False,
        parts: BatchParts = ALONE,
    ) -> None:
        if (protection is None) == is_noised(plan):
            raise LocalProtocolError(
                "entropy and a ledger belong to a plan with differential privacy, and to no other"
            )
        self._plan = plan
        self.participant, self.layout = participant, model.layout
        self._splits = splits
        self._model = model
        self._parts = parts
        self._steps = steps or local_steps(plan, model, splits.train.schema, parts)
        self._protection = protection
        self._noised = distributed_dp(plan, model.layout.dimension)
        self._target, self._objective = AS_IT_IS, objective_of(plan)
        self._histogram = histogram_spec(plan, splits.train.schema)
        self._columns = score_columns(plan, splits.train.schema.classes)
        self._standardises = standardises(plan, len(splits.train.schema.numeric))
        self._records = None if self._standardises else self._place(None)
        self.scaling: FeatureScaling | None = None
        self._masked = masked
        self._threshold_limit = threshold_limit(plan, splits.train.schema.classes)
        self._terms = SiteTerms(plan, splits.train)
        self._header = training_layout(plan, splits.train.schema.classes)
        self._queried: tuple[bytes, SiteLosses, int] | None = None
        self._judged = b""  # digest of the model that `last_losses` are of
        self.last_losses: SiteLosses = {}
        self.last_fault = ""

    def contribution(
        self, request: SumRequest, model: GlobalModel, remembered: Remembered = NOTHING
    ) -> Contribution:
        """Return what this site adds to the requested sum over the broadcast model.

        Args:
            request: the sum.
            model: the model.
            remembered: what this site has kept of earlier rounds and its steps need.
        """
        computed: Mapping[Purpose, Callable[[], Contribution]] = {
            Purpose.TRAINING: lambda: self.training_contribution(
                model, request.round, request.attempt, remembered
            ),
            Purpose.EVALUATION: lambda: self.evaluation_contribution(model, request.round, request.attempt),
            Purpose.STANDARDISATION: lambda: self.standardisation_contribution(request.attempt),
            Purpose.EXACT_EVALUATION: lambda: self.exact_contribution(model, request.asked),
            Purpose.SURVEY: lambda: self._header_only(survey_header_of(self._splits)),
        }
        return computed[request.purpose]()

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features as everybody does; a second call replaces the first. Raises LocalProtocolError."""
        if not self._standardises:
            raise LocalProtocolError("this plan does not standardise, so nothing scales its features")
        self._parts.lead("apply_scaling", scaling)
        self._records = self._place(scaling)
        self.scaling = scaling
        self._queried, self._judged = None, b""  # Losses under another scaling are other losses.

    def standardisation_contribution(self, attempt: int = 1) -> Contribution:
        """Return the header of `aggregation.feature_moments` over the numeric columns of the training records.

        Raises:
            LocalProtocolError: the plan does not standardise, and so has not declared what scale noise needs.
        """
        if not self._standardises:
            raise LocalProtocolError("this plan does not standardise, so its columns are never summed")
        train = self._splits.train
        if self._protection is None or not len(train):
            return self._header_only(standardisation_header(train, self._plan.task.loss))
        noise = sample_level_of(self._plan).standardisation_noise_multiplier
        self._protection.record(GaussianRelease("standardisation", noise, 1.0, 1))
        loss, draws = self._plan.task.loss, self._protection.draws("standardisation", attempt)
        columns, units = summed_columns(train, loss), summed_units(loss, train.schema)
        return self._header_only(noised_column_sums(columns, len(train), units, noise, draws))

    def draws(self, purpose: Purpose, round_number: RoundNumber, attempt: int) -> bytes:
        """Return 32 bytes that stand for what is drawn for a contribution, whatever its values become.

        They are equal where the same records are in the same batches. A contribution under noise has draws of its
        own each time. What a "module:function" draws does not count, because it may draw nothing.

        Args:
            purpose: of the sum.
            round_number: the round.
            attempt: which attempt at the sum, from 1, by this site's own count.
        """
        training = purpose.statistic.is_round
        protection = self._protection
        words: tuple[int, ...] = ()
        if protection is not None and (training or protects_records(self._plan)):
            words = (protection.entropy("draws", purpose.value, int(round_number), attempt),)
        elif training:
            words = round_draws(self._plan.training, self.training_records, round_number, attempt)
        return hashlib.sha256(
            labelled_message("fedfair/draws/v1", [str(word).encode() for word in words])
        ).digest()

    def training_contribution(
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
            return Contribution(self._header.zeros(), np.zeros_like(model.vector))
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
        self.last_fault = ""
        losses, _ = self._own_losses(model, round_number)
        try:
            change = self.training_change(model, round_number, attempt, remembered=remembered)
        except TrainingError as fault:
            change = self._noise_alone(model, round_number, attempt)
            if change is None:
                raise
            self.last_fault = fault.diagnostics()
        if change is None:
            return None
        threshold = float(np.clip(change.threshold, -self._threshold_limit, self._threshold_limit))
        about = FinishedRound(model, round_number, remembered, losses, self.loss_unit)
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
        self.last_fault = ""
        losses, replaced = self._own_losses(model, round_number)
        try:
            change = self.training_change(model, round_number, attempt, remembered=remembered)
        except TrainingError as fault:
            self.last_fault = fault.diagnostics()
            zeros = np.zeros_like(model.vector)
            # Under noise nothing is counted: what became of single records would need noise of its own.
            change = self._noise_alone(model, round_number, attempt) or LocalChange(
                self.training_weight, 0.0, zeros, zeros.size + 1, remembered.further, self._header
            )
        if change is None:
            return None
        limit = self._threshold_limit
        threshold = 0.0 if math.isnan(change.threshold) else min(max(change.threshold, -limit), limit)
        beyond = int(threshold != change.threshold)
        unsound = _count_unsound(change.model) + beyond
        if unsound and not self.last_fault:
            self.last_fault = (
                f"{unsound} values of this site's change are NaN, infinite or beyond their bound; they were "
                "replaced and counted -> lower learning_rate, or look for missing or extreme values in the data"
            )
        if self._terms.whole and _count_unsound(change.model):
            # The curvature is of the whole change, so none of it counts where it is not known.
            change.model.fill(0.0)
            replaced += change.model.size
        change = replace(change, threshold=threshold, replaced=change.replaced + replaced + beyond)
        return self._terms.finished(change, FinishedRound(model, round_number, remembered, losses, self.loss_unit))

    def _own_losses(self, model: GlobalModel, number: RoundNumber) -> tuple[NDArray[np.floating] | None, int]:
        """Return the losses of the training records, array (n,), and how many of them had to be replaced.

        The losses are None in a round whose sum tells nothing of them, and without training records.
        """
        if not self.training_records or not self._terms.takes_losses(number):
            return None, 0
        losses, replaced = self.summable_losses(model, ("train",))
        return losses["train"].values, replaced

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
        vector, self.last_fault = np.zeros(noised.sums.length), ""
        try:
            change = self.training_change(model, round_number, attempt)
        except TrainingError as fault:
            # To leave the sum would tell everybody something of these data.
            change, self.last_fault = None, fault.message
        if change is not None:
            vector = noised.vector(change.model, change.threshold)
        if not np.isfinite(vector).all():
            self.last_fault = "the change of the model holds values that are NaN or infinite; lower learning_rate"
        return noised.sums.contribution(vector, protection.entropy("collaborator", int(round_number), attempt))

    def _noise_alone(self, model: GlobalModel, round_number: RoundNumber, attempt: int) -> LocalChange | None:
        """Return what a round's private steps change with empty batches; None where no record is protected.

        A site whose training has failed adds this: zeros without noise would show that it failed.
        `training_change` has written the release down already.
        """
        stepping = self._steps_of(round_number)
        if not isinstance(stepping, PrivateStepping) or self._protection is None:
            return None
        stepping = replace(stepping, parts=ALONE)
        records, own = self._ready()["train"], self._model
        own.load(model.vector)
        threshold = torch.tensor(model.threshold / self.loss_unit, dtype=own.flat.dtype, device=own.flat.device)
        nothing = Batch(*records.take(torch.empty(0, dtype=torch.int64)))
        expected = stated_batch_size(self._plan.training, len(records))
        steps = stepping.steps(expected, self._protection.draws("noise", int(round_number), attempt))
        with plain_arithmetic():
            moved = steps.descend([nothing] * round_length(self._plan.training, len(records)), threshold)
        moved_by = (float(moved) - float(threshold)) * self.loss_unit
        return LocalChange(self.training_weight, moved_by, own.take_change(), layout=self._header)

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
        records = self._ready()["train"]
        weight = round_weight(self._plan.training, len(records))
        if weight == 0:
            return None
        asked = {"remembered": remembered, "steps": steps, "record_weights": record_weights}
        self._parts.lead("training_change", model, round_number, attempt, **asked)
        own = self._model
        own.load(model.vector)
        if not own.training:
            own.train()
        start = remembered.start(model.threshold) / self.loss_unit
        threshold = torch.tensor(start, dtype=own.flat.dtype, device=own.flat.device)
        drawn = model_draws(
            self._plan, self.participant, self._model.flat.device, self._protection, round_number, attempt
        )
        with drawn, training_faults(), plain_arithmetic():
            if record_weights is None:
                record_weights = self._terms.record_weights(remembered)
            weights = None if record_weights is None else torch.as_tensor(record_weights).to(own.flat)
            descent, batches = self._descent(records, round_number, attempt, weights, steps)
            if isinstance(descent, LocalSteps):
                moved = descent.descend(batches, threshold, self._drift(remembered))
            else:
                moved = descent.descend(batches, threshold)
        # Both thresholds are rounded to the device's width, so that no step means no change, exactly.
        moved_by = (float(moved) - float(threshold)) * self.loss_unit
        return LocalChange(weight, moved_by, own.take_change(), further=remembered.further, layout=self._header)

    def evaluation_contribution(
        self, model: GlobalModel, round_number: RoundNumber = FIRST_EVALUATION, attempt: int = 1
    ) -> Contribution:
        """Return the header of `aggregation.evaluation_sums`; zeros for a split without records.

        Where the plan publishes the means of every site, this site's row follows among the others' zeros.
        """
        self.last_losses, replaced = self.summable_losses(model)
        self._judged = model.vector_sha256
        if self._protection is None:
            return self._header_only(self._evaluation_header(model), replaced)
        noise = sample_level_of(self._plan).evaluation_noise_multiplier
        if self.last_losses:
            self._protection.record(GaussianRelease("evaluation", noise, 1.0, 1))
        draws = self._protection.draws("evaluation", int(round_number), attempt)
        about = (self.last_losses, self._objective, model.threshold, self._histogram)
        classes = confused_classes(self._plan, self._splits.train.schema)
        return self._header_only(noised_evaluation_header(*about, classes, noise, draws))

    def exact_contribution(self, model: GlobalModel, step: QueryStep) -> Contribution:
        """Return the header of `aggregation.quantile_query`.

        All steps must be about the very same numbers, which a device need not compute twice in the same way.

        Raises:
            LocalProtocolError: these records are protected, and an exact evaluation carries no noise.
        """
        if self._protection is not None:
            raise LocalProtocolError("an exact evaluation of protected records carries no noise")
        digest = vector_sha256(model.vector)
        if self._queried is None or self._queried[0] != digest:
            self._queried = digest, *self.summable_losses(model)
        values = {name: losses.values for name, losses in self._queried[1].items()}
        header = exact_header(values, step, len(reported_group_sizes(self._plan)))
        return self._header_only(header, self._queried[2])

    def losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> dict[str, Losses]:
        """Return the losses of those of the splits that have records."""
        self._parts.lead("losses", model, tuple(splits))
        self._model.load(model.vector)
        with training_faults():
            held = self._held(splits)
            return {name: evaluate(self._model, records, self._columns, self._parts) for name, records in held}

    def losses_of(self, model: GlobalModel) -> SiteLosses:
        """Return the losses of the splits that have records; those of the last evaluation are known.

        Raises:
            TrainingError: the model fails on these records.
        """
        return self.last_losses if model.vector_sha256 == self._judged else self.losses(model)

    def summable_losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> tuple[SiteLosses, int]:
        """Return the losses to be summed, and how many had to be replaced, which masks or noise must hide."""
        self.last_fault = ""
        if not self._masked and self._protection is None:
            return self.losses(model, splits), 0
        self._parts.lead("summable_losses", model, tuple(splits))
        self._model.load(model.vector)
        found: dict[str, Losses] = {}
        replaced, schema = 0, self._splits.train.schema
        count = figure_count(self._plan.task.loss, schema)
        for name, records in self._held(splits):
            losses, fault = evaluate_or_nan(
                self._model, records, schema.classes, self._columns, count, self._parts
            )
            values, beyond = bounded_losses(losses.values, self._histogram)
            scores, (figures, unsummed) = bounded_scores(losses.scores), bounded_figures(losses.figures)
            found[name] = replace(losses, values=values, scores=scores, figures=figures)
            replaced += max(beyond, unsummed)
            self.last_fault = self.last_fault or fault
        if replaced and not self.last_fault:
            self.last_fault = (
                f"{replaced} losses of this site are not finite or too large; they were replaced and counted "
                "-> lower learning_rate, or look for missing or extreme values in the local data"
            )
        return found, replaced

    def _held(self, splits: Collection[str]) -> Iterator[tuple[str, SplitRecords]]:
        """Yield the splits that have records."""
        return ((name, records) for name, records in self._ready().items() if name in splits and len(records))

    def _descent(
        self, records: SplitRecords, number: RoundNumber, attempt: int, weights: Tensor | None, steps: int | None
    ) -> tuple[LocalSteps | PrivateSteps, Iterable[Batch]]:
        """Return one round's steps and batches; what is released by private ones is written down here."""
        training, protection, stepping = self._plan.training, self._protection, self._steps_of(number)
        if not isinstance(stepping, PrivateStepping):
            batches = itertools.islice(self._batches(records, number, attempt, weights), steps)
            return stepping, records.ahead(batches)
        if protection is None:
            raise LocalProtocolError("private steps need entropy and a ledger")
        if weights is not None or steps is not None:
            raise LocalProtocolError(
                "private steps are all the steps of a round, and weigh by the objective alone"
            )
        protection.record(training_release(self._plan, len(records)))
        expected = stated_batch_size(training, len(records))
        noised = stepping.steps(expected, protection.draws("noise", int(number), attempt))
        return noised, PoissonBatches(records, training, protection.draws("batch", int(number), attempt))

    def _steps_of(self, number: RoundNumber) -> LocalSteps | PrivateStepping:
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

    def _batches(
        self, records: SplitRecords, number: RoundNumber, attempt: int, weights: Tensor | None = None
    ) -> Iterator[Batch]:
        """Yield the batches of one round, each record with its weight where there are weights."""
        everything: Batch | None = None
        for indices in batch_indices(self._plan.training, self.participant, len(records), number, attempt):
            if indices is None:
                everything = everything or Batch(*records.everything(), weights)
                yield everything
            else:
                taken = None if weights is None else weights[indices.to(weights.device)]
                yield Batch(*records.take(indices), taken)

    @property
    def loss_unit(self) -> float:
        """Return how many natural units one loss of the local steps has; of no use before the scaling is known."""
        return self._target.loss_unit(self._plan.task.loss)

    @property
    def records(self) -> int:
        """Return how many records this site has, over all splits."""
        return self._splits.records

    @property
    def training_records(self) -> int:
        """Return how many training records this site has."""
        return len(self._splits.train)

    @property
    def training_weight(self) -> int:
        """Return what this site's change of the model weighs in a round."""
        return round_weight(self._plan.training, len(self._splits.train))

    def _evaluation_header(self, model: GlobalModel) -> NDArray[np.float64]:
        """Return the header without noise; of the rows of sites, only this site's own is filled."""
        published = published_sites(self._plan)
        layout = planned_layout(self._plan, self._splits.train.schema)
        about = (self.last_losses, self._objective, model.threshold)
        header = evaluation_header(*about, self._plan.task.loss, self._histogram, layout)
        if self.participant in published:
            row = layout.read(header)["sites"][published.index(self.participant)]
            fill_row(row, self.last_losses, self._histogram, self._plan.evaluation.min_group)
        return header

    def _header_only(self, header: NDArray[np.float64], replaced: int = 0) -> Contribution:
        return Contribution(header, np.zeros(0, self._model.layout.dtype), replaced)

    def _ready(self) -> dict[str, SplitRecords]:
        if self._records is None:
            raise LocalProtocolError("this plan standardises features, and their scaling has not arrived")
        return self._records

    def _place(self, scaling: FeatureScaling | None) -> dict[str, SplitRecords]:
        """Return the records as the model takes them, and let its loss be that of targets as they are now."""
        self._target = target_scaling(self._plan.task.loss, scaling)
        self._model.record_loss = self._model.record_loss.under(self._target)
        self._objective = objective_of(self._plan, self.loss_unit)
        splits = zip(SPLITS, (self._splits.train, self._splits.validation, self._splits.test), strict=True)
        placed = partial(placed_records, loss=self._plan.task.loss, scaling=scaling, like=self._model.flat)
        return {name: placed(dataset) for name, dataset in splits if dataset is not None}


def _count_unsound(values: NDArray[np.floating]) -> int:
    """Return how many values are NaN or infinite; a sound array is only looked through twice, and not copied."""
    if not values.size or (math.isfinite(float(values.min())) and math.isfinite(float(values.max()))):
        return 0
    return int(np.count_nonzero(~np.isfinite(values)))
