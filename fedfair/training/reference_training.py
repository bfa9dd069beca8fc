"""What one site computes for the references: their steps, their losses on unseen records, and their answers.

A fold is a function of the plan's seed and of the site's name, so that a deployed run deals records as a
simulation does. It is no secret: who knows the fold of the 17th record of a file does not know whose it is. Steps
are plain gradient descent on batches drawn anew in each sum. Every engine runs this very code, site by site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedfair.aggregation.header import Header
from fedfair.aggregation.reference import (
    CHANGE_STEP,
    GREATEST_CHANGE,
    LOSS_STEP,
    MAX_REFERENCE_LOSS,
    NATURAL,
    TEMPERATURES,
    References,
    ReferenceShape,
    reference_header,
    reference_shape,
)
from fedfair.ids import ParticipantId
from fedfair.plan.derived import reference_of
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.tables.seeds import derived_seed, draw_batch, generator
from fedfair.training.device import EVALUATION_RECORDS, SplitRecords, plain_arithmetic
from fedfair.training.record_loss import RecordLoss
from fedfair.training.reference_answers import ReferenceAnswers, came_true, reference_answers

FIRST_ATTEMPT = 1
"""Only then a site tells the losses of the references, which are always the same."""


@dataclass(frozen=True, slots=True)
class ReferenceSetting:
    """The references of a plan, as sites compute with them.

    Attributes:
        plan: the plan.
        shape: of the references.
        answers: how they answer.
        header: of their sums.
        unit: how many natural units one of their losses has.
    """

    plan: Plan
    shape: ReferenceShape
    answers: ReferenceAnswers
    header: Header
    unit: float = 1.0

    @classmethod
    def of(cls, plan: Plan, schema: FeatureSchema, record_loss: RecordLoss) -> ReferenceSetting:
        """Return it for the plan's loss under the present scaling of targets."""
        answers = reference_answers(plan.task.loss, record_loss)
        shape, header = reference_shape(plan, schema), reference_header(plan, schema)
        return cls(plan, shape, answers, header, record_loss.unit)

    def fold_of(self, participant: ParticipantId, count: int) -> Tensor:
        """Return the fold of each training record of a site, int64 (count,); folds differ by a record at most."""
        source = generator(self.plan.training.seed, "reference fold", participant)
        return torch.randperm(count, generator=source) % self.shape.folds

    def answered(self, flat: Tensor, features: Tensor, temperature: int) -> Tensor:
        """Return the answers (n, outputs) of one reference on the CPU, in float64."""
        outputs = self.outputs(flat, features).cpu().double()
        return self.answers.answers(outputs / TEMPERATURES[temperature])

    def outputs(self, flat: Tensor, features: Tensor) -> Tensor:
        """Return the outputs (n, outputs) of one reference.

        Args:
            flat: its parameters, (parameters,).
            features: (n, *input_shape).
        """
        values, at = features.flatten(1).to(flat), 0
        layers = self.shape.layers
        for place, (inputs, outputs) in enumerate(layers):
            weight = flat[at : at + inputs * outputs].view(outputs, inputs)
            bias = flat[at + inputs * outputs : at + (inputs + 1) * outputs]
            values = functional.linear(values, weight, bias)
            if place < len(layers) - 1:
                values = torch.relu(values)
            at += (inputs + 1) * outputs
        return values

    def by_fold(self, vector: NDArray[np.float64], like: Tensor) -> Tensor:
        """Return parameters (folds, parameters) of all references in a tensor's width, beside it."""
        placed = torch.from_numpy(vector.reshape(self.shape.folds, self.shape.dimension).copy())
        return placed.to(dtype=like.dtype, device=like.device)


ReferenceParts: TypeAlias = tuple[ReferenceSetting, ParticipantId, Mapping[str, SplitRecords], References, Tensor]
"""Of one site, as `judged` takes them."""


def reference_addend(
    setting: ReferenceSetting,
    participant: ParticipantId,
    records: SplitRecords,
    references: References,
    place: tuple[int, int],
    like: Tensor,
) -> NDArray[np.float64]:
    """Return what a site adds to a sum of the references: `reference_header`; zeros without records.

    Args:
        setting: of the plan.
        participant: whose records they are.
        records: its training records, as the model takes them.
        references: that were broadcast.
        place: which of the sums it is, and which attempt at it, both from 1.
        like: has the width and the device of the model.
    """
    layout = setting.header
    header = layout.zeros()
    if not len(records):
        return header
    sums, folds = layout.read(header), setting.fold_of(participant, len(records))
    present = setting.by_fold(references.present, like)
    tells = place[1] == FIRST_ATTEMPT
    sums["records"], sums["judged"] = len(records), len(records) * tells
    with plain_arithmetic():
        for fold, start in enumerate(present):
            seen, unseen = torch.nonzero(folds != fold)[:, 0], torch.nonzero(folds == fold)[:, 0]
            if tells:
                sums["held_out"] += _held_out(setting, start, records, unseen)
            if len(seen):
                seed = derived_seed(setting.plan.training.seed, "reference", *place, participant, fold)
                sums["weights"][fold] = len(seen)
                sums["changes"][fold] = len(seen) * _change(setting, start, records, seen, seed)
    return header


