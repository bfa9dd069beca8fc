"""Whole federations whose sites keep a part of the model: it never travels, and everybody ends as simulated."""

import asyncio
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedfair
from fedfair.aggregation import model_file
from fedfair.cli.commands import app
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import DataError, PlanError, StateError
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan
from fedfair.run.kept_file import kept_beside
from fedfair.simulation.simulate import SimulationOutcome, simulate
from tests.interop.federation_kit import (
    FIVE,
    Federation,
    metrics,
    model_files_agree,
    one_returns,
    play,
    prepared,
    states_agree,
)
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
NAMES = ("clinic-a", "clinic-b", "clinic-c")
BODY, HEAD = 30 * 4 + 4, 4 * 2 + 2
# Whatever an attempt at a round draws, it is all records: another attempt gives the same.
KEPT: dict[str, object] = {"parameters": {"keep": ["output.*"]}, "batch_size": "full", "learning_rate": 0.1}


def kept_plan(rounds: int, **given: object) -> dict[str, object]:
    plan = json.loads(json.dumps(small_plan(rounds=rounds, **{**KEPT, **given})))  # type: ignore[arg-type]
    plan["task"]["model"] = {"name": "mlp", "hidden": [4]}
    found: dict[str, object] = plan
    return found


def own_files(workspace: Workspace, name: str) -> Path:
    (run,) = (workspace.folder / "runs" / name).iterdir()
    return run / "save" / "last.safetensors"


def sites_end_as_simulated(workspace: Workspace, simulated: SimulationOutcome, tolerance: float) -> None:
    """Assert that what each site keeps gives the losses that it has in the simulation, and no other site's."""
    plan, parts = load_plan(workspace.plan), []
    for name in workspace.collaborators:
        place = own_files(workspace, name)
        _, own, words = model_file.load(kept_beside(place))
        assert (own.shape, words["site"]) == ((HEAD,), name)
        parts.append(own)
        config = workspace.folder / f"{name}.yaml"
        said = ["--plan", str(workspace.plan), "--model", str(place), "-c", str(config), "--json", "-q"]
        done = CliRunner().invoke(app, ["evaluate", *said])
        assert done.exit_code == 0, done.output
        expected = simulated.losses[ParticipantId(name)]["train"].values.mean()
        assert abs(json.loads(done.stdout)["train"]["mean"] - expected) < tolerance
    assert plan.training.parameters is not None
    assert all(np.abs(one - other).max() > 1e-3 for one, other in itertools.pairwise(parts))


@pytest.mark.parametrize(("protection", "tolerance"), [(None, 1e-9), (MASKED, 1e-4)], ids=["plain", "masked"])
def test_what_stays_is_in_no_sum_and_every_site_ends_as_simulated(
    tmp_path: Path, protection: dict[str, object] | None, tolerance: float
) -> None:
    workspace = prepare(tmp_path, kept_plan(4, protection=protection))
    assert play(workspace, Federation.everybody).state.value == "finished"
    simulated = simulate(load_plan(workspace.plan), workspace.folder)
    result, _ = model_files_agree(workspace, tolerance, simulated)
    states_agree(workspace)
    run = prepared(workspace)
    run.records.close()
    assert len(run.training_run.state.model.vector) == BODY
    # Sites are judged by their own parts: so many records are right as in the simulation.
    right = np.concatenate([site["train"].correct for site in simulated.losses.values()])
    assert result["train"]["accuracy"] == pytest.approx(right.mean(), abs=1e-12)  # type: ignore[index, call-overload]
    sites_end_as_simulated(workspace, simulated, tolerance)
    assert {line["contributors"] for line in metrics(workspace)} == {3}


