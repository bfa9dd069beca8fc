"""A federation over real sockets that protects whole collaborators: the simulation's numbers, and no others."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from collaborator.ledger import Ledger
from collaborator.preparation import read_records
from fedfair.aggregation.model_file import load
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import FedfairError, PlanError
from fedfair.plan.loading import load_plan
from fedfair.privacy.releases import ReleaseLog, SkellamRelease
from fedfair.results.document import to_json
from fedfair.simulation.simulate import SimulationOutcome, simulate
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import simulated_protection
from tests.interop.federation_kit import Federation, Watching, metrics, play
from tests.plans import small_plan

torch.set_num_threads(1)


def noised_workspace(folder: Path) -> Workspace:
    plan = small_plan(rounds=4, protection={"mode": "malicious", "ring_bits": 24}, weights="uniform")
    plan["task"] = {**plan["task"], "standardize": "ranges"}  # type: ignore[dict-item]
    plan["privacy"] = {"collaborator_level": {"noise_multiplier": 2.0, "clip": 0.2}}
    return prepare(folder, plan)


def with_seeded_noise(federation: Federation, name: str) -> ReleaseLog:
    """Have a site draw the noise that it draws in a simulation, which anyone can draw again."""
    ready, log = federation.ready(name), ReleaseLog()
    plan, participant = ready.site.plan, ready.site.participant
    model = flat_model(plan, ready.binding.schema, torch.device("cpu"), ready.site.workspace)
    protection = simulated_protection(plan, participant, log)
    task = TrainingClient(plan, participant, read_records(ready.site).splits, model, protection=protection)
    federation.sites[name] = replace(ready, task=task)
    return log


def test_a_deployed_run_gives_the_model_of_the_simulation_bit_for_bit_and_states_its_epsilon(
    tmp_path: Path,
) -> None:
    workspace = noised_workspace(tmp_path)
    logs: list[ReleaseLog] = []
    watching: list[Watching] = []

    async def everybody(federation: Federation) -> None:
        watching.append(federation.watching)
        logs.extend(with_seeded_noise(federation, name) for name in workspace.collaborators)
        await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))

    assert play(workspace, everybody).state.value == "finished"
    simulated: SimulationOutcome = simulate(load_plan(workspace.plan), workspace.folder)
    _, vector, metadata = load(workspace.folder / "save" / "last.safetensors")
    assert vector.tobytes() == simulated.model.vector.tobytes()
    assert metadata["threshold"] == repr(simulated.model.threshold)
    # Nothing but four training sums was ever made, and each was written down before.
    assert [line["purpose"] for line in metrics(workspace)] == ["training"] * 4
    assert [len(log.sums) for log in logs] == [4, 4, 4]
    assert not (workspace.folder / "save" / "evaluation.json").exists()
    # The last vote of the run may come after its end; the site that sent it has heard the end all the same.
    assert not [note for note in watching[0].notes if "the run is over; listening" in note]
    result = json.loads(workspace.result.read_text())
    assert result["train"] is result["test"] is None
    told, foretold = (each["privacy"]["collaborator_level"] for each in (result, to_json(simulated.result)))
    assert told["statement"].startswith("(ε=")
    assert foretold["statement"].endswith(told["statement"])
    assert {**told, "statement": ""} == {**foretold, "statement": ""}


def test_real_sites_draw_noise_that_nobody_can_draw_again_and_their_ledgers_say_so(tmp_path: Path) -> None:
    workspace, ledgers = noised_workspace(tmp_path), list[Path]()

    async def everybody(federation: Federation) -> None:
        ledgers.extend(federation.ready(name).site.ledger_file for name in workspace.collaborators)
        await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))

    assert play(workspace, everybody).state.value == "finished"
    _, vector, _ = load(workspace.folder / "save" / "last.safetensors")
    simulated = simulate(load_plan(workspace.plan), workspace.folder)
    # Every entry of the mean carries noise of about 2 clips / 3 a round, wherever it ends.
    assert float(abs(vector - simulated.model.vector).max()) > 0.01
    assert json.loads(workspace.result.read_text())["privacy"]["collaborator_level"]["rounds"] == 4
    entries = [entry for ledger in set(ledgers) for entry in Ledger(ledger).look()]
    sums = [entry.origin.participant for entry in entries if isinstance(entry.release, SkellamRelease)]
    assert {name: sums.count(name) for name in workspace.collaborators} == dict.fromkeys(
        workspace.collaborators, 4
    )


def test_a_saved_model_is_not_evaluated_by_sums_without_noise(tmp_path: Path) -> None:
    workspace = noised_workspace(tmp_path)
    play(workspace, Federation.everybody)

    async def nobody(federation: Federation) -> None:
        raise AssertionError(federation)

    with pytest.raises(FedfairError, match="no evaluation sum") as refusal:
        play(workspace, nobody, model=workspace.folder / "save" / "last.safetensors")
    assert isinstance(refusal.value, PlanError)
