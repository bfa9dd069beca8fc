"""A saved model that predicts: its file alone says what it takes, how that is scaled, and what it returns.

Decides how features are scaled and missing values filled, and that logits, probabilities and losses are computed
as an evaluation computes them (`training.inference`). Only a model of own code ("module:function") needs more than
its file: the workspace with the very plan and code that trained it, whose digest is compared. How raw records are
read is `raw_rows.py`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter, ValidationError

from fedfair.aggregation.calibration import Calibration
from fedfair.aggregation.feature_scaling import scale_columns
from fedfair.aggregation.target_scaling import TargetScaling, of_features, scaled_columns, target_scaling
from fedfair.errors import DataError
from fedfair.plan.fields import Scalar, is_reference
from fedfair.plan.losses import Loss, OwnLoss, has_classes
from fedfair.plan.task import ModelSpec
from fedfair.prediction.answers import answer_names, answer_table, answers
from fedfair.prediction.calibrated_chances import calibrated_chances, fits_of
from fedfair.prediction.own_code import OwnCode, checked_code
from fedfair.prediction.raw_rows import (
    RawColumns,
    RawRows,
    classes_of_labels,
    raw_columns,
    rows_of_array,
    rows_of_table,
)
from fedfair.prediction.raw_tables import GIVEN, table_of
from fedfair.run.calibration_words import answer_words
from fedfair.run.model_description import ModelDescription, schema_of, source_of
from fedfair.run.saved_model import DescribedModel, read_saved
from fedfair.run.which_model import WhichModel
from fedfair.tables.feature_coding import answers_of
from fedfair.tables.pixels import Values, are_pixels, feature_values
from fedfair.tables.ranges import scaled_features
from fedfair.tables.text_table import Faults, TextTable, counted
from fedfair.training.device import SplitRecords, plain_arithmetic
from fedfair.training.flat_model import ARRAY_WIDTHS, FlatModel
from fedfair.training.models import build_model
from fedfair.training.record_loss import record_loss

if TYPE_CHECKING:
    import pandas as pd

    Records = pd.DataFrame | Mapping[str, ArrayLike] | NDArray[np.generic] | Sequence[Sequence[object]]

SHOWN_ROWS = 20


class SavedModel:
    """A model from a file, ready to predict on this machine's CPU.

    Args:
        described: what its file says.
        module: the model, with the file's weights.
        fills: by the name of a feature the number that a missing value becomes, where sites filled in their own
            means or training had no missing values.

    Raises:
        DataError: fills are given for a feature that the model does not have, or that it fills itself.
    """

    def __init__(
        self, described: DescribedModel, module: FlatModel, fills: Mapping[str, float] | None = None
    ) -> None:
        self._described = described
        self._module = module.eval()
        self._target = target_scaling(described.origin.description.record_loss, described.saved.scaling)
        self._module.record_loss = self._module.record_loss.under(self._target)
        self._schema = schema_of(described.origin.description)
        self._fills = dict(fills or {})
        trained = raw_columns(source_of(described.origin.description), self._schema)
        self._raw = trained.with_gaps(self._fills)
        self._check_scaling()
        self._check_fills(trained)

    def __repr__(self) -> str:
        described, told = self._described, ", ".join(str(label) for label in self.classes)
        told = told if self.has_classes else self.loss.title
        rounds = counted(int(described.saved.round), "round")
        return f"SavedModel({described.origin.federation!r}, {self._schema.input_shape} to {told}, {rounds})"

    @property
    def which(self) -> WhichModel | None:
        """Which of its run's models it is; None where its file does not say it."""
        return self._described.saved.which

    @property
    def loss(self) -> Loss:
        """The loss of single records that the model was trained by."""
        return self.description.record_loss

    @property
    def has_classes(self) -> bool:
        """Whether it predicts one class for a record."""
        return has_classes(self.loss)

    @property
    def classes(self) -> tuple[Scalar, ...]:
        """The classes in the order of the probabilities; none where the model predicts no class.

        A class is the label that stands for it. It is its name where several labels do, or where the plan states
        none, and its number from 0 where it has no name.
        """
        return self.description.label.labels if self.has_classes else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that become features, in the order of an array's columns; empty where they have none.

        Columns of `numeric: all` have no names in the plan: an array gives them first, sorted by their names.
        """
        return self._raw.names or ()

    @property
    def raw(self) -> RawColumns:
        """How raw records of this model are read."""
        return self._raw

    @property
    def described(self) -> DescribedModel:
        """Everything that the file says."""
        return self._described

    @property
    def description(self) -> ModelDescription:
        """The inputs and outputs of the model."""
        return self._described.origin.description

    @property
    def module(self) -> FlatModel:
        """The model itself: from scaled features (batch, *input_shape) to outputs, of classes their logits.

        A predicted number is in deviations, as `target` says.
        """
        return self._module

    @property
    def plan_digest(self) -> str:
        """The digest of the plan that trained the model, "sha256:" and 64 hex digits; empty if not said."""
        return self._described.saved.plan_digest

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
        return np.array(self.classes)[self.judged(rows)[1]]

    def predict_proba(self, records: Records) -> NDArray[np.float64]:
        """Return the probability of each class, array (n, classes); each row sums to 1.

        They are calibrated where the file has a calibration; see `answer_words`, and `scores` for those of the
        model itself. `predict` says the class that the evaluation judged, which has the highest score: with a
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
        return self.judged(self.rows(records))[0]

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores (n, classes) calibrated; as they are, where the file has no calibration."""
        found = self._described.saved.calibration
        if not isinstance(found, Calibration):
            return scores
        chances: NDArray[np.float64] = calibrated_chances(torch.from_numpy(scores), *fits_of(found)).numpy()
        return chances

    @property
    def is_calibrated(self) -> bool:
        """Whether `predict_proba` returns probabilities, and not scores."""
        return isinstance(self._described.saved.calibration, Calibration)

    @property
    def answer_words(self) -> str:
        """The answers of `predict_proba` in words: probabilities, by which records, or only scores, and why."""
        return answer_words(self._described.saved.calibration)

    @property
    def answer_columns(self) -> tuple[str, ...]:
        """The names of the numbers that a model without classes says of each record.

        Raises:
            DataError: the answers are masks.
        """
        count = int(np.prod(self._schema.output_shape))
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
        if not self.has_classes:
            return self._losses_of_numbers(rows)
        labels = None if rows.table is None else classes_of_labels(self._raw, rows.table)
        if rows.table is None or labels is None:
            column = self.description.label.column
            raise DataError(f"{GIVEN} have no label{f' {column}' if column else ''}", "give it as one more column")
        faults, column = Faults(rows.table), str(self._raw.spec and self._raw.spec.label)
        faults.add(column, "a label that the model does not know", labels < 0, f"it knows {self.classes}")
        faults.refuse()
        return self._losses_of(rows, labels)

    def _losses_of_numbers(self, rows: RawRows) -> NDArray[np.float64]:
        spec, table = self._raw.spec, rows.table
        wanted = () if spec is None else spec.answer_columns
        missing = [name for name in wanted if table is None or name not in table.columns]
        if spec is None or table is None or missing:
            named = f" {missing[0]}" if missing else ""
            raise DataError(f"{GIVEN} have no answer{named}", "give it as one more column")
        faults = Faults(table)
        found = answers_of(table, spec, 0, faults)
        faults.refuse()
        return self._losses_of(rows, found)

    def _losses_of(self, rows: RawRows, given: NDArray[Any]) -> NDArray[np.float64]:
        placed = torch.from_numpy(self._target.placed(given))
        found = self._module.record_loss.natural(self._outputs(rows), placed)
        losses: NDArray[np.float64] = found.detach().numpy()
        return losses

    def rows(self, records: Records) -> RawRows:
        """Return records as the model takes them, not yet scaled. Raises DataError as `predict` does."""
        if isinstance(records, np.ndarray | Sequence):
            return rows_of_array(self._raw, np.asarray(records))
        return rows_of_table(self._raw, table_of(records, self._raw.spec))

    def scaled(self, rows: RawRows) -> Values:
        """Return features (n, *input_shape) filled in and scaled, as the model takes them, or bytes of images.

        Raises:
            DataError: a value is missing that nothing fills in.
        """
        described, features = self._described.saved, rows.features
        if are_pixels(features):
            return features
        numbers = self._stated(feature_values(features))
        if described.scaling is not None:
            return scale_columns(numbers, self._schema.numeric, of_features(self.loss, described.scaling))
        if self.description.input.by_ranges and self._schema.numeric:
            return scaled_features(numbers, self._schema)
        return self._filled(numbers, rows.table)

    @property
    def target(self) -> TargetScaling:
        """The scaling of a predicted number: an output of the model is in deviations from its middle."""
        return self._target

    def logits(self, rows: RawRows) -> torch.Tensor:
        """Return the outputs (n, *outputs) in float64, a predicted number in its own unit."""
        outputs = self._outputs(rows)
        target = self._target
        return outputs * target.deviation + target.middle if target.is_scaled else outputs

    def _outputs(self, rows: RawRows) -> torch.Tensor:
        """Return the outputs (n, *outputs) in float64, computed batch by batch as in an evaluation."""
        labels = np.zeros(len(rows.features), np.int64)
        placed = SplitRecords.place(self.scaled(rows), labels, self._module.flat.dtype, self._module.flat.device)
        with torch.inference_mode(), plain_arithmetic():
            return torch.cat([self._module(features).cpu().double() for features, _ in placed.in_order()])

    def judged(self, rows: RawRows) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the score of each class, (n, classes), and the number of the class of the highest, (n,).

        Raises:
            DataError: the model predicts no class, or a value is missing that nothing fills in.
        """
        loss = self._module.record_loss
        if loss.chances is None:
            raise DataError(f"this model predicts no class; its loss is the {self.loss.title}", "use predict")
        logits = self.logits(rows)
        return loss.chances(logits).numpy(), loss.classes_of(logits).numpy()

    def _check_scaling(self) -> None:
        """Refuse a model that was saved before the features were scaled: its figures would be another's."""
        saved = self._described.saved
        columns = scaled_columns(self.loss, len(self._schema.numeric))
        if self.description.input.by_sums and saved.scaling is None and saved.round == 0 and columns:
            raise DataError(
                "this model does not say how its features are scaled: it is from before the first round",
                "give a model that was saved after it, such as save/last.safetensors",
            )

    def _check_fills(self, trained: RawColumns) -> None:
        if not self._fills:
            return
        scales = self._described.saved.scaling is not None or self.description.input.by_ranges
        fixed = [name for name in self._fills if scales and not trained.refuses_gaps(name)]
        if fixed:
            raise DataError(
                f"this model fills in missing numbers itself, as it did in training, also those of '{fixed[0]}'",
                "give no number to fill in",
            )
        numbers = [self._schema.names[place] for place in self._schema.numeric if self._schema.names]
        unknown = [name for name in self._fills if name not in numbers]
        if unknown:
            raise DataError(f"'{unknown[0]}' is no numeric column of this model", f"they are {', '.join(numbers)}")

    def _stated(self, given: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return features in which each missing number is the one that was stated for its column."""
        if not self._fills:
            return given
        features = given.copy()
        for name, number in self._fills.items():
            place = self._schema.names.index(name)
            features[np.isnan(features[:, place]), place] = number
        return features

    def _filled(self, given: NDArray[np.floating], table: TextTable | None) -> NDArray[np.floating]:
        """Return features without a gap; a DataError names one for which no number was stated."""
        missing = np.isnan(given)
        if not missing.any():
            return given
        left = np.argwhere(missing)
        if len(left):
            place = int(left[0][1])
            name = self._schema.name_of((place,))
            where = [int(row) for row, column in left if column == place]
            raise DataError(
                f"{_places_of(table, where)}: {name} is missing, and training filled in each site's own "
                "mean, which the model's file does not have",
                f"fill them in, or give this site's own mean with --fill {name.strip(chr(39))}=NUMBER",
            )
        return given


def load_model(
    path: Path | str,
    *,
    workspace: Path | str | None = None,
    fills: Mapping[str, float] | None = None,
    code_digest: str | None = None,
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

    Raises:
        DataError: the file cannot be read, is no model of fedfair's, needs a workspace, or was trained by another
            plan or other code.
        PlanError: the workspace has no such plan or code.
    """
    place = Path(path)
    if not place.is_file():
        what = "a folder" if place.is_dir() else "not there"
        raise DataError(f"{place} is {what}", "give a model such as save/last.safetensors")
    described = read_saved(place)
    own = OwnCode(place, described, None if workspace is None else Path(workspace), code_digest)
    return SavedModel(described, _module(own), fills)


def model_of(described: DescribedModel, workspace: Path | None = None) -> SavedModel:
    """Return a model that was never in a file, such as a simulation's output.

    Args:
        described: what its file would say.
        workspace: the folder of the plan, for a model of own code.
    """
    return SavedModel(described, _module(OwnCode(Path("the model"), described, workspace)))


def _module(own: OwnCode) -> FlatModel:
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
    module = FlatModel(build_model(spec, schema, seed, dtype, folder), dtype, record_loss=cost)
    if module.layout.digest != described.layout.digest:
        raise DataError(
            f"{path} holds {described.layout.dimension} values in {len(described.layout.entries)} tensors, its "
            f"architecture has {module.layout.dimension} in {len(module.layout.entries)}, or of other names",
            "copy the file again from where it was made",
        )
    module.load(described.saved.model.vector)
    return module


def _places_of(table: TextTable | None, rows: Sequence[int]) -> str:
    """Return in words where some rows are."""
    if table is None:
        return f"{GIVEN}, {counted(len(rows), 'row')}"
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    shown = ", ".join(str(table.lines[row]) for row in rows[:SHOWN_ROWS])
    return f"{table.path}, {table.place} {shown}{more}"
