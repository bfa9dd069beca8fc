"""Losses and records of a workspace's own code: a function as the loss, and masks of pixels as answers."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.errors import DataError, PlanError, TrainingError
from fedfair.plan.schema import Plan
from fedfair.prediction.export import ExportFormat, export_model
from fedfair.prediction.loaded_model import SavedModel, load_model
from fedfair.run.saved_model import save_model
from fedfair.simulation.simulate import SimulationOutcome, simulate
from tests.plans import NAMES, parsed

CODE = """
import numpy as np
import torch

def numbers(folder):
    source = np.random.default_rng(7)
    features = source.normal(size=(90, 2))
    return features, features @ [1.0, -2.0] + 0.1 * source.normal(size=90)

def masks(folder):
    source = np.random.default_rng(8)
    images = source.random((60, 1, 4, 4)).astype(np.float32)
    return images, (images[:, 0] > 0.5).astype(np.int64)

def epsilon_insensitive(outputs, targets):
    return torch.relu((outputs[:, 0] - targets).abs() - 0.1)

def negative(outputs, targets):
    return outputs[:, 0] - targets
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one folder for all tests: a process imports a module of one name from one place."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "src").mkdir()
    (folder / "src" / "own_task.py").write_text(CODE)
    return folder


def plan_for(**task: object) -> Plan:
    training = {"algorithm": "fedavg", "rounds": 150, "learning_rate": 0.3, "precision": "fp64"}
    given: dict[str, object] = {
        "partition": {"scheme": "random"}, "test_fraction": 0.2, "model": {"name": "linear"},
    }  # fmt: skip
    return parsed(NAMES, task=given | task, training=training, evaluation={"loss_range": 8.0, "every": 150})


def mean_before_and_after(outcome: SimulationOutcome) -> tuple[float, float]:
    return outcome.result.history[0].train.mean, outcome.result.trained.mean


def saved_model(outcome: SimulationOutcome, workspace: Path) -> SavedModel:
    path = workspace / "saved.safetensors"
    save_model(path, outcome.layout, outcome.saved, outcome.origin)
    return load_model(path)


def test_a_loss_of_own_code_is_trained_by_the_loop_and_named_with_its_code(workspace: Path) -> None:
    plan = plan_for(data="own_task:numbers", loss="own_task:epsilon_insensitive")
    assert plan.task.references == ("own_task:epsilon_insensitive", "own_task:numbers")
    with pytest.raises(PlanError, match="one collaborator at a time"):
        simulate(plan, workspace, engine="vectorised")
    outcome = simulate(plan, workspace)
    before, after = mean_before_and_after(outcome)
    assert after < 0.2 * before
    assert outcome.result.uniform_floor is None
    assert outcome.result.trained.accuracy is None
    assert outcome.result.trained.metrics is None
    assert outcome.result.plan is not None
    assert outcome.result.plan.loss == "own loss own_task:epsilon_insensitive in units of its own"


def test_a_loss_of_own_code_without_a_declared_range_or_below_zero_is_refused(workspace: Path) -> None:
    plan = plan_for(data="own_task:numbers", loss="own_task:epsilon_insensitive")
    open_ended = plan.model_copy(update={"evaluation": plan.evaluation.model_copy(update={"loss_range": None})})
    with pytest.raises(PlanError, match=r"evaluation\.loss_range: is not stated"):
        simulate(open_ended, workspace)
    with pytest.raises(TrainingError, match="own_task:negative returns losses that are negative"):
        simulate(plan_for(data="own_task:numbers", loss="own_task:negative"), workspace)


def test_masks_of_pixels_are_learnt_by_the_mean_over_a_records_pixels(workspace: Path) -> None:
    plan = plan_for(data="own_task:masks", loss="segmentation", classes=2)
    outcome = simulate(plan, workspace)
    before, after = mean_before_and_after(outcome)
    assert before == pytest.approx(np.log(2.0), rel=1e-6)
    assert after < 0.9 * before
    assert outcome.result.uniform_floor == pytest.approx(np.log(2.0))
    metrics = outcome.result.trained.metrics
    assert metrics is not None
    assert isinstance(metrics["pixel_accuracy"], float)
    assert metrics["pixel_accuracy"] > 0.7
    assert isinstance(metrics["overlap"], tuple)
    assert len(metrics["overlap"]) == 2
    model = saved_model(outcome, workspace)
    masks = model.predict(np.random.default_rng(1).random((3, 1, 4, 4)).astype(np.float32))
    assert masks.shape == (3, 4, 4)
    assert set(np.unique(masks)) <= {0, 1}
    with pytest.raises(DataError, match="no table"):
        _ = model.answer_columns


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated:DeprecationWarning")
def test_a_model_of_masks_is_exported_with_the_outputs_of_every_class(workspace: Path) -> None:
    outcome = simulate(plan_for(data="own_task:masks", loss="segmentation", classes=2), workspace)
    model = saved_model(outcome, workspace)
    forms: tuple[ExportFormat, ...] = ("onnx", "torchscript", "state-dict")
    exported = {form: export_model(model, form) for form in forms}
    assert max(each.difference for each in exported.values()) <= 1e-5
    predicted, _ = torch.jit.load(io.BytesIO(exported["torchscript"].content))(torch.zeros(3, 1, 4, 4).double())
    assert predicted.shape == (3, 2, 4, 4)


def test_numbers_and_labels_of_another_shape_than_the_loss_takes_are_refused(workspace: Path) -> None:
    with pytest.raises(DataError, match="labels of float64"):
        simulate(plan_for(data="own_task:numbers"), workspace)
    with pytest.raises(PlanError, match="takes an answer of shape"):
        simulate(plan_for(data="own_task:numbers", loss={"name": "multi_label", "labels": 3}), workspace)
