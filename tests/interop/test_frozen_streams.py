"""Whole federations that freeze a part of their model: it is in no sum, and they reach the simulation's model."""

import json
from pathlib import Path

import pytest

from fedfair.aggregation import model_file
from fedfair.cli.loopback import prepare
from tests.interop.federation_kit import Federation, metrics, model_files_agree, play, prepared, states_agree
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
MODEL = {"name": "mlp", "hidden": [6]}
ADAPTED = {"train": ["output.*"], "lora": {"layers": ["hidden1"], "rank": 2}}


@pytest.mark.parametrize(("protection", "tolerance"), [(None, 1e-9), (MASKED, 1e-4)])
def test_a_federation_sums_what_travels_alone(
    tmp_path: Path, protection: dict[str, object] | None, tolerance: float
) -> None:
    plan = json.loads(json.dumps(small_plan(rounds=4, protection=protection)))
    plan["task"]["model"], plan["training"]["parameters"] = MODEL, ADAPTED
    workspace = prepare(tmp_path, plan)
    assert play(workspace, Federation.everybody).state.value == "finished"
    model_files_agree(workspace, tolerance)
    states_agree(workspace)
    layout, _, _ = model_file.load(workspace.folder / "save" / "last.safetensors")
    columns = next(entry.shape[1] for entry in layout.entries if entry.name == "hidden1.lora_down")
    classes = next(entry.size for entry in layout.entries if entry.name == "output.bias")
    assert layout.dimension == 2 * (columns + 6) + 7 * classes
    run = prepared(workspace)
    run.records.close()
    assert len(run.training_run.state.model.vector) == layout.dimension
    assert {line["contributors"] for line in metrics(workspace)} == {3}
