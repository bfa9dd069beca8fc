"""Exports of models that are no classifiers: each format predicts what the model does, however large that is."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfair.prediction.export import ExportFormat, export_model
from fedfair.prediction.loaded_model import SavedModel, load_model
from fedfair.run.saved_model import TrainedModel, save_model
from fedfair.simulation.simulate import simulate
from tests.simulation.other_tasks import TASKS, plan_of, write_table


def model_for(name: str, folder: Path, scale: float) -> SavedModel:
    write_table(folder)
    outcome = simulate(plan_of(name, training={"precision": "fp32", "rounds": 2}), folder)
    scaled = replace(outcome.model, vector=outcome.model.vector * scale)
    saved = TrainedModel(scaled, 2, outcome.origin.plan_digest, None)
    path = folder / "scaled.safetensors"
    save_model(path, outcome.layout, saved, outcome.origin)
    return load_model(path)


@pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_exported(tmp_path: Path, name: str) -> None:
    model = model_for(name, tmp_path, 1.0)
    forms: tuple[ExportFormat, ...] = ("torchscript", "state-dict")
    for form in forms:
        assert export_model(model, form).difference <= 1e-6
    program = torch.jit.load(io.BytesIO(export_model(model, "torchscript").content))
    for count in (1, 3):
        predicted, _ = program(torch.zeros(count, 3, dtype=torch.float64))
        assert len(predicted) == count


@pytest.mark.slow
@pytest.mark.usefixtures("operators_read_once")
@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_exported_to_onnx(tmp_path: Path, name: str, scale: float) -> None:
    """Outputs of the size of a million are right to seven digits, and so to about a tenth."""
    exported = export_model(model_for(name, tmp_path, scale), "onnx")
    assert exported.difference <= 1e-5
