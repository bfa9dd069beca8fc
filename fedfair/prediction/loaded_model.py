"""A saved model that predicts: its file alone says what it takes, how that is scaled, and what it returns.

Decides that logits, probabilities and losses are computed as an evaluation computes them (`training.inference`);
how raw records are read, filled and scaled is `model_inputs.py`'s business. Only a model of own code
("module:function") needs more than its file: the workspace with the very plan and code that trained it. Both are
compared with what the model's file says before any of that code runs, and what was compared is what runs. A file
that states no initial weights cannot be compared before: its user names code.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fedfair.aggregation.calibration import Calibration
from fedfair.aggregation.target_scaling import target_scaling
from fedfair.conformal.class_sets import is_in_set
from fedfair.conformal.intervals import reach
from fedfair.conformal.prediction_sets import UNSTATED, NoSets, PredictionSets, set_words
from fedfair.errors import DataError
from fedfair.plan.digest import code_digest, format_digest, parse_digest
from fedfair.plan.fields import Scalar, is_reference
from fedfair.plan.loading import PLAN_FOLDER, load_plan
from fedfair.plan.losses import OwnLoss, has_classes
from fedfair.plan.module_code import IN_MEMORY, code_digests
from fedfair.plan.parameters import FROZEN_SUFFIX
from fedfair.plan.schema import Plan
from fedfair.plan.task import ModelSpec
from fedfair.prediction.answers import answer_names, answer_table, answers, calibrated_chances, fits_of
from fedfair.prediction.model_inputs import (
    ModelInputs,
    RawRows,
    answers_given,
)
from fedfair.run.calibration_text import answer_words
from fedfair.run.kept_file import kept_beside, read_kept
from fedfair.run.model_description import schema_of
from fedfair.run.model_provenance import digest_with
from fedfair.run.saved_model import DescribedModel, read_saved
from fedfair.tables.pixels import Values
from fedfair.tables.text_table import counted
from fedfair.training.assembly import held_as_stated
from fedfair.training.binding import bound
from fedfair.training.device import SplitRecords, plain_arithmetic
from fedfair.training.flat_model import ARRAY_WIDTHS, FlatModel
from fedfair.training.frozen_code import frozen_code
from fedfair.training.models import build_model
from fedfair.training.record_loss import record_loss
from fedfair.training.travelling import freeze_tensors, parts_of

if TYPE_CHECKING:
    from fedfair.prediction.model_inputs import Records

PLAN_FILE = "plan.yaml"


@dataclass(frozen=True, slots=True)
class OwnCode:
    """A saved model, and where its own code is said to be.

    Attributes:
        path: of the model's file.
        described: what the file says.
        workspace: the folder of the plan; None where none was named.
        stated: the digest of code that its user lets run, "sha256:" and 64 hex digits; None where none was named.
    """

    path: Path
    described: DescribedModel
    workspace: Path | None
    stated: str | None = None


def checked_code(own: OwnCode, reference: str) -> tuple[Path, int]:
    """Return the folder that a model's own code is to be run from, and its plan's seed.

    Args:
        own: the model, and where its code is said to be.
        reference: "module:function", of the model.

    Raises:
        DataError: no workspace was named, its plan or code did not train the model, or nothing tells before the
            code runs; none of it has run.
        PlanError: the workspace has no such plan or code.
    """
    if reference.startswith(f"{IN_MEMORY}:"):
        raise DataError(
            f"{own.path} holds the weights of a model that a program held, {reference}, and not how it computes",
            "train by a plan that names its module, or load the weights with safetensors into that model",
        )
    if own.workspace is None:
        raise DataError(
            f"{own.path} holds a model of own code, {reference}, which its file does not contain",
            "name the workspace that has the plan and the code, with --workspace; that code is run here",
        )
    plan = load_plan(own.workspace / PLAN_FOLDER / PLAN_FILE)
    stated = plan.task.model if isinstance(plan.task.model, str) else plan.task.model.name
    if reference not in (plan.task.model, plan.task.loss.name):
        raise DataError(
            f"{own.path} holds a model of {reference}, the plan in {own.workspace} states task.model {stated} and "
            f"task.loss {plan.task.loss.name}",
            "name the workspace of the run that trained it, unchanged",
        )
    folder = _folder(plan, own.workspace, reference)
    found = digest_with(own.described, plan, folder)
    if found is None:
        _check_stated(own, plan, folder)
        found = bound(plan, schema_of(own.described.origin.description), folder).digest
    trained_by = own.described.saved.plan_digest
    if format_digest(found) != trained_by:
        raise DataError(
            f"{own.path} was trained by the plan {trained_by or '(not said)'}, the plan and code in "
            f"{own.workspace} are {format_digest(found)}",
            "name the workspace of the run that trained it, unchanged",
        )
    return folder, plan.training.seed


def _folder(plan: Plan, workspace: Path, reference: str) -> Path:
    """Return a copy of the code, or the workspace where this process has already imported the code from there."""
    module = sys.modules.get(reference.partition(":")[0])
    source = None if module is None else module.__file__
    if source is not None and Path(source).resolve().is_relative_to(workspace.resolve()):
        return workspace
    return frozen_code(plan.task.references, workspace)


def _check_stated(own: OwnCode, plan: Plan, folder: Path) -> None:
    """Refuse code that the user has not named, where the model's file cannot tell what trained it."""
    found = format_digest(code_digest(code_digests(plan.task.references, folder)))
    if own.stated is None:
        raise DataError(
            f"{own.path} does not state its initial weights, so its plan cannot be compared before the code in "
            f"{own.workspace} runs",
            f"read that code; if it may run here, give --code-digest {found}",
        )
    if parse_digest(own.stated) != parse_digest(found):
        raise DataError(
            f"the code in {own.workspace} has the digest {found}, not {own.stated}",
            "name the code that you have read",
        )


