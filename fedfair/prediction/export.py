"""A saved model in the formats of other systems, with the scaling of its features inside.

Decides what goes in and what comes out, the same for every format. In: raw features (n, *input_shape), categories
coded as the file says, NaN for a missing number. Out: the number of the class of the highest score (n,), and the
probability of each (n, classes), which is calibrated where the model's file has a calibration; the metadata say
which, and the threshold of its sets. Scaling, filling, model and calibration are inside. An export is run, and
returned only if its probabilities are the model's own.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedfair.aggregation.calibration import NOT_SAID, Calibration, Uncalibrated
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.target_scaling import AS_IT_IS, TargetScaling, of_features
from fedfair.conformal.prediction_sets import set_fields
from fedfair.errors import DataError
from fedfair.extras import install_command
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.prediction.answers import calibrated_chances, fits_of
from fedfair.prediction.loaded_model import SavedModel
from fedfair.prediction.model_inputs import RawRows
from fedfair.run.calibration_text import CALIBRATION_KEY, calibration_fields
from fedfair.run.model_description import schema_of
from fedfair.tables.pixels import Values, feature_values
from fedfair.tables.seeds import array_generator
from fedfair.training.eight_bits import widen_eight_bits
from fedfair.training.lora import merge_adapters
from fedfair.training.record_loss import CROSS_ENTROPY, RecordLoss

ExportFormat = Literal["onnx", "torchscript", "state-dict"]

INPUT, PREDICTED, PROBABILITIES = "features", "predicted", "probabilities"
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-5
"""The greatest difference of a probability, or of an output by its size; others add up in another order."""

SAMPLES = 64
METADATA = "fedfair.json"


class ScaledModel(nn.Module):
    """A model with the scaling of its features, from raw features to predictions.

    Args:
        module: from scaled features (n, *input_shape) to logits (n, classes).
        schema: of the features.
        scaling: the overall means and deviations of the numeric columns; None where there are none.
        by_ranges: whether columns are scaled by their declared ranges.
        dtype: in which the module computes.
        calibration: of its scores, or why there is none.
        loss: that the model was trained by.
        target: of a predicted number, which comes out in its own unit.
    """

    slopes: Tensor
    intercepts: Tensor
    shift: Tensor
    scale: Tensor
    least: Tensor
    greatest: Tensor
    target_shift: Tensor
    target_scale: Tensor

    def __init__(
        self,
        module: nn.Module,
        schema: FeatureSchema,
        scaling: FeatureScaling | None,
        *,
        by_ranges: bool,
        dtype: torch.dtype,
        loss: RecordLoss = CROSS_ENTROPY,
        calibration: Calibration | Uncalibrated = NOT_SAID,
        target: TargetScaling = AS_IT_IS,
    ) -> None:
        super().__init__()
        self.calibrated = loss.chances is not None and isinstance(calibration, Calibration)
        if isinstance(calibration, Calibration):
            slopes, intercepts = fits_of(calibration)
            self.register_buffer("slopes", slopes)
            self.register_buffer("intercepts", intercepts)
        self.chances, self.by_logits = loss.chances, loss.is_cross_entropy
        self.module, self.answers_in_deviations = module, target.is_scaled
        self.dtype = dtype
        self.scaled = scaling is not None or by_ranges
        columns = schema.input_shape[0] if self.scaled else 0
        shift, scale = np.zeros(columns), np.ones(columns)
        least, greatest = np.full(columns, -np.inf), np.full(columns, np.inf)
        places = list(schema.numeric)
        if scaling is not None:
            shift[places], scale[places] = scaling.mean, scaling.scale
        elif by_ranges:
            low, high = np.array(schema.ranges, np.float64).reshape(-1, 2).T
            shift[places], scale[places] = low / 2 + high / 2, high / 2 - low / 2
            least[places], greatest[places] = -1.0, 1.0
        for name, values in (("shift", shift), ("scale", scale), ("least", least), ("greatest", greatest)):
            self.register_buffer(name, torch.from_numpy(values))
        if target.is_scaled:
            for name, value in (("target_shift", target.middle), ("target_scale", target.deviation)):
                self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likeliest class, int64 (n,), and the probabilities, float64 (n, classes), of raw features.

        A model without classes returns its outputs twice, float64 (n, *outputs), a number in its own unit.
        """
        if self.scaled:
            features = torch.minimum(
                torch.maximum((features - self.shift) / self.scale, self.least), self.greatest
            )
            features = torch.where(torch.isnan(features), torch.zeros_like(features), features)
        logits = self.module(features.to(self.dtype)).double()
        if self.chances is None:
            if self.answers_in_deviations:
                logits = logits * self.target_scale + self.target_shift
            return logits, logits
        chances = self.chances(logits)
        likeliest = (logits if self.by_logits else chances).argmax(dim=1)
        return likeliest, calibrated_chances(chances, self.slopes, self.intercepts) if self.calibrated else chances


@dataclass(frozen=True, slots=True)
class Exported:
    """An export that has not been written yet.

    Attributes:
        content: of the file.
        checked: how many records were compared with the model's own predictions.
        difference: the greatest difference of a probability over them, or of an output by its size.
    """

    content: bytes
    checked: int
    difference: float


