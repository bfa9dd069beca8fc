"""`fedfair simulate` and `fedfair report` of a plan of statistics: four hospitals, no model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import ReleaseLog
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.simulate import simulate
from fedfair.simulation.statistics import simulate_statistics
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import site_protection
from fedfair.workspace.create import create_workspace
from tests.conftest import REPOSITORY
from tests.statistics_plans import stated, write_tables

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SHIPPED = REPOSITORY / "fedfair" / "cli" / "heart"
HEART = {
    "columns": [
        "age",
        "sex",
        "cp",
        "trestbps",
        "chol",
        "fbs",
        "restecg",
        "thalach",
        "exang",
        "oldpeak",
        "slope",
        "ca",
        "thal",
        "num",
    ],
    "numeric": ["age", "chol"],
    "categorical": {"sex": [0, 1], "num": [0, 1, 2, 3, 4]},
    "missing": "mean",
    "missing_values_of": {"chol": [0]},
    "train_of": {name: str(SHIPPED / f"processed.{name}.data") for name in HOSPITALS},
}


def written(folder: Path, plan: dict[str, object]) -> Path:
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump(plan))
    return file


def test_four_hospitals_count_their_patients_without_a_model(tmp_path: Path) -> None:
    columns = {"num": {"count": True}, "chol": {"mean": True, "between": [50, 700]}, "age": {"bins": [40, 60]}}
    plan = stated(names=HOSPITALS, columns=columns, by="sex", epsilon=None)
    plan["task"] = {"data": {"csv": HEART}}
    file, result = written(tmp_path, plan), tmp_path / "result.json"
    told = CliRunner().invoke(app, ["simulate", "-p", str(file), "-o", str(result)])
    assert told.exit_code == 0, told.output
    rows = json.loads(result.read_text())["statistics"]["rows"]
    # 920 patients, of whom 726 are men (UCI Heart Disease).
    assert {row["group"]: row["value"] for row in rows if row["statistic"] == "records"} == {
        "0": 194.0, "1": 726.0, "other": None,
    }  # fmt: skip
    page = tmp_path / "report.html"
    shown = CliRunner().invoke(app, ["report", str(result), "-o", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "726" in shown.output
    assert "726" in page.read_text()
    as_json = CliRunner().invoke(app, ["report", str(result), "--json"])
    assert json.loads(as_json.output)[0]["statistics"]["rows"] == rows
    refused = CliRunner().invoke(app, ["report", str(result), "--summary", str(tmp_path / "board.html")])
    assert refused.exit_code != 0
    assert not (tmp_path / "board.html").exists()


def test_a_simulation_repeats_its_noise_and_another_seed_draws_other_noise(tmp_path: Path) -> None:
    write_tables(tmp_path)
    first, again = (simulate_statistics(load_plan(written(tmp_path, stated())), tmp_path) for _ in range(2))
    assert first.statistics == again.statistics
    assert first.statistics is not None
    assert first.statistics.statement.startswith("this is a simulation")
    other = simulate_statistics(load_plan(written(tmp_path, {**stated(), "training": {"seed": 5}})), tmp_path)
    assert other.statistics is not None
    assert other.statistics.rows != first.statistics.rows


@pytest.mark.parametrize("option", [["--model", "m.safetensors"], ["--save", "save"], ["--beside", "plain"]])
def test_options_of_models_are_refused(tmp_path: Path, option: list[str]) -> None:
    write_tables(tmp_path)
    places = [str(tmp_path / part) if part[0] not in "-p" else part for part in option]
    told = CliRunner().invoke(app, ["simulate", "-p", str(written(tmp_path, stated())), *places])
    assert told.exit_code != 0
    assert isinstance(told.exception, PlanError)
    assert f"{option[0]} is for a model" in told.exception.message


def test_training_refuses_a_plan_of_statistics(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with pytest.raises(PlanError, match="asks for statistics of columns and trains no model"):
        simulate(load_plan(written(tmp_path, stated())), tmp_path)


@pytest.mark.parametrize(
    "command", [["plan", "advise"], ["evaluate", "--model", "m"], ["sweep", "--grid", "training.rounds=1,2"]]
)
def test_commands_about_models_refuse_a_plan_of_statistics(tmp_path: Path, command: list[str]) -> None:
    file = written(tmp_path, stated())
    told = CliRunner().invoke(app, [*command, "-p", str(file), "-o", str(tmp_path / "out")])
    assert isinstance(told.exception, PlanError), told.output
    assert "asks for statistics of columns and trains no model" in told.exception.message


def test_the_template_is_simulated_as_it_is_written(tmp_path: Path) -> None:
    create_workspace(tmp_path / "w", "wards", "statistics")
    lines = [f"{20 + n % 60},{100 + n % 70},{'FM'[n % 2]},clinic-{'ab'[n // 2 % 2]}" for n in range(200)]
    (tmp_path / "w" / "data" / "all.csv").write_text("age,pressure,sex,site\n" + "\n".join(lines) + "\n")
    found = simulate_statistics(load_plan(tmp_path / "w" / "plan" / "plan.yaml"), tmp_path / "w").statistics
    assert found is not None
    (records,) = (row for row in found.rows if row.statistic == "records")
    assert records.value is not None
    assert records.error is not None
    assert abs(records.value - 200) < 5 * records.error


def test_a_contribution_under_noise_has_draws_and_noise_of_its_own_each_time(tmp_path: Path) -> None:
    write_tables(tmp_path)
    noised, exact = (Plan.model_validate(stated(epsilon=epsilon)) for epsilon in (1.0, None))
    told = []
    for plan in (noised, exact):
        sites = load_federation(plan, tmp_path)
        (name, splits), log = next(iter(sites.items())), ReleaseLog()
        model = flat_model(plan, splits.train.schema, torch.device("cpu"), tmp_path)
        protection = site_protection(log.record) if plan is noised else None
        client = TrainingClient(plan, name, splits, model, protection=protection, masked=True)
        run = TrainingRun(plan, model.layout, splits.train.schema, model.vector())
        request = run.next_sum()
        assert request is not None
        made = [client.contribution(request, run.model).header for _ in range(2)]
        draws = [client.draws(request.purpose, request.round, 1) for _ in range(2)]
        told.append((np.array_equal(*made), draws[0] == draws[1], len(log.releases)))
    assert told == [(False, False, 2), (True, True, 0)]
