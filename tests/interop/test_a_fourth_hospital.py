"""Four hospitals continue where three ended, and processes that are killed in added rounds resume."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from aggregator.preparation import initial_binding
from fedfair.cli.commands import app
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ApprovalError
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.schedule import schedule_of
from fedfair.run.initial_model import vector_digest
from fedfair.run.saved_model import read_saved
from fedfair.simulation.simulate import simulate
from fedfair.statistics.table import Purpose
from tests.fork_server import Process
from tests.installation.test_roles import environment
from tests.interop.federation_kit import NAMES, Federation, model_files_agree, play
from tests.interop.processes import Started, ended, until_line
from tests.interop.test_continued_runs import MASKED, STEADY, approved, extended
from tests.plans import small_plan

FOUR = (*NAMES, "clinic-d")


def command(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def begun_by_four(folder: Path, model: Path, **keys: object) -> Workspace:
    """Return a workspace of four hospitals whose plan begins with a model, which all of them have approved."""
    workspace = prepare(folder, small_plan(names=FOUR, **keys))  # type: ignore[arg-type]
    told = command("plan", "freeze", "-p", str(workspace.plan), "--from", str(model))
    approved(workspace)
    # The three bring their own copies of runs; the fourth has none, and names what it agrees to.
    for name in NAMES:
        shutil.copytree(model.parent.parent / "runs" / name, folder / "runs" / name)
    (digest,) = re.findall(r"policy\.initial_weights of .*: (sha256:[0-9a-f]{64})", told)
    file = folder / "clinic-d.yaml"
    site = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**site, "policy": {**site["policy"], "initial_weights": ["seed", digest]}}))
    return workspace


def told_at_the_approval(workspace: Workspace, name: str) -> str:
    """Return what a site is told when it approves the plan."""
    cert = str(workspace.folder / "cert")
    return command("plan", "approve", "-n", name, "-p", str(workspace.plan), "--yes", "--cert-folder", cert)


@pytest.mark.slow
@pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])
def test_four_hospitals_begin_with_the_very_model_with_which_three_ended(
    tmp_path: Path, protection: dict[str, object] | None
) -> None:
    three = prepare(tmp_path / "three", small_plan(rounds=10, protection=protection, output="last"))
    assert play(three, Federation.everybody, binding=initial_binding).state.value == "finished"
    last = read_saved(three.folder / "save" / "last.safetensors").saved
    four = begun_by_four(tmp_path / "four", three.folder / "save" / "last.safetensors", protection=protection)
    assert Purpose.STANDARDISATION not in schedule_of(load_plan(four.plan)).purposes
    assert "are those of clinic-a's own copy of an earlier run" in told_at_the_approval(four, "clinic-a")
    assert "no model of clinic-d's own runs has the initial weights" in told_at_the_approval(four, "clinic-d")
    assert play(four, Federation.everybody, binding=initial_binding).state.value == "finished"
    # The old model is evaluated over the three alone: the first evaluation is that of another model.
    assert [past["round"] for past in json.loads(four.result.read_text())["history"]] == [5]
    begun = load_plan(four.plan).training.initial
    assert begun is not None
    assert (begun.threshold, begun.weights) == (
        last.model.threshold,
        format_digest(vector_digest(last.model.vector)),
    )
    assert not begun.same_sites
    # The deployed run is the simulated one.
    model_files_agree(four, 1e-12 if protection is None else 1e-3)
    assert read_saved(four.folder / "save" / "last.safetensors").saved.scaling is not None


@pytest.mark.slow
def test_a_hospital_that_has_other_weights_beside_its_plan_refuses_the_run(tmp_path: Path) -> None:
    three = prepare(tmp_path / "three", small_plan(rounds=4, output="last"))
    assert play(three, Federation.everybody, binding=initial_binding).state.value == "finished"
    four = begun_by_four(tmp_path / "four", three.folder / "save" / "last.safetensors")
    # The lead freezes other weights after every site has approved, and starts all the same.
    last = str(three.folder / "save" / "last.safetensors")
    command("plan", "freeze", "-p", str(four.plan), "--from", last, "--new-threshold")
    with pytest.raises(ApprovalError, match=r"has approved plan sha256:.*, this plan is"):
        play(four, Federation.everybody, binding=initial_binding)


@pytest.mark.slow
def test_processes_that_are_killed_in_added_rounds_resume_and_an_aggregator_needs_no_torch(
    tmp_path: Path, started: Started
) -> None:
    keys = {**STEADY, "output": "last"}
    workspace = prepare(tmp_path / "run", small_plan(rounds=10, **keys))  # type: ignore[arg-type]
    assert play(workspace, Federation.everybody, binding=initial_binding).state.value == "finished"
    extended(workspace, 200)
    started.workspace = workspace
    # The aggregator's host has neither torch nor anything else that trains.
    usual, bare = started.environment, {**started.environment, **environment("base_only")}
    started.environment = bare
    first = started.aggregator()
    started.environment = usual
    sites = {name: started.collaborator(name) for name in NAMES}
    until_line(first, "round 40 of")
    kill(sites["clinic-b"])
    sites["clinic-b"] = started.collaborator("clinic-b")
    until_line(first, "round 80 of")
    kill(first)
    started.environment = bare
    second = started.aggregator()
    for process in (second, *sites.values()):
        status, words = ended(process)
        assert status == 0, words
        assert "Traceback" not in words
    result = json.loads(workspace.result.read_text())
    assert (result["state"], result["rounds"]) == ("finished", 210)
    assert [past["round"] for past in result["history"]][:4] == [0, 5, 10, 15]
    whole = simulate(load_plan(prepare(tmp_path / "whole", small_plan(rounds=210, **keys)).plan), tmp_path)  # type: ignore[arg-type]
    model = read_saved(workspace.folder / "save" / "last.safetensors").saved.model
    assert abs(model.vector - whole.model.vector).max() < 1e-6


def kill(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
