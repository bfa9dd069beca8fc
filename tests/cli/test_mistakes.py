"""Mistakes at the command line, and what people are told."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fedfair.cli.answers import confirmed
from fedfair.cli.commands import app
from fedfair.errors import FedfairError, PlanError
from fedfair.process.terminal import refused_by_system
from tests import plans
from tests.conftest import REPOSITORY
from tests.prediction.saved_runs import SavedRun, saved_run


def test_a_question_that_nobody_can_answer_names_its_option_from_one_place() -> None:
    question = typer.Typer()

    @question.command()
    def ask() -> None:
        typer.echo(confirmed("Is it so?", yes=False))

    fault = CliRunner().invoke(question, [], input="").exception
    assert isinstance(fault, PlanError)
    assert fault.diagnostics() == "there is a question, and no terminal to ask: Is it so?\n  -> answer with --yes"
    assert CliRunner().invoke(question, [], input="y\n").output.endswith("True\n")
    asking = [
        path.name
        for folder in ("fedfair", "aggregator", "collaborator")
        for path in (REPOSITORY / folder).rglob("*.py")
        if "typer.confirm(" in path.read_text(encoding="utf-8")
    ]
    assert asking == ["answers.py"]


def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fault = CliRunner().invoke(app, ["certificate", "verify", "nowhere.json"]).exception
    assert isinstance(fault, FileNotFoundError)
    said = refused_by_system(fault)
    assert said == f"there is no file nowhere.json\n  -> check the path; it is seen from {tmp_path}"
    assert refused_by_system(PermissionError(13, "Permission denied", "a.json")) == "Permission denied (a.json)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    folder = tmp_path_factory.mktemp("run")
    rows = "".join(f"{20 + place},{plans.NAMES[place % 3]},{place % 2}\n" for place in range(60))
    (folder / "all.csv").write_text(f"age,site,died\n{rows}")
    table = {"label": "died", "numeric": ["age"], "collaborator": "site", "train": "all.csv"}
    return saved_run(folder, plans.stated(task={"data": {"csv": table}, "standardize": "secure"}))


@pytest.mark.parametrize("place", ["result.json", "save/result.json"])
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "--data", "new.csv", "--output", "out.csv"],
        ["model", "show"],
        ["model", "export", "--format", "state-dict", "--output", "out.pt"],
    ],
)
def test_whoever_uses_a_model_hears_what_its_run_says_against_it(
    run: SavedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "save").mkdir()
    (tmp_path / "new.csv").write_text("age\n30\n")
    model = tmp_path / "save" / "last.safetensors"
    model.write_bytes(run.model.read_bytes())
    call = [*words, "--model", str(model)]
    again = [*call, "--replace"] if words != ["model", "show"] else call
    assert "warning" not in CliRunner().invoke(app, call).output
    result = json.loads(run.outcome.result.model_dump_json())
    assert result["verdict"] is not None
    result["verdict"]["sentences"] = ["Do not use this model as it is."]
    finding = {"subject": "objective", "split": "train", "value": 0.7, "reference": "uniform_guess", "limit": 0.69}
    result["verdict"]["findings"] = [{**finding, "certain": True, "sentence": "It is worse."}]
    (tmp_path / place).write_text(json.dumps(result))
    done = CliRunner().invoke(app, again)
    assert done.exit_code == 0, done.exception
    assert "warning: Do not use this model as it is." in done.output
    result["plan_digest"] = "sha256:" + "0" * 64
    (tmp_path / place).write_text(json.dumps(result))
    assert "warning" not in CliRunner().invoke(app, again).output


def test_a_missing_value_is_filled_where_the_user_states_a_number(run: SavedRun, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age\n30\nNA\n")
    (tmp_path / "full.csv").write_text("age\n30\n41\n")
    out = tmp_path / "out.csv"

    def predicted(data: str, *more: str) -> str:
        call = ["predict", "--model", str(run.model), "--data", str(tmp_path / data), "-o", str(out), "--replace"]
        done = CliRunner().invoke(app, [*call, *more])
        if done.exception is not None:
            raise done.exception
        return out.read_text()

    with pytest.raises(FedfairError, match="--fill COLUMN=NUMBER"):
        predicted("new.csv")
    assert predicted("new.csv", "--fill", "age=41") == predicted("full.csv")


def test_advice_at_a_site_looks_at_its_own_records_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{20 + place},{int(place % 7 > 2 or place > 90)}\n" for place in range(120))
    (tmp_path / "own.csv").write_text(f"Alter,died\n{rows}")
    task = {"data": {"csv": {"label": "died", "numeric": ["age"]}}, "standardize": "secure"}
    quick = {"measure": "excess", "reference": {"hidden": [2], "rounds": 1, "local_steps": 5}}
    plan = plans.stated(task=task, objective=quick, training={"rounds": 10})
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    (tmp_path / "collaborator.yaml").write_text(
        "{collaborator: clinic-a, data: {train: own.csv, format: {columns: {age: Alter}}}}"
    )
    call = ["plan", "advise", "plan.yaml", "--sizes", "0.3", "--tradeoffs", "0.3", "--json"]
    lost = CliRunner().invoke(app, call).exception
    assert isinstance(lost, PlanError)
    assert "plan advise -c collaborator.yaml" in lost.remedy
    done = CliRunner().invoke(app, [*call, "-c", "collaborator.yaml"])
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["format"] == "fedfair/advice/1"


def test_the_package_runs_as_the_program_does() -> None:
    from fedfair import __main__ as package
    from fedfair.cli.__main__ import main

    assert package.main is main
