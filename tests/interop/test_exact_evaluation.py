"""Exact evaluations over real sockets, plain and masked: the same risks as a simulation, to seven digits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch
from federation_kit import Federation, metrics, play, small_plan

from fedfair.cli.loopback import prepare
from fedfair.learning.simulate import simulate
from fedfair.plan.source import load_plan


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("protection", "tolerance"),
    # A masked model is off by less than 2^-20 of a parameter here; 30 standardised features of size below 12, and
    # a loss whose slope is at most 1, make less than 1e-3 of that.
    [({"mode": "off"}, 0.0), ({"mode": "malicious", "most_records": 512, "clip": 1.0}, 1e-3)],
    ids=["plain", "masked"],
)
def test_an_exact_evaluation_has_the_risks_of_the_simulation(
    tmp_path: Path, protection: dict[str, object], tolerance: float
) -> None:
    plan = small_plan(rounds=5, protection=protection) | {
        "evaluation": {"every": 5, "bins": 8, "method": "exact", "group_sizes": [0.1, 0.5]}
    }
    workspace = prepare(tmp_path, plan)

    async def everybody(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))

    assert play(workspace, everybody).state.value == "finished"
    purposes = [line["purpose"] for line in metrics(workspace)]
    assert purposes[-5:] == ["evaluation", *["exact-evaluation"] * 4]
    simulated = json.loads(json.dumps(simulate(load_plan(workspace.plan), workspace.folder).result))
    deployed = json.loads(workspace.result.read_text())
    assert simulated["evaluation"] == deployed["evaluation"] == {"method": "exact", "given_up": None}
    for size, risk in deployed["train"]["by_group_size"].items():
        truth, (low, high) = simulated["train"]["by_group_size"][size]["worst"], risk["bound"]
        assert low - tolerance <= truth <= high + tolerance
        # Two half gaps of float32, and the slack of 569 sums: far less than a millionth.
        assert high - low <= 1e-6 * truth
        assert risk["at_least"] <= risk["worst"]
    low, high = deployed["objective"]["rcvar_bound"]
    assert low - tolerance <= simulated["objective"]["rcvar"] <= high + tolerance
    assert high - low <= 1e-6
