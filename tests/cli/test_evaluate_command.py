"""`fedfair evaluate`: where its result may not go is said before anything is computed."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError, PlanError
from fedfair.results.reading import read_result
from fedfair.workspace.create import create_workspace
from tests import plans
from tests.prediction.saved_runs import SavedRun, approved_run


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("plan/plan.yaml", "is no result of fedfair's"),
        ("plan", "is a folder"),
        ("none/result.json", "does not exist"),
    ],
)
def test_a_result_replaces_nothing_but_a_result(place: str, fault: str, tmp_path: Path) -> None:
    create_workspace(tmp_path, "heart", "breast-cancer")
    plan, model = tmp_path / "plan" / "plan.yaml", tmp_path / "model.safetensors"
    before, _ = plan.read_text(), model.touch()
    words = ["evaluate", "-p", str(plan), "--model", str(model), "--output", str(tmp_path / place)]
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, DataError)
    assert fault in refused.message
    assert refused.remedy
    assert plan.read_text() == before


NAMES = ("clinic-a", "clinic-b")


def clinics(folder: Path) -> SavedRun:
    """Return a simulated run of two clinics that have files of their own, each named in its own configuration."""
    draws = np.random.default_rng(3)
    for name in NAMES:
        ages = draws.integers(20, 90, 60)
        rows = [f"{age},{int(age + draws.normal() * 20 > 55)}" for age in ages]
        (folder / f"{name}.csv").write_text("\n".join(["age,died", *rows]) + "\n")
    table = {"label": "died", "numeric": ["age"], "train_of": {name: f"{name}.csv" for name in NAMES}}
    task = {"data": {"csv": table}, "standardize": "secure", "test_fraction": 0.3}
    run = approved_run(folder, plans.stated(NAMES, task=task, training={"rounds": 2}))
    for name in NAMES:
        (folder / f"{name}.yaml").write_text(f"collaborator: {name}\ndata: {{train: {name}.csv}}\n")
    return run


def test_a_clinic_alone_evaluates_a_model_on_its_own_records_as_the_simulation_did(tmp_path: Path) -> None:
    run = clinics(tmp_path)
    told = tmp_path / "own.json"
    words = ["evaluate", "-p", str(run.plan_file), "--model", str(run.model), "--output", str(told), "-q"]
    done = CliRunner().invoke(app, [*words, "-c", str(tmp_path / "clinic-b.yaml")], catch_exceptions=False)
    assert done.exit_code == 0
    found = read_result(told)
    assert found.test is not None
    losses = run.losses("clinic-b", "test")
    assert (found.test.n, found.test.mean) == (len(losses), pytest.approx(losses.mean(), abs=1e-12))
    assert found.collaborators is not None
    assert list(found.collaborators) == ["clinic-b"]


def test_a_configuration_of_somebody_else_is_refused(tmp_path: Path) -> None:
    run = clinics(tmp_path)
    (tmp_path / "clinic-c.yaml").write_text("collaborator: clinic-c\ndata: {train: clinic-a.csv}\n")
    words = [
        "evaluate", "-p", str(run.plan_file), "--model", str(run.model), "-c", str(tmp_path / "clinic-c.yaml"),
    ]  # fmt: skip
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, PlanError)
    assert refused.remedy == "the plan names clinic-a, clinic-b"


def test_a_plan_whose_records_are_at_its_sites_is_not_to_be_changed_for_an_evaluation(tmp_path: Path) -> None:
    run = clinics(tmp_path)
    plan = run.plan_file
    for files in ({}, {"train": "all.csv", "collaborator": "site"}):
        table = {"label": "died", "numeric": ["age"], **files}
        values = plans.stated(NAMES, task={"data": {"csv": table}})
        plan.write_text(yaml.safe_dump(json.loads(json.dumps(values))))
        refused = CliRunner().invoke(app, ["evaluate", "-p", str(plan), "--model", str(run.model)]).exception
        assert isinstance(refused, PlanError)
        assert "partition" not in refused.diagnostics()
        assert "`fedfair evaluate -c collaborator.yaml`" in refused.remedy
