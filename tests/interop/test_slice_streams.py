"""Slices under masks, in a federation that is stopped between two of their sums and continues."""

import asyncio
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.results.document import to_json
from fedfair.simulation.simulate import simulate
from fedfair.statistics.table import Purpose
from tests.interop.federation_kit import Federation, metrics, play, states_agree
from tests.plans import NAMES, small_plan

MASKED = {"mode": "malicious", "most_records": 512}
TABLE = {
    "label": "ill",
    "numeric": ["age"],
    "categorical": {"sex": ["f", "m"]},
    "train_of": {name: f"{name}.csv" for name in NAMES},
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    plan = small_plan(rounds=2, protection=MASKED)
    plan["task"] = {
        "data": {"csv": TABLE},
        "standardize": "secure",
        "test_fraction": 0.5,
        "model": {"name": "linear", "init": "zeros"},
    }
    plan["evaluation"] = {"every": 2, "bins": 64, "slices": {"bins": 3, "outcomes": True}}
    for place, name in enumerate(NAMES):
        draws = np.random.default_rng(place)
        people = zip(
            draws.integers(20, 90, 120), draws.choice(["f", "m"], 120), draws.integers(0, 2, 120), strict=True
        )
        rows = "\n".join(",".join(map(str, one)) for one in people)
        (tmp_path / f"{name}.csv").write_text(f"age,sex,ill\n{rows}\n")
    found = prepare(tmp_path, plan)
    for name in NAMES:
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "data": {"train": f"{name}.csv"}}))
    return found


def test_slices_under_masks_survive_a_stop_and_are_those_of_the_simulation(workspace: Workspace) -> None:
    async def stopped(federation: Federation) -> None:
        everybody = [asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators]
        await federation.watching.until(
            lambda: any(one.purpose is Purpose.SLICES for one in federation.watching.progress)
        )
        os.kill(os.getpid(), signal.SIGTERM)
        await federation.serving
        for one in everybody:
            one.cancel()

    assert play(workspace, stopped).state.value == "stopped"
    assert play(workspace, Federation.everybody).state.value == "finished"
    purposes = [line["purpose"] for line in metrics(workspace)]
    assert purposes.count("slices") == 3
    assert purposes[-3:] == ["slices"] * 3
    states_agree(workspace)
    simulated = json.loads(json.dumps(to_json(simulate(load_plan(workspace.plan), workspace.folder).result)))
    deployed = json.loads(workspace.result.read_text())
    here, there = deployed["slices"], simulated["slices"]
    assert here["n"] == there["n"] == 180
    assert here["looked_at"] == there["looked_at"] == 11
    assert {json.dumps(one["cells"]) for one in here["slices"]} >= {json.dumps(there["slices"][0]["cells"])}
    assert "decisions" not in here, "outcomes are drawn at random: nobody is served worse"
    # A masked model is off by 2^-20 of a parameter, which a draw may turn into a step of a record: 180 of them.
    assert here["mean"] == pytest.approx(there["mean"], abs=2 * 8 * np.log(2) / 64 / 180)
    # A saved model is evaluated without slices: a run tells of them once.
    model = workspace.folder / "save" / "last.safetensors"
    assert play(workspace, Federation.everybody, model=model).state.value == "finished"
    lines = (workspace.folder / "evaluation" / "logs" / "aggregator_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["purpose"] for line in lines] == ["evaluation"]
    assert "slices" not in json.loads((workspace.folder / "evaluation" / "result.json").read_text())
