"""One site's records as its model takes them: scaled, placed on the device, and with their losses.

Decides where records are, what their losses are, and which losses are summed in place of those that cannot be.
Every statistic of a site reads them here; what it adds is its own room's (`site_statistics`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import SPLITS, bounded_losses
from fedfair.aggregation.loss_metrics import bounded_figures, figure_count
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, histogram_spec
from fedfair.aggregation.score_histogram import bounded_scores
from fedfair.aggregation.target_scaling import AS_IT_IS, scaler_of, target_scaling
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.derived import measures_excess, reference_of, score_columns, standardises
from fedfair.plan.schema import Plan
from fedfair.privacy.batch_parts import BatchParts
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import objective_of
from fedfair.training.device import SplitRecords
from fedfair.training.flat_model import FlatModel
from fedfair.training.inference import evaluate, evaluate_or_nan
from fedfair.training.model_faults import training_faults
from fedfair.training.reference_training import ReferenceSetting, answered, judged, unseen_losses


class LocalRecords:
    """The records of one site under the plan's model.

    Args:
        plan: the plan that all sites approved.
        participant: whose records these are.
        splits: its records, unscaled.
        model: the plan's model on the device to work on; its content is overwritten by every broadcast.
        parts: the processes of this site that compute together.
        replaces: whether a loss that cannot be summed is replaced and counted, because masks or noise hide it;
            otherwise it is a fault.

    Attributes:
        objective: of the plan, in the unit of the present scaling.
        histogram: of the plan.
        scaling: of the features that every contribution is made from; None where they are not scaled.
        scalings: how many have been applied; losses under another scaling are other losses.
        references: the newest that have arrived; None before any.
        last_losses: what the last evaluation found, by split.
        fault: what was wrong with the last contribution, for the site's own operator; empty where nothing was.
    """

    def __init__(
        self,
        plan: Plan,
        participant: ParticipantId,
        splits: Splits,
        model: FlatModel,
        parts: BatchParts,
        *,
        replaces: bool,
    ) -> None:
        self.plan, self.participant, self.splits = plan, participant, splits
        self.model, self.parts, self._replaces = model, parts, replaces
        self._target, self.objective = AS_IT_IS, objective_of(plan)
        self.histogram = histogram_spec(plan, splits.train.schema)
        self._columns = score_columns(plan, splits.train.schema.classes)
        self.standardises = standardises(plan, len(splits.train.schema.numeric))
        self._placed = None if self.standardises else self._place(None)
        self.scaling: FeatureScaling | None = None
        self.scalings = 0
        self.references: References | None = None
        self._judged: dict[str, SplitRecords] = {}
        self._answered: dict[str, NDArray[np.float64]] = {}
        self.last_losses: SiteLosses = {}
        self._kept: NDArray[np.floating] | None = None
        self._evaluated = b""  # digest of the model that `last_losses` are of
        self.fault = ""

    @property
    def loss_unit(self) -> float:
        """Return how many natural units one loss of the local steps has; of no use before the scaling is known."""
        return self._target.loss_unit(self.plan.task.loss)

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features as all sites do; a second call replaces the first. Raises LocalProtocolError."""
        if not self.standardises:
            raise LocalProtocolError("this plan does not standardise, so nothing scales its features")
        self.parts.lead("apply_scaling", scaling)
        self._placed = self._place(scaling)
        self.scaling = scaling
        self.scalings += 1
        self._evaluated = b""

    def begin_kept(self, values: NDArray[np.floating] | None) -> None:
        """Let steps and losses begin from these values of the part of the model that stays here.

        Args:
            values: array (k,); None for those before round 1.
        """
        if self.model.kept is not None and values is not self._kept:
            self.parts.lead("begin_kept", values)
            self._kept, self._evaluated = values, b""

    def load(self, model: GlobalModel) -> None:
        """Load a model, and the part of it that stays here. Raises StateError where that does not fit."""
        if self.model.kept is not None:
            self.model.kept.begin_from(self._kept)
        self.model.load(model.vector)

    def evaluated(self, model: GlobalModel) -> tuple[SiteLosses, int]:
        """Return `summable_losses` of an evaluation, and keep them for `losses_of`."""
        self.last_losses, replaced = self.summable_losses(model)
        self._evaluated = model.vector_sha256
        return self.last_losses, replaced

    def losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> dict[str, Losses]:
        """Return the losses of those of the splits that have records."""
        self.parts.lead("losses", model, tuple(splits))
        self.load(model)
        with training_faults():
            held = self._held(splits)
            found = {
                name: evaluate(self.model, records, self._columns, self.parts, self._judged.get(name))
                for name, records in held
            }
        return {name: self._with_answers(name, losses) for name, losses in found.items()}

    def losses_of(self, model: GlobalModel) -> SiteLosses:
        """Return the losses of the splits that have records; those of the last evaluation are known.

        Raises:
            TrainingError: the model fails on these records.
        """
        return self.last_losses if model.vector_sha256 == self._evaluated else self.losses(model)

    def summable_losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> tuple[SiteLosses, int]:
        """Return the losses to be summed, and how many had to be replaced, which masks or noise must hide."""
        self.fault = ""
        if not self._replaces:
            return self.losses(model, splits), 0
        self.parts.lead("summable_losses", model, tuple(splits))
        self.load(model)
        found: dict[str, Losses] = {}
        replaced, schema = 0, self.splits.train.schema
        count = figure_count(self.plan.task.loss, schema)
        for name, records in self._held(splits):
            losses, fault = evaluate_or_nan(
                self.model, records, schema.classes, self._columns, count, self.parts, self._judged.get(name)
            )
            values, beyond = bounded_losses(losses.values, self.histogram)
            scores, (figures, unsummed) = bounded_scores(losses.scores), bounded_figures(losses.figures)
            losses = replace(losses, values=values, scores=scores, figures=figures)
            losses = self._with_answers(name, losses)
            above, unjudged = bounded_losses(losses.excess, self.histogram)
            found[name] = replace(losses, excess=above)
            replaced += max(beyond, unsummed, unjudged)
            self.fault = self.fault or fault
        if replaced and not self.fault:
            self.fault = (
                f"{replaced} losses of this site are not finite or too large; they were replaced and counted "
                "-> lower learning_rate, or look for missing or extreme values in the local data"
            )
        return found, replaced

    def apply_references(self, references: References) -> None:
        """Judge by these references from now on, once they are trained; until then, hold them for their next sum.

        The records must have been scaled.
        """
        if references is self.references:
            return
        self.parts.lead("apply_references", references)
        self.references = references
        self._evaluated = b""
        if not references.are_done(reference_of(self.plan)):
            return
        setting = self.reference_setting
        self._judged = judged(setting, self.participant, self.placed, references, self.model.flat)
        self.model.excess = setting.answers.excess
        self._answered = answered(self._judged, self.placed, self.model.record_loss)

    @property
    def reference_setting(self) -> ReferenceSetting:
        """Return the setting of the plan's references, under the present scaling."""
        return ReferenceSetting.of(self.plan, self.splits.train.schema, self.model.record_loss)

    def unseen_losses(self) -> dict[str, NDArray[np.float64]]:
        """Return by split what each record loses under a reference that has not seen it.

        Raises:
            LocalProtocolError: there are no references.
        """
        if self.references is None:
            raise LocalProtocolError("a reference's losses are asked for, and no references have arrived")
        about = self.reference_setting, self.participant, self.placed, self.references
        return unseen_losses(*about, self.model.flat)

    @property
    def trained_on(self) -> SplitRecords:
        """Return the training records with what local steps compare outputs with.

        Raises:
            LocalProtocolError: steps follow the excess, and the references are not trained yet.
        """
        if not measures_excess(self.plan):
            return self.placed["train"]
        if not self._judged:
            raise LocalProtocolError("this plan measures the excess over references, which are not trained yet")
        return self._judged["train"]

    def _with_answers(self, name: str, losses: Losses) -> Losses:
        """Return losses with the references' answers beside them, where these have judged classes."""
        return replace(losses, answered=self._answered[name]) if self._answered else losses

    @property
    def placed(self) -> dict[str, SplitRecords]:
        """Return the records as the model takes them, by split; raises LocalProtocolError before their scaling."""
        if self._placed is None:
            raise LocalProtocolError("this plan standardises features, and their scaling has not arrived")
        return self._placed

    def _held(self, splits: Collection[str]) -> Iterator[tuple[str, SplitRecords]]:
        """Yield the splits that have records."""
        return ((name, records) for name, records in self.placed.items() if name in splits and len(records))

    def _place(self, scaling: FeatureScaling | None) -> dict[str, SplitRecords]:
        """Return the records as the model takes them, and let its loss be that of targets as they are now."""
        self._target = target_scaling(self.plan.task.loss, scaling)
        self.model.record_loss = self.model.record_loss.under(self._target)
        self.objective = objective_of(self.plan, self.loss_unit)
        splits = zip(SPLITS, (self.splits.train, self.splits.validation, self.splits.test), strict=True)
        return {name: self._placed_split(dataset, scaling) for name, dataset in splits if dataset is not None}

    def _placed_split(self, dataset: Dataset, scaling: FeatureScaling | None) -> SplitRecords:
        like, scaled = self.model.flat, scaler_of(self.plan.task.loss, dataset.schema.numeric, scaling)
        labels = self._target.placed(dataset.labels)
        return SplitRecords.place(dataset.features, labels, like.dtype, like.device, scaled)
