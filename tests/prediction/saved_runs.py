"""Runs of a few rounds over real records, with the model files that they save."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from fedfair.cli.loopback import prepare
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.dataset_presets import HEART
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.run.saved_model import TrainedModel, save_model
from fedfair.simulation.simulate import SimulationOutcome, simulate
from tests import plans

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


@dataclass(frozen=True)
class SavedRun:
    """A simulated run and what it leaves.

    Attributes:
        plan: the plan.
        workspace: its folder.
        plan_file: in the workspace.
        model: the saved output model.
        outcome: of the simulation.
    """

    plan: Plan
    workspace: Path
    plan_file: Path
    model: Path
    outcome: SimulationOutcome

    def losses(self, name: str, *splits: str) -> NDArray[np.float64]:
        """Return the evaluation's losses of one collaborator, split after split."""
        return np.concatenate([self.outcome.losses[ParticipantId(name)][split].values for split in splits])


def saved_run(workspace: Path, values: Mapping[str, object], name: str = "last.safetensors") -> SavedRun:
    """Write a plan, simulate it and save its model."""
    plan_file = workspace / "plan" / "plan.yaml"
    plan_file.parent.mkdir(exist_ok=True)
    plan_file.write_text(yaml.safe_dump(json.loads(json.dumps(values))))
    return simulated_run(workspace, plan_file, name)


def approved_run(workspace: Path, values: Mapping[str, object]) -> SavedRun:
    """Write a plan with keys, approvals and each site's file, simulate it and save its model."""
    return simulated_run(workspace, prepare(workspace, json.loads(json.dumps(values))).plan)


def simulated_run(workspace: Path, plan_file: Path, name: str = "last.safetensors") -> SavedRun:
    """Simulate the plan of a workspace and save its model."""
    plan = load_plan(plan_file)
    outcome = simulate(plan, workspace)
    model = workspace / name
    done = RoundNumber(outcome.result.rounds)
    saved = TrainedModel(
        outcome.model,
        done,
        outcome.origin.plan_digest,
        outcome.scaling,
        calibration=outcome.saved.calibration,
        sets=outcome.saved.sets,
    )
    save_model(model, outcome.layout, saved, outcome.origin)
    return SavedRun(plan, workspace, plan_file, model, outcome)


def heart_values(files: Mapping[str, str], **sections: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return a plan over the heart data of four hospitals."""
    task = {
        "data": {"csv": {**HEART, "train_of": dict(files)}}, "model": {"name": "mlp", "hidden": [8]},
        "standardize": "secure", "test_fraction": 0.25,
    }  # fmt: skip
    stated = plans.stated(tuple(files), task=task, training={"rounds": 3, "local_steps": 2})
    return plans.over(stated, **sections)
