"""Federations over real sockets whose sites add noise for every record: it is theirs alone, and results say so."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.aggregation.model_file import load
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.simulation.simulate import simulate
from tests.interop.federation_kit import Federation, play
from tests.plans import small_plan

# The sites of one process share Python's list of warnings, which only one thread at a time can silence.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")


def private_plan() -> dict[str, object]:
    plan = small_plan(rounds=3, protection={"mode": "semi-honest", "most_records": 512}, output="best")
    assert isinstance(plan["task"], dict)
    plan["task"]["standardize"] = "none"
    return plan | {"privacy": {"sample_level": {"noise_multiplier": 2.0, "gradients": "ghost"}}}


def everybody(workspace: Workspace) -> Callable[[Federation], Awaitable[None]]:
    async def taking_part(federation: Federation) -> None:
        endings = await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))
        assert {ending.rounds for ending in endings} == {3}

    return taking_part


def test_a_deployed_run_under_noise_is_finished_estimated_and_of_no_seed_of_the_plan(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, private_plan())
    assert play(workspace, everybody(workspace)).state.value == "finished"
    result = json.loads(workspace.result.read_text())
    told = result["privacy"]["sample_level"]
    assert told["epsilon"] is None
    assert "each collaborator's own ledger states its epsilon" in told["statement"]
    assert result["train"]["n"] == 569
    assert {group["bound"] for group in result["train"]["by_group_size"].values()} == {None}
    assert {group["worst"] is None for group in result["train"]["by_group_size"].values()} == {False}
    assert result["objective"]["rcvar_bound"] is None
    # What the noise leaves open is stated, and nothing is called certain.
    for risk in result["train"]["by_group_size"].values():
        assert risk["likely"][0] <= risk["worst"] <= risk["likely"][1]
    assert result["train"]["mean_likely"][0] < result["train"]["mean_likely"][1]
    assert not any(finding["certain"] for finding in result["verdict"]["findings"])
    # Noised figures choose no model: what is returned is what training ended with.
    assert (result["model"]["kind"], result["model"]["round"]) == ("last", 3)
    returned, trained = (
        load(workspace.folder / "save" / f"{name}.safetensors")[1] for name in ("last", "trained")
    )
    assert returned.any()
    assert returned.tobytes() == trained.tobytes()
    assert not (workspace.folder / "save" / "best.safetensors").exists()
    # A simulation of the same plan draws from the plan's seed, which must not be what the sites drew from.
    kept = parse_evaluation((workspace.folder / "save" / "evaluation.json").read_bytes(), "evaluation.json")
    simulated = simulate(load_plan(workspace.plan), workspace.folder)
    noised, drawn = (np.array(record.splits["train"].sums) for record in (kept, simulated.evaluation))
    assert np.abs(noised - drawn).max() > 1e-3
