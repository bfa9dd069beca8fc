"""A target in any unit is trained as its deviations are: the two runs are one, but for the unit of every loss.

The oracle is the run on (x - mean) / deviation and (y - mean) / deviation, whose scaling is 0 and 1 up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.optimize import linprog
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score

from fedfair.aggregation.target_scaling import TargetScaling, loss_unit, target_scaling
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss, least_explained
from fedfair.plan.schema import Plan
from fedfair.report.plan_review import plan_review
from fedfair.simulation.simulate import SimulationOutcome, simulate
from tests.plans import NAMES, Section, over, untuned

torch.set_num_threads(1)

COLUMNS = tuple(f"x{place}" for place in range(10))
UNIT = 77.0
"""The deviation of the targets, about."""


def diabetes(*, scaled: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return 442 records and what is predicted of them: a number from 25 to 346."""
    found = load_diabetes(scaled=scaled)
    return found.data, found.target


def write(folder: Path, features: np.ndarray, targets: np.ndarray) -> Path:
    rows = np.column_stack([features, targets]).tolist()
    lines = [",".join((*COLUMNS, "y")), *(",".join(map(repr, row)) for row in rows)]
    folder.mkdir(exist_ok=True)
    (folder / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def plan_of(loss: Mapping[str, object], task: Section | None = None, **sections: Section) -> Plan:
    table = {"target": "y", "numeric": list(COLUMNS), "train": "table.csv"}
    usual = {
        "data": {"csv": table}, "model": {"name": "linear"}, "loss": loss, "standardize": "secure",
        "partition": {"scheme": "random"},
    }  # fmt: skip
    return Plan.model_validate(untuned(NAMES, **over({"task": {**usual, **(task or {})}}, **sections)))


LOSSES: Mapping[str, Mapping[str, object]] = {
    "squared": {"name": "squared"},
    "huber": {"name": "huber", "delta": 60.0},
    "pinball": {"name": "pinball", "quantile": 0.7},
}
RANGES = {"squared": 60_000.0, "huber": 10_000.0, "pinball": 200.0}
STEPS: Mapping[str, Mapping[str, object]] = {
    "avg": {"server_optimizer": {"name": "sgd"}},
    "sgd": {"server_optimizer": {"name": "sgd", "learning_rate": 0.2}},
    "momentum": {"server_optimizer": {"name": "momentum", "learning_rate": 0.02}},
    "adam": {},
    "yogi": {"server_optimizer": {"name": "yogi", "learning_rate": 0.1}},
    "variates": {"control_variates": True, "local_steps": 3, "learning_rate": 0.02},
    "own": {"algorithm": "localbpf", "server_optimizer": None, "local_steps": 2},
    "qffl": {"algorithm": "qffl", "server_optimizer": None, "options": {"loss_power": 0.7}},
    "afl": {"algorithm": "afl", "server_optimizer": None},
    "drfa": {"algorithm": "drfa", "server_optimizer": None, "local_steps": 2},
    "dro": {"algorithm": "dro", "server_optimizer": None},
    "bpf": {"algorithm": "bpf", "server_optimizer": None},
}


def twins(
    folder: Path, name: str, training: Section, **more: Section
) -> tuple[SimulationOutcome, SimulationOutcome, float]:
    """Return a run in units and the run on deviations, and how many natural units a loss of the latter has."""
    features, targets = diabetes()
    mean, deviation = targets.mean(), targets.std()
    columns = (features - features.mean(0)) / features.std(0)
    stated = LOSSES[name]
    inside = dict(stated)
    if "delta" in inside:
        inside["delta"] = 60.0 / deviation
    unit = deviation if name == "pinball" else deviation**2
    settings = {"rounds": 6, "precision": "fp64", "batch_size": 64, "threshold_init": "quantile", "output": "last"}
    settings |= training
    engine = more.pop("engine", {"engine": "loop"})["engine"]
    found = []
    for part, loss, end, x, y in (
        ("units", stated, RANGES[name], features, targets),
        ("deviations", inside, RANGES[name] / unit, columns, (targets - mean) / deviation),
    ):
        evaluation = {"every": 2, "loss_range": end}
        plan = plan_of(loss, training=settings, evaluation=evaluation, **more)
        found.append(simulate(plan, write(folder / part, x, y), engine=engine))
    return found[0], found[1], unit


def assert_twins(one: SimulationOutcome, other: SimulationOutcome, unit: float) -> None:
    # Means and deviations are sums of 442 numbers, 1e-13 of themselves; 18 steps multiply that by less than 1000.
    np.testing.assert_allclose(one.model.vector, other.model.vector, rtol=0, atol=1e-9)
    assert np.abs(one.model.vector).max() > 1e-3
    assert one.model.threshold == pytest.approx(unit * other.model.threshold, rel=1e-8)
    assert one.result.train is not None
    assert other.result.train is not None
    assert one.result.train.mean == pytest.approx(unit * other.result.train.mean, rel=1e-8)


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_run_in_units_is_the_run_on_deviations(tmp_path: Path, name: str, steps: str, engine: str) -> None:
    assert_twins(*twins(tmp_path, name, STEPS[steps], engine={"engine": engine}))


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
@pytest.mark.parametrize("name", LOSSES)
def test_noised_steps_are_the_same_in_any_unit_of_a_declared_range(tmp_path: Path, name: str, engine: str) -> None:
    """(y - 200) / 100 lies in the middle of its range as y does, so that both runs place the same numbers."""
    features, targets = diabetes(scaled=True)
    unit = 100.0 if name == "pinball" else 100.0**2
    found = []
    for part, y, ends, delta in (
        ("units", targets, [0, 400], 60.0),
        ("hundreds", (targets - 200.0) / 100.0, [-2, 2], 0.6),
    ):
        own = 1.0 if part == "hundreds" else unit
        loss = {**LOSSES[name], "target_range": ends, **({"delta": delta} if name == "huber" else {})}
        csv = {"target": "y", "numeric": list(COLUMNS), "train": "table.csv"}
        csv["ranges"] = dict.fromkeys(COLUMNS, [-0.25, 0.25])
        plan = plan_of(
            loss,
            {"data": {"csv": csv}, "standardize": "ranges"},
            training={"rounds": 3, "precision": "fp64", "batch_size": 64, "threshold_init": 0.5 * own},
            privacy={"sample_level": {"noise_multiplier": 1.0, "clip": 0.5}},
        )
        found.append(simulate(plan, write(tmp_path / part, features, y), engine=engine))
    assert_twins(found[0], found[1], unit)


@pytest.mark.parametrize("name", LOSSES)
def test_a_threshold_that_nobody_stated_begins_at_one_loss_of_the_local_steps(tmp_path: Path, name: str) -> None:
    assert_twins(*twins(tmp_path, name, {"threshold_init": "bound"}))