def judged(
    setting: ReferenceSetting,
    participant: ParticipantId,
    placed: Mapping[str, SplitRecords],
    references: References,
    like: Tensor,
) -> dict[str, SplitRecords]:
    """Return the same records with the references' answers (n, outputs) in place of their own.

    A training record gets the answer of the reference that has not seen it, any other the mean of all answers.

    Args:
        setting: of the plan.
        participant: whose records they are.
        placed: by split, as the model takes them.
        references: of which the best answer.
        like: has the width and the device of the model.
    """
    best = setting.by_fold(references.best, like)
    found = {}
    for name, records in placed.items():
        folds = setting.fold_of(participant, len(records)) if name == "train" else None
        answers = torch.empty(len(records), setting.shape.widths[-1], dtype=torch.float64)
        with torch.no_grad(), plain_arithmetic():
            done = 0
            for features, labels in records.in_order():
                here = slice(done, done + len(labels))
                each = torch.stack([setting.answered(flat, features, references.temperature) for flat in best])
                own = each.mean(0) if folds is None else each[folds[here], torch.arange(len(labels))]
                answers[here] = own
                done += len(labels)
        found[name] = replace(records, labels=answers.to(records.labels.device))
    return found


def unseen_losses(
    setting: ReferenceSetting,
    participant: ParticipantId,
    placed: Mapping[str, SplitRecords],
    references: References,
    like: Tensor,
) -> dict[str, NDArray[np.float64]]:
    """Return by split the loss (n,) of each record under one reference that has not seen it, in natural units.

    Held-out records are dealt to references as training records are, so that which one judges tells nothing; the
    mean of all, by which `judged` judges them, would. Arguments as of `judged`.
    """
    best = setting.by_fold(references.best, like)
    found = {}
    for name, records in placed.items():
        folds, losses = setting.fold_of(participant, len(records)), np.zeros(len(records))
        with torch.no_grad(), plain_arithmetic():
            for fold, flat in enumerate(best):
                for indices in torch.split(torch.nonzero(folds == fold)[:, 0], EVALUATION_RECORDS):
                    features, labels = records.take(indices)
                    outputs = setting.outputs(flat, features).cpu().double() / TEMPERATURES[references.temperature]
                    each = setting.answers.losses(outputs, labels.cpu())
                    losses[indices.numpy()] = _bounded(each).numpy()
        found[name] = losses * setting.unit
    return found


def answered(
    judged_records: Mapping[str, SplitRecords], placed: Mapping[str, SplitRecords], record_loss: RecordLoss
) -> dict[str, NDArray[np.float64]]:
    """Return by split what `came_true` of the references' answers; nothing where records are not classified.

    Args:
        judged_records: from `judged`.
        placed: the same records with their own answers.
        record_loss: of the model.
    """
    if not record_loss.has_classes:
        return {}
    return {name: came_true(records.labels, placed[name].labels) for name, records in judged_records.items()}


def _held_out(
    setting: ReferenceSetting, flat: Tensor, records: SplitRecords, unseen: Tensor
) -> NDArray[np.float64]:
    """Return the summed losses of one reference on records that it has not seen, by temperature, in steps."""
    found = np.zeros(len(TEMPERATURES))
    with torch.no_grad():
        for indices in torch.split(unseen, EVALUATION_RECORDS):
            features, labels = records.take(indices)
            outputs = setting.outputs(flat, features).cpu().double()
            for place, temperature in enumerate(TEMPERATURES):
                if place == NATURAL or setting.answers.has_temperature:
                    losses = setting.answers.losses(outputs / temperature, labels.cpu())
                    found[place] += _steps(losses)
    # A number has no temperature: all places tell the same.
    return found if setting.answers.has_temperature else np.full(len(found), found[NATURAL])


def _steps(losses: Tensor) -> float:
    """Return the sum of losses in whole steps; what is no number counts as the greatest."""
    return float(torch.round(_bounded(losses) / LOSS_STEP).sum())


def _bounded(losses: Tensor) -> Tensor:
    bounded = torch.nan_to_num(losses, nan=MAX_REFERENCE_LOSS, posinf=MAX_REFERENCE_LOSS)
    return bounded.clamp(0.0, MAX_REFERENCE_LOSS)


def _change(
    setting: ReferenceSetting, start: Tensor, records: SplitRecords, seen: Tensor, seed: int
) -> NDArray[np.float64]:
    """Return by how much local steps on the records of other folds change one reference: (parameters,)."""
    stated, source = reference_of(setting.plan), torch.Generator().manual_seed(seed)
    flat = start.clone()
    for _ in range(stated.local_steps):
        features, labels = records.take(seen[draw_batch(source, len(seen), stated.batch_size)])
        leaf = flat.detach().requires_grad_()
        with torch.enable_grad():
            loss = setting.answers.losses(setting.outputs(leaf, features), labels).mean()
            (gradient,) = torch.autograd.grad(loss, leaf)
        flat = flat - stated.learning_rate * gradient
    change = (flat - start).cpu().double().numpy()
    # A reference that has left the finite numbers stands still; its losses tell that it is of no use.
    bound = GREATEST_CHANGE / len(seen)
    bounded = np.clip(np.nan_to_num(change, nan=0.0, posinf=0.0, neginf=0.0), -bound, bound)
    rounded: NDArray[np.float64] = np.rint(bounded / CHANGE_STEP) * CHANGE_STEP
    return rounded
