"""Whole federations that freeze a part of their model: it is in no sum, and they reach the simulation's model.

Two of the three sites have their own copy of the frozen part, in a file of the whole model.
"""

import json
from pathlib import Path

import pytest
import torch

from aggregator.finished_run import finished_run
from collaborator.preparation import find_site, make_ready
from fedfair.aggregation import model_file
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan
from fedfair.run.initial_model import read_initial_model
from fedfair.training.binding import plan_binding
from fedfair.training.flat_model import FlatModel
from fedfair.training.models import mlp
from fedfair.workspace.extension import extension
from fedfair.workspace.update import apply_update
from tests.interop.federation_kit import Federation, metrics, model_files_agree, play, prepared, states_agree
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
MODEL = {"name": "mlp", "hidden": [6]}
ADAPTED = {"train": ["output.*"], "lora": {"layers": ["hidden1"], "rank": 2}}


def begun(folder: Path, protection: dict[str, object] | None) -> Workspace:
    """Return a federation whose run begins with a file of the whole model, and trains a part of it."""
    plan = json.loads(json.dumps(small_plan(rounds=4, protection=protection)))
    plan["task"]["model"], plan["training"]["parameters"] = MODEL, ADAPTED
    whole, given = FlatModel(mlp(30, (6,), 2).double(), torch.float64), folder / "pretrained.safetensors"
    model_file.save(given, whole.layout, whole.vector(), {})
    return prepare(folder / "federation", plan, weights=given)


@pytest.mark.parametrize(("protection", "tolerance"), [(None, 1e-9), (MASKED, 1e-4)])
def test_a_federation_sums_what_travels_alone(
    tmp_path: Path, protection: dict[str, object] | None, tolerance: float
) -> None:
    workspace = begun(tmp_path, protection)
    for name in workspace.collaborators[:2]:
        with (workspace.folder / f"{name}.yaml").open("a") as file:
            file.write("frozen: ../pretrained.safetensors\n")
    assert play(workspace, Federation.everybody).state.value == "finished"
    model_files_agree(workspace, tolerance)
    states_agree(workspace)
    layout, _, _ = model_file.load(workspace.folder / "save" / "last.safetensors")
    assert layout.dimension == 2 * (30 + 6) + 7 * 2
    run = prepared(workspace)
    run.records.close()
    assert len(run.training_run.state.model.vector) == layout.dimension
    assert {line["contributors"] for line in metrics(workspace)} == {3}
    # A run that is longer freezes the same.
    stated, before = load_plan(workspace.plan), read_initial_model(workspace.plan, load_plan(workspace.plan))
    made = extension(workspace.plan, before, finished_run(workspace.folder, stated, before), 2)
    apply_update(made.update, workspace.folder)
    longer = load_plan(workspace.plan)
    assert longer.training.rounds == stated.training.rounds + 2
    assert plan_binding(longer, workspace.folder).layout == before.layout


def test_a_site_whose_frozen_part_was_swapped_does_not_take_part(tmp_path: Path) -> None:
    workspace = begun(tmp_path, MASKED)
    # Weights that its neighbour sends it, in the place that the plan's own file had.
    place = workspace.plan.with_name("plan.frozen.safetensors")
    layout, vector, words = model_file.load(place)
    model_file.save(place, layout, vector + 2.0**-30, words)
    site = find_site("clinic-a", workspace.folder / "clinic-a.yaml", workspace.plan, None)
    with pytest.raises(PlanError, match="holds other frozen parameters than the plan names"):
        make_ready(site)
