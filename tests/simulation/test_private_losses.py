"""Noise for records and for collaborators under every loss: each record's gradient is clipped before the noise."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.target_scaling import target_scaling
from fedfair.plan.schema import Plan
from fedfair.results.document import to_json
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from tests.plans import NAMES, parsed
from tests.simulation.other_tasks import TASKS, plan_of, write_table

CLIP = 0.2
RATE = 0.5
NO_NOISE = 1e-6
"""A noise multiplier whose noise is far below what is compared; it protects nobody."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_table(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "private_cost.py").write_text(
        "def mixing(outputs, targets):\n"
        "    errors = (outputs[:, 0] - targets).abs()\n"
        "    return errors * (1.0 + errors.mean())\n"
    )
    (tmp_path / "src" / "private_masks.py").write_text(
        "import numpy as np\n"
        "def load(folder):\n"
        "    images = np.random.default_rng(8).random((60, 1, 4, 4)).astype(np.float32)\n"
        "    return images, (images[:, 0] > 0.5).astype(np.int64)\n"
    )
    return tmp_path


def masks_plan() -> Plan:
    return parsed(
        NAMES,
        task={
            "data": "private_masks:load", "loss": "segmentation", "classes": 2, "model": {"name": "linear"},
            "partition": {"scheme": "random"}, "test_fraction": 0.0, "standardize": "none",
        },
        training={
            "algorithm": "fedavg", "rounds": 1, "batch_size": "full", "learning_rate": RATE, "output": "last",
            "server_optimizer": {"name": "sgd"}, "precision": "fp64",
        },
        evaluation={"every": 1},
        privacy={"sample_level": {"noise_multiplier": NO_NOISE, "clip": CLIP}},
    )  # fmt: skip


def private_plan(name: str, noise: float, **task: object) -> Plan:
    training = {
        "algorithm": "fedavg", "rounds": 1, "batch_size": "full", "learning_rate": RATE, "output": "last",
        "threshold_init": 0.0, "server_optimizer": {"name": "sgd"},
    }  # fmt: skip
    return plan_of(
        name, {"test_fraction": 0.0, "standardize": "none", **task}, training=training,
        evaluation={"every": 1, **({"loss_range": 16.0} if task else {})},
        privacy={"sample_level": {"noise_multiplier": noise, "clip": CLIP}}, secure_aggregation={"mode": "off"},
    )  # fmt: skip


def trained(plan: Plan, workspace: Path) -> SimulationOutcome:
    return simulate_sites(plan, load_federation(plan, workspace), workspace)


def clipped_one_by_one(plan: Plan, workspace: Path) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return the first model, the mean of all sites' clipped gradients, each from a pass of its own."""
    sites = load_federation(plan, workspace)
    schema = next(iter(sites.values())).train.schema
    model = flat_model(plan, schema, torch.device("cpu"), workspace)
    start, total, norms = model.vector().copy(), np.zeros(model.layout.dimension), []
    for site in sites.values():
        # A number is in deviations: here by its declared range.
        answers = target_scaling(plan.task.loss, None).placed(site.train.labels)
        for row, answer in zip(site.train.features, answers, strict=True):
            outputs = model.module(torch.tensor(row, dtype=torch.float64).unsqueeze(0))
            loss = model.record_loss.per_record(outputs, torch.as_tensor(answer).unsqueeze(0)).sum()
            found = torch.autograd.grad(loss, list(model.module.parameters()))
            named = dict(zip((name for name, _ in model.module.named_parameters()), found, strict=True))
            gradient = np.concatenate([named[entry.name].flatten().numpy() for entry in model.layout.entries])
            norms.append(float(np.linalg.norm(gradient)))
            total += gradient * min(1.0, CLIP / norms[-1]) if norms[-1] else 0.0
    return start, total / len(norms), norms


@pytest.mark.parametrize("name", TASKS)
def test_a_private_step_is_the_mean_of_gradients_that_were_clipped_one_by_one(workspace: Path, name: str) -> None:
    plan = private_plan(name, NO_NOISE)
    start, mean, norms = clipped_one_by_one(plan, workspace)
    assert max(norms) > CLIP  # something is clipped
    found = trained(plan, workspace).model.vector
    # Noise of deviation 1e-6 times the clip over 80 records, and a grid of its size.
    np.testing.assert_allclose(found, start - RATE * mean, rtol=0, atol=1e-6)


def test_own_losses_and_masks_of_pixels_are_clipped_record_by_record(workspace: Path) -> None:
    plan = private_plan("squared", NO_NOISE, loss="private_cost:mixing")
    start, mean, _ = clipped_one_by_one(plan, workspace)
    found = trained(plan, workspace).model.vector
    np.testing.assert_allclose(found, start - RATE * mean, rtol=0, atol=1e-6)
    plan = masks_plan()
    start, mean, norms = clipped_one_by_one(plan, workspace)
    assert max(norms) > CLIP  # something is clipped
    found = trained(plan, workspace).model.vector
    np.testing.assert_allclose(found, start - RATE * mean, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["pinball", "ordinal", "survival"])
def test_noise_for_records_is_stated_and_no_metric_is_told_without_it(workspace: Path, name: str) -> None:
    outcome = trained(private_plan(name, 4.0), workspace)
    privacy = to_json(outcome.result)["privacy"]
    assert isinstance(privacy, dict)
    assert math.isfinite(privacy["sample_level"]["epsilon"])
    # The sums of the task's metrics carry no noise, so no deployment has them.
    assert outcome.evaluation.splits["train"].figures is None


@pytest.mark.parametrize("name", ["huber", "binary", "multi_label_sum"])
def test_what_a_site_changes_is_clipped_before_its_noise_whatever_the_loss(workspace: Path, name: str) -> None:
    training = {
        "algorithm": "fedavg", "rounds": 1, "learning_rate": 5.0, "batch_size": "full", "output": "last",
        "threshold_init": 0.0, "server_optimizer": {"name": "sgd"}, "weights": "uniform",
    }  # fmt: skip
    plan = plan_of(
        name, {"test_fraction": 0.0, "standardize": "none"}, training=training,
        privacy={"collaborator_level": {"noise_multiplier": 1e-3, "clip": CLIP}},
        secure_aggregation={"mode": "malicious", "most_records": 512},
    )  # fmt: skip
    sites = load_federation(plan, workspace)
    schema = next(iter(sites.values())).train.schema
    start = flat_model(plan, schema, torch.device("cpu"), workspace).vector().copy()
    moved = float(np.linalg.norm(trained(plan, workspace).model.vector - start))
    # The mean of three changes of at most the clip, which all point the same way; 0.1 % of it is noise.
    assert 0.5 * CLIP < moved < 1.01 * CLIP
