"""A survey before round 1 over real sockets: what is summed, who is told what, and who stops."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import SurveyError
from fedfair.plan.loading import load_plan
from fedfair.results.document import to_json
from fedfair.simulation.simulate import simulate
from fedfair.statistics.table import Purpose
from tests.interop.federation_kit import Federation, metrics, play, states_agree
from tests.interop.processes import Started, ended
from tests.plans import small_plan

NAMES = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")
TABLE = {
    "label": "died",
    "numeric": ["glucose", "age"],
    "categorical": {"sex": ["F", "M"]},
    "missing": "mean",
    "train_of": {name: f"{name}.csv" for name in NAMES},
}
MASKED = {"mode": "malicious", "most_records": 512}
RECORDS = 120


def federation(
    folder: Path, unit_of: str = "", policy: dict[str, object] | None = None, **stated: object
) -> Workspace:
    """Return a federation of clinics with a survey, of which one may write glucose in mg/dl."""
    plan = small_plan(rounds=1, protection=MASKED, names=NAMES, federation=stated)
    plan["task"] = {
        "data": {"csv": TABLE},
        "standardize": "secure",
        "survey": True,
        "model": {"name": "linear", "init": "zeros"},
    }
    workspace = prepare(folder, plan)
    for place, name in enumerate(NAMES):
        file = folder / f"{name}.yaml"
        site = yaml.safe_load(file.read_text())
        terms = {"reveals": ["update-sums", "loss-sums", "feature-sums", "survey-sums"]} | (policy or {})
        stated = {**site, "data": {"train": f"{name}.csv"}, "policy": site.get("policy", {}) | terms}
        file.write_text(yaml.safe_dump(stated))
        (folder / f"{name}.csv").write_text(rows(place, 18.0156 if name == unit_of else 1.0))
    return workspace


def rows(seed: int, factor: float) -> str:
    draws = np.random.default_rng(seed)
    lines = ["glucose,age,sex,died"]
    for _ in range(RECORDS):
        glucose = f"{factor * draws.lognormal(1.7, 0.3):.2f}" if draws.random() > 0.1 else ""
        lines.append(f"{glucose},{draws.integers(20, 90)},{draws.choice(['F', 'M', '?'])},{draws.integers(0, 2)}")
    return "\n".join(lines) + "\n"


def surveyed(workspace: Workspace) -> dict[str, object]:
    found: dict[str, object] = json.loads(workspace.result.read_text())["survey"]
    return found


def test_a_deployment_surveys_what_its_simulation_does(tmp_path: Path) -> None:
    workspace = federation(tmp_path)
    assert play(workspace, Federation.everybody).state.value == "finished"
    states_agree(workspace)
    deployed = surveyed(workspace)
    simulated = json.loads(json.dumps(to_json(simulate(load_plan(workspace.plan), tmp_path).result)["survey"]))
    for column in ("glucose", "age"):
        for real in ("mean", "spread"):
            here, there = (each["numeric"][column].pop(real) for each in (deployed, simulated))  # type: ignore[index]
            assert here == pytest.approx(there, rel=1e-12)
    assert deployed == simulated
    assert deployed["records"] == RECORDS * len(NAMES)


def test_a_site_with_another_unit_stops_before_anything_is_trained_until_it_says_otherwise(tmp_path: Path) -> None:
    workspace = federation(tmp_path, "clinic-c", {"survey": "stop"})
    notes: list[str] = []

    async def scenario(playing: Federation) -> None:
        others = [asyncio.create_task(playing.take_part(name)) for name in NAMES if name != "clinic-c"]
        for _ in range(2):
            # Started again, it holds the same survey and stops again.
            with pytest.raises(SurveyError) as caught:
                await playing.take_part("clinic-c")
            assert "in the records of clinic-c: column 'glucose': the median here" in caught.value.message
            assert "mg/dl against mmol/l of glucose, with the larger numbers here" in caught.value.message
            assert "set policy.survey: warn" in caught.value.remedy
            assert [progress.purpose for progress in playing.watching.progress] == [Purpose.SURVEY]
        file = tmp_path / "clinic-c.yaml"
        file.write_text(file.read_text().replace("survey: stop", "survey: warn"))
        playing.sites.clear()
        await asyncio.gather(playing.take_part("clinic-c"), *others)
        notes.extend(playing.watching.notes)

    assert play(workspace, scenario).state.value == "finished"
    said = [note for note in notes if "clinic-c withdraws" in note]
    assert "it stops after the survey, as its own policy says: survey" in said[0]
    assert not any("glucose" in note for note in notes)


def test_a_simulation_tells_of_each_site_what_its_own_operator_would_hear(tmp_path: Path) -> None:
    workspace = federation(tmp_path, "clinic-c")
    outcome = simulate(load_plan(workspace.plan), tmp_path)
    assert {name: [fault.column for fault in faults] for name, faults in outcome.survey_faults.items()} == {
        "clinic-c": ["glucose"]
    }
    told = CliRunner().invoke(app, ["simulate", "--plan", str(workspace.plan)]).output
    assert "clinic-c: column 'glucose': the median here" in " ".join(told.split())


@pytest.mark.slow
def test_a_second_run_cannot_survey_all_but_one_site(tmp_path: Path) -> None:
    """Each site adds the same numbers again, so that two surveys could be subtracted."""
    workspace = federation(tmp_path, min_collaborators=3)
    assert play(workspace, Federation.everybody).state.value == "finished"

    async def all_but_one(playing: Federation) -> None:
        sites = [asyncio.create_task(playing.take_part(name)) for name in NAMES[:3]]
        await playing.begin_with(*NAMES[:3])
        await asyncio.wait({playing.serving})
        for each in sites:
            each.cancel()
        await asyncio.gather(*sites, return_exceptions=True)

    ending = play(workspace, all_but_one, fresh=True)
    assert "the survey sum of round 0 failed 3 times; the last time, 0 of 3 contributed" in ending.words
    assert [line for line in metrics(workspace) if line["purpose"] == "survey"] == []


@pytest.mark.slow
def test_real_processes_name_the_unit_at_its_site_and_nowhere_else(tmp_path: Path, started: Started) -> None:
    started.workspace = federation(tmp_path, "clinic-b")
    aggregator = started.aggregator()
    sites = {name: started.collaborator(name) for name in NAMES}
    told = {name: ended(process) for name, process in sites.items()}
    status, words = ended(aggregator)
    assert status == 0, words
    assert {name: status for name, (status, _) in told.items()} == dict.fromkeys(NAMES, 0)
    named = {name for name, (_, said) in told.items() if "survey: column 'glucose'" in said}
    assert named == {"clinic-b"}
    assert "mg/dl against mmol/l of glucose" in told["clinic-b"][1]
    assert "glucose" not in words
    assert "nothing odd here" in told["clinic-a"][1]