def export_model(model: SavedModel, form: ExportFormat, features: Values | None = None) -> Exported:
    """Return a model in another format, compared with the model itself.

    Args:
        model: the model.
        form: onnx, torchscript, or state-dict (of a `ScaledModel`).
        features: raw features (n, *input_shape) to compare on; by default random ones around the means.

    Raises:
        DataError: a package is not installed, or the export predicts something else.
    """
    made = scaled_model(model)
    given = _samples(model) if features is None else np.asarray(feature_values(features), np.float64)
    rows = RawRows(given, None)
    expected = (
        model.probabilities(model.scores_and_classes(rows)[0]) if model.has_classes else model.logits(rows).numpy()
    )
    makers: Mapping[ExportFormat, Callable[[ScaledModel, SavedModel, NDArray[np.floating]], _Found]] = {
        "onnx": _onnx,
        "torchscript": _torchscript,
        "state-dict": _state_dict,
    }
    content, found = makers[form](made, model, given)
    # A probability is at most 1; an output has any size, and is no nearer than its own rounding.
    difference = float((np.abs(found - expected) / np.maximum(np.abs(expected), 1.0)).max())
    if not difference <= TOLERANCE:
        what = "a probability" if model.has_classes else "an output, by its own size,"
        raise DataError(
            f"the {form} file predicts something else: {what} differs by {difference:g}",
            "export another format, and report this model's architecture",
        )
    return Exported(content, len(given), difference)


def scaled_model(model: SavedModel) -> ScaledModel:
    """Return a model with its scaling inside, as a copy that shares no memory with it."""
    module = copy.deepcopy(model.module.module)
    merge_adapters(module)
    widen_eight_bits(module)
    for parameter in module.parameters():
        parameter.grad = None
        parameter.data = parameter.data.clone()
        parameter.requires_grad = False
    for buffer in module.buffers():
        buffer.data = buffer.data.clone()
    schema, scaling = schema_of(model.description), model.described.saved.scaling
    scaling = None if scaling is None else of_features(model.loss, scaling)
    ranges = model.description.input.by_ranges and bool(schema.numeric)
    dtype, loss = model.module.flat.dtype, model.module.record_loss
    made = ScaledModel(
        module,
        schema,
        scaling,
        by_ranges=ranges,
        dtype=dtype,
        loss=loss,
        calibration=model.described.saved.calibration,
        target=model.target,
    )
    return made.eval()


def export_metadata(model: SavedModel) -> dict[str, str]:
    """Return the words that an export carries about itself; most values are JSON."""
    schema, found = schema_of(model.description), calibration_fields(model.described.saved.calibration)
    calibration = {key: found[key] for key in found if key == CALIBRATION_KEY}
    return {
        "plan_digest": model.plan_digest,
        "federation": model.described.origin.federation,
        "classes": json.dumps(model.classes),
        "features": json.dumps(schema.names),
        **model.description.words(),
        **({"returns": model.answer_words} | calibration if model.has_classes else {}),
        **set_fields(model.described.saved.sets),
    }


_Found = tuple[bytes, NDArray[np.float64]]


def _samples(model: SavedModel) -> NDArray[np.float64]:
    """Return features to compare on: around the means, as wide as the deviations, and one value missing."""
    schema, saved = schema_of(model.description), model.described.saved
    draws = array_generator(0, "export")
    features = draws.normal(size=(SAMPLES, *schema.input_shape))
    if saved.scaling is not None:
        columns, known = list(schema.numeric), of_features(model.loss, saved.scaling)
        features[:, columns] = features[:, columns] * known.scale + known.mean
        features[0, columns[:1]] = np.nan
    return features


def _onnx(made: ScaledModel, model: SavedModel, given: NDArray[np.floating]) -> _Found:
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if missing:
        raise DataError(f"--format onnx needs {' and '.join(missing)}", install_command("onnx"))
    import onnxruntime

    example = torch.from_numpy(given[:2] if len(given) > 1 else np.concatenate([given, given]))
    with tempfile.TemporaryDirectory(prefix="fedfair-onnx-") as folder, _quietly():
        program = torch.onnx.export(
            made,
            (example,),
            input_names=[INPUT],
            output_names=[PREDICTED, PROBABILITIES],
            dynamic_shapes=({0: torch.export.Dim("records")},),
            dynamo=True,
        )
        if program is None:
            raise DataError("this model has no ONNX form", "export another format")
        program.model.metadata_props.update(export_metadata(model))
        path = Path(folder) / "model.onnx"
        program.save(path, external_data=False)
        content = path.read_bytes()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, np.asarray(session.run([PROBABILITIES], {INPUT: given})[0], np.float64)


def _torchscript(made: ScaledModel, model: SavedModel, given: NDArray[np.floating]) -> _Found:
    with _quietly():
        traced = torch.jit.trace(made, torch.from_numpy(given), check_trace=False)
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer, _extra_files={METADATA: json.dumps(export_metadata(model))})
        loaded = torch.jit.load(io.BytesIO(buffer.getvalue()))
    with torch.inference_mode():
        found = loaded(torch.from_numpy(given))[1].numpy()
    return buffer.getvalue(), found


def _state_dict(made: ScaledModel, model: SavedModel, given: NDArray[np.floating]) -> _Found:
    buffer = io.BytesIO()
    torch.save(made.state_dict(), buffer)
    again = scaled_model(model)
    for tensor in again.state_dict().values():
        tensor.zero_()
    again.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    with torch.inference_mode():
        found = again(torch.from_numpy(given))[1].numpy()
    return buffer.getvalue(), found


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep to itself what an exporter says of its own insides; its faults are still raised."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