class SavedModel:
    """A model from a file, ready to predict on this machine's CPU.

    Args:
        described: what its file says.
        module: the model, with the file's weights.
        fills: by the name of a feature the number that a missing value becomes, where sites filled in their own
            means or training had no missing values.

    Attributes:
        described: everything that the file says.
        description: the inputs and outputs of the model.
        which: which of its run's models it is; None where its file does not say it.
        plan_digest: of the plan that trained the model, "sha256:" and 64 hex digits; empty if not said.
        loss: of single records, that the model was trained by.
        has_classes: whether it predicts one class for a record.
        classes: in the order of the probabilities; none where the model predicts no class. A class is the label
            that stands for it. It is its name where several labels do, or where the plan states none, and its
            number from 0 where it has no name.
        module: the model itself: from scaled features (batch, *input_shape) to outputs, of classes their logits. A
            predicted number is in deviations, as `target` says.
        target: the scaling of a predicted number: an output of the model is in deviations from its middle.
        raw: how raw records of this model are read.
        columns: the raw columns that become features, in the order of an array's columns; empty where they have
            none. Columns of `numeric: all` have no names in the plan: an array gives them first, sorted by their
            names.
        is_calibrated: whether `predict_proba` returns probabilities, and not scores.
        answer_words: the answers of `predict_proba` in words: probabilities, by which records, or only scores, and
            why.
        set_words: the promise of `predict_sets` or `predict_intervals` in words, or why there are none.

    Raises:
        DataError: fills are given for a feature that the model does not have, or that it fills itself.
    """

    def __init__(
        self, described: DescribedModel, module: FlatModel, fills: Mapping[str, float] | None = None
    ) -> None:
        saved = described.saved
        self.described, self.description = described, described.origin.description
        self.which, self.plan_digest = saved.which, saved.plan_digest
        self.loss = self.description.record_loss
        self.has_classes = has_classes(self.loss)
        self.classes: tuple[Scalar, ...] = self.description.label.labels if self.has_classes else ()
        self.target = target_scaling(self.loss, saved.scaling)
        self.module = module.eval()
        self.module.record_loss = self.module.record_loss.under(self.target)
        self._inputs = ModelInputs(described, fills)
        self.raw = self._inputs.raw
        self.columns = self.raw.names or ()
        self.is_calibrated = isinstance(saved.calibration, Calibration)
        self.answer_words, self.set_words = answer_words(saved.calibration), set_words(saved.sets)

    def __repr__(self) -> str:
        described, told = self.described, ", ".join(str(label) for label in self.classes)
        told = told if self.has_classes else self.loss.title
        rounds = counted(int(described.saved.round), "round")
        return (
            f"SavedModel({described.origin.federation!r}, {self._inputs.schema.input_shape} to {told}, {rounds})"
        )

    def predict(self, records: Records) -> NDArray[np.generic]:
        """Return the predicted class of each record, array (n,) of `classes`, or what else the task predicts.

        That is a number (n,), labels of 0 or 1 (n, labels), the chance of being past each interval of time
        (n, intervals), or a mask (n, height, width).

        Args:
            records: a DataFrame or a mapping with the raw columns by name, or an array in the order of `columns`.

        Raises:
            DataError: a column is missing or unknown, or a value is one that training would have refused.
        """
        rows = self.rows(records)
        if not self.has_classes:
            return answers(self.loss, self.logits(rows))
        return np.array(self.classes)[self.scores_and_classes(rows)[1]]

    def predict_proba(self, records: Records) -> NDArray[np.float64]:
        """Return the probability of each class, array (n, classes); each row sums to 1.

        They are calibrated where the file has a calibration; see `answer_words`, and `scores` for those of the
        model itself. `predict` says the class that the evaluation counted, which has the highest score: with a
        calibration another class may have the highest probability.

        Args:
            records: as for `predict`.

        Raises:
            DataError: as for `predict`.
        """
        return self.probabilities(self.scores(records))

    def scores(self, records: Records) -> NDArray[np.float64]:
        """Return the score of each class, array (n, classes): what the model says before any calibration.

        Args:
            records: as for `predict`.

        Raises:
            DataError: as for `predict`.
        """
        return self.scores_and_classes(self.rows(records))[0]

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores (n, classes) calibrated; as they are, where the file has no calibration."""
        found = self.described.saved.calibration
        if not isinstance(found, Calibration):
            return scores
        chances: NDArray[np.float64] = calibrated_chances(torch.from_numpy(scores), *fits_of(found)).numpy()
        return chances

    def predict_sets(self, records: Records) -> NDArray[np.bool_]:
        """Return which of `classes` are in the set of each record, array (n, classes), as `set_words` promises.

        Args:
            records: as for `predict`.

        Raises:
            DataError: as for `predict`, the model predicts no class, or its file has no sets.
        """
        return self.sets_of(self.scores(records))

    def sets_of(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which classes are in the sets of records of such scores, (n, classes), before any calibration.

        Raises:
            DataError: the file has no sets.
        """
        return is_in_set(scores, self.check_sets().bound)

    def predict_intervals(self, records: Records) -> NDArray[np.float64]:
        """Return where the interval of each record begins and ends, array (n, 2), as `set_words` promises.

        Args:
            records: as for `predict`.

        Raises:
            DataError: as for `predict`, the model predicts classes, or its file has no intervals.
        """
        if self.has_classes:
            raise DataError("this model predicts classes, which have no intervals", "use predict_sets")
        return self.intervals_of(self.answers(self.rows(records)))

    def intervals_of(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the intervals (n, 2) around predicted numbers (n, 1).

        Raises:
            DataError: the file has no intervals.
        """
        below, above = reach(self.loss, self.check_sets().bound)
        found: NDArray[np.float64] = predicted[:, :1] + np.array([-below, above])
        return found

    def check_sets(self) -> PredictionSets:
        """Return what the file says of sets.

        Raises:
            DataError: it has none.
        """
        found = self.described.saved.sets
        if isinstance(found, NoSets):
            raise DataError(f"this model has no prediction sets: {found.reason or UNSTATED}", "omit sets")
        return found

    @property
    def answer_columns(self) -> tuple[str, ...]:
        """The names of the numbers that a model without classes says of each record.

        Raises:
            DataError: the answers are masks.
        """
        count = int(np.prod(self._inputs.schema.output_shape))
        return answer_names(self.loss, self.description.label.names, count)

    def answers(self, rows: RawRows) -> NDArray[np.float64]:
        """Return what a model without classes says of each record: array (n, `answer_columns`).

        Raises:
            DataError: a value is missing that nothing fills in.
        """
        return answer_table(self.loss, self.logits(rows))

    def losses(self, records: Records) -> NDArray[np.float64]:
        """Return the loss of each record, array (n,), as an evaluation of the model has it: cross-entropy in nats.

        Args:
            records: a DataFrame or a mapping that has the label among its columns.

        Raises:
            DataError: as for `predict`, or the label is missing, or is none that the plan names.
        """
        rows = self.rows(records)
        placed = torch.from_numpy(self.target.placed(answers_given(self.raw, rows.table)))
        found = self.module.record_loss.natural(self._outputs(rows), placed)
        losses: NDArray[np.float64] = found.detach().numpy()
        return losses

    def rows(self, records: Records) -> RawRows:
        """Return records as the model takes them, not yet scaled. Raises DataError as `predict` does."""
        return self._inputs.rows(records)

    def scaled(self, rows: RawRows) -> Values:
        """Return features (n, *input_shape) filled in and scaled, as the model takes them, or bytes of images.

        Raises:
            DataError: a value is missing that nothing fills in.
        """
        return self._inputs.scaled(rows)

    def logits(self, rows: RawRows) -> torch.Tensor:
        """Return the outputs (n, *outputs) in float64, a predicted number in its own unit."""
        outputs, target = self._outputs(rows), self.target
        return outputs * target.deviation + target.middle if target.is_scaled else outputs

    def _outputs(self, rows: RawRows) -> torch.Tensor:
        """Return the outputs (n, *outputs) in float64, computed batch by batch as in an evaluation."""
        labels = np.zeros(len(rows.features), np.int64)
        placed = SplitRecords.place(self.scaled(rows), labels, self.module.flat.dtype, self.module.flat.device)
        with torch.inference_mode(), plain_arithmetic():
            return torch.cat([self.module(features).cpu().double() for features, _ in placed.in_order()])

    def scores_and_classes(self, rows: RawRows) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the score of each class, (n, classes), and the number of the class of the highest, (n,).

        Raises:
            DataError: the model predicts no class, or a value is missing that nothing fills in.
        """
        loss = self.module.record_loss
        if loss.chances is None:
            raise DataError(f"this model predicts no class; its loss is the {self.loss.title}", "use predict")
        logits = self.logits(rows)
        return loss.chances(logits).numpy(), loss.classes_of(logits).numpy()


def load_model(
    path: Path | str,
    *,
    workspace: Path | str | None = None,
    fills: Mapping[str, float] | None = None,
    code_digest: str | None = None,
    frozen: Path | str | None = None,
    kept: Path | str | None = None,
) -> SavedModel:
    """Return the model in a file, ready to predict.

    Args:
        path: a .safetensors file that an aggregator, a site or a simulation has saved.
        workspace: the folder of the plan, for a model of own code ("module:function"). That code is run, if plan
            and code are those that trained the model.
        fills: what a missing number becomes, by column, where sites filled in their own means or training had no
            missing values.
        code_digest: "sha256:" and 64 hex digits of the own code that may run for a file from which the digest of
            its plan cannot be compared beforehand.
        frozen: where the parameters are that the plan froze: a file, a folder of .safetensors files, or a folder
            of a Hugging Face cache. None for plan.frozen.safetensors of the workspace, which else is the folder
            above the file's.
        kept: the part of the model that one site keeps. None for last.kept.safetensors beside last.safetensors.

    Raises:
        DataError: the file cannot be read, is no model of fedfair's, needs a workspace, or frozen or kept
            parameters, or was trained by another plan, or beside other code or parameters.
        PlanError: the workspace has no such plan or code.
    """
    place = Path(path)
    if not place.is_file():
        what = "a folder" if place.is_dir() else "not there"
        raise DataError(f"{place} is {what}", "give a model such as save/last.safetensors")
    described = read_saved(place)
    own = OwnCode(place, described, None if workspace is None else Path(workspace), code_digest)
    module = _module(own, None if frozen is None else Path(frozen))
    if module.kept is not None:
        found = read_kept(kept_beside(place) if kept is None else Path(kept), described)
        module.kept.begin_from(found.values)
    module.load(described.saved.model.vector)
    return SavedModel(described, module, fills)


def _module(own: OwnCode, frozen: Path | None) -> FlatModel:
    """Return the model of a file: the architecture that it names, with its weights."""
    path, described = own.path, own.described
    architecture = described.origin.description.architecture
    try:
        spec = TypeAdapter[ModelSpec](ModelSpec).validate_python(architecture)
    except ValidationError as error:
        first = error.errors()[0]["msg"]
        raise DataError(
            f"{path} names no model that can be built: {first}", "give a model of fedfair's"
        ) from error
    schema, seed, folder = schema_of(described.origin.description), 0, path.parent
    if isinstance(spec, str) and is_reference(spec):
        folder, seed = checked_code(own, spec)
    widths = {width: dtype for dtype, width in ARRAY_WIDTHS.items()}
    dtype = widths[described.layout.dtype]
    loss = described.origin.description.record_loss
    if isinstance(loss, OwnLoss):
        folder, seed = checked_code(own, loss.name)
    # The unit of further figures, of which nothing is summed here.
    cost = record_loss(loss, schema, 1.0, folder)
    parts = described.origin.description.parameters
    seed = seed if parts is None or parts.seed is None else parts.seed
    model = build_model(spec, schema, seed, dtype, folder, None if parts is None else parts.stated.lora)
    becomes = parts_of(model, None if parts is None else parts.stated)
    if parts is not None and parts.seed is None:
        _freeze(own, frozen, model, becomes.travel or set())
    module = FlatModel(model, dtype, record_loss=cost, parts=becomes)
    if module.layout.frozen != described.layout.frozen:
        raise DataError(
            f"{path} was trained beside frozen parameters {format_digest(described.layout.frozen)}, these are "
            f"{format_digest(module.layout.frozen) if module.layout.frozen else 'none'}",
            "name the file that the plan was frozen with",
        )
    if module.layout.digest != described.layout.digest:
        raise DataError(
            f"{path} holds {described.layout.dimension} values in {len(described.layout.entries)} tensors, its "
            f"architecture has {module.layout.dimension} in {len(module.layout.entries)}, or of other names",
            "copy the file again from where it was made",
        )
    held_as_stated(module, None if parts is None else parts.stated)
    return module


def _freeze(own: OwnCode, frozen: Path | None, model: torch.nn.Module, travels: Collection[str]) -> None:
    """Give the frozen parameters of a model the values of their file.

    Raises:
        DataError: it is not there, cannot be read, or is of another model.
    """
    workspace = own.workspace or own.path.resolve().parent.parent
    place = frozen or (workspace / PLAN_FOLDER / PLAN_FILE).with_suffix(FROZEN_SUFFIX)
    if not place.exists():
        raise DataError(
            f"{own.path} holds what was trained alone; {place}, with the frozen parameters, is not there",
            "name the file that the plan was frozen with as frozen",
        )
    freeze_tensors(model, travels, place)