def test_the_lead_cannot_predict_and_a_site_can_with_its_own_part_alone(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, kept_plan(2))
    play(workspace, Federation.everybody)
    lead, site = workspace.folder / "save" / "last.safetensors", own_files(workspace, NAMES[0])
    assert not kept_beside(lead).exists()
    with pytest.raises(
        DataError, match=r"last\.kept\.safetensors is not there: every site keeps its own output\.\*"
    ):
        fedfair.load_model(lead)
    records = np.random.default_rng(3).normal(size=(20, 30))
    own = fedfair.load_model(site).scores(records)
    lent = fedfair.load_model(lead, kept=kept_beside(site)).scores(records)
    assert np.array_equal(own, lent)
    other = fedfair.load_model(lead, kept=kept_beside(own_files(workspace, NAMES[1]))).scores(records)
    assert np.abs(own - other).max() > 1e-4
    # Beside another model of the same run a part would answer what nobody has evaluated.
    with pytest.raises(DataError, match="trained beside another model"):
        fedfair.load_model(workspace.folder / "save" / "init.safetensors", kept=kept_beside(site))
    # The lead asks all sites for a saved model's figures: nobody has their parts of it.
    with pytest.raises(PlanError, match="every site keeps a part of this plan's model"):
        prepared(workspace, model=lead)


def test_a_site_compares_and_fine_tunes_its_whole_model(tmp_path: Path) -> None:
    plan = kept_plan(2)
    plan["task"]["validation_fraction"] = plan["task"]["test_fraction"] = 0.2  # type: ignore[index]
    workspace = prepare(tmp_path, plan)
    play(workspace, Federation.everybody)
    place, tuned = own_files(workspace, NAMES[0]), tmp_path / "tuned.safetensors"
    said = [
        "--plan",
        str(workspace.plan),
        "--model",
        str(place),
        "-c",
        str(tmp_path / f"{NAMES[0]}.yaml"),
        "--json",
    ]
    compared = CliRunner().invoke(app, ["collaborator", "compare", *said])
    assert compared.exit_code == 0, compared.output
    terms = ["--output", str(tuned), "--rounds", "5", "--learning-rate", "0.1"]
    found = CliRunner().invoke(app, ["collaborator", "personalise", *said, *terms])
    assert found.exit_code == 0, found.output
    # Both parts were trained further, and belong together.
    assert json.loads(found.stdout)["round"] > 0
    before, after = (model_file.load(kept_beside(one))[1] for one in (place, tuned))
    assert np.abs(before - after).max() > 1e-3
    fedfair.load_model(tuned)
    # With the part of another site nothing is computed.
    shutil.copy(kept_beside(own_files(workspace, NAMES[1])), kept_beside(place))
    other = CliRunner().invoke(app, ["collaborator", "compare", *said])
    assert other.exit_code == 1
    assert "is the part of the model that clinic-b keeps" in str(other.exception)


@pytest.mark.parametrize("protection", [None, pytest.param(MASKED, marks=pytest.mark.slow)])
def test_who_leaves_and_returns_goes_on_from_its_part_of_the_last_round_that_counted_it(
    tmp_path: Path, protection: dict[str, object] | None
) -> None:
    federation_terms = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    workspace = prepare(tmp_path, kept_plan(6, federation=federation_terms, names=FIVE[:4], protection=protection))

    assert play(workspace, one_returns).state.value == "finished"
    states_agree(workspace)
    run = prepared(workspace)
    run.records.close()
    assert run.training_run.state.terms["variates"].rounds == (6,) * 4


def test_a_site_that_has_lost_its_part_withdraws_in_words(tmp_path: Path) -> None:
    federation_terms = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    workspace = prepare(tmp_path, kept_plan(6, federation=federation_terms, names=FIVE[:4]))

    async def scenario(federation: Federation) -> None:
        others = await federation.without("clinic-a", 2)
        (kept,) = (tmp_path / "state").glob("clinic-a-*.variates")
        shutil.rmtree(kept)
        with pytest.raises(StateError, match=r"own part of the model after round \d+ is lost") as fault:
            await federation.take_part("clinic-a")
        assert "--fresh" in fault.value.remedy
        await asyncio.gather(*others)

    assert play(workspace, scenario).state.value == "finished"
