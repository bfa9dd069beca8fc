"""Nobody is left with "finished" alone: the terminal says whether the model may be used, and what to try."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fedfair.cli.commands import app

pytestmark = pytest.mark.usefixtures("undrawn")

CLINICS = """
federation: {name: demo, collaborators: [a, b, c]}
task: {data: breast-cancer, partition: {scheme: random}, standardize: secure, model: {name: linear, init: zeros}}
objective: {measure: loss, smoothing: {name: softplus, gamma: 0.05}}
training:
  {rounds: 40, batch_size: full, device: cpu, server_optimizer: {name: sgd}, schedule: constant,
   threshold_learning_rate: 0.02, learning_rate: RATE}
"""


def simulate(folder: Path, plan: str, *options: str) -> tuple[Result, dict[str, Any]]:
    (folder / "plan.yaml").write_text(plan)
    out = folder / "result.json"
    done = CliRunner().invoke(app, ["simulate", "-p", str(folder / "plan.yaml"), "--output", str(out), *options])
    assert done.exit_code == 0, done.output
    return done, json.loads(out.read_text())["verdict"]


@pytest.mark.parametrize(
    ("algorithm", "remedy", "course"),
    [
        ("fedsrcvar", "training.learning_rate: 5 (now 50) or training.schedule: cosine", "The objective rose"),
        # Plain averaging came back below its beginning, and was flat above the optimum.
        ("fedavg", "training.schedule: cosine (now constant)", "The mean training loss was flat at the end"),
    ],
)
def test_a_learning_rate_far_too_high_is_told(tmp_path: Path, algorithm: str, remedy: str, course: str) -> None:
    plan = CLINICS.replace("RATE", f"50, algorithm: {algorithm}")
    done, verdict = simulate(tmp_path, plan)
    assert verdict["state"] == "worse"
    references = {(finding["subject"], finding["reference"]) for finding in verdict["findings"]}
    assert {("training", "start"), ("mean", "base_rate"), ("accuracy", "majority")} == references
    assert f"Do not use this model as it is; try {remedy}" in done.stderr
    assert course in done.stderr


def test_a_good_run_is_told_in_one_sentence(tmp_path: Path) -> None:
    done, verdict = simulate(tmp_path, CLINICS.replace("RATE", "0.3"))
    (only,) = verdict["sentences"]
    assert (verdict["state"], verdict["findings"]) == ("fine", [])
    assert only in done.stdout.replace("\n", " ")
    assert "Do not use" not in done.output


@pytest.mark.thorough
def test_a_report_and_an_evaluation_tell_the_verdict_again(tmp_path: Path) -> None:
    model = str(tmp_path / "model.safetensors")
    simulate(tmp_path, CLINICS.replace("RATE", "50"), "--model", model)
    page = tmp_path / "report.html"
    report = CliRunner().invoke(app, ["report", str(tmp_path / "result.json"), "--output", str(page)])
    assert "Do not use this model as it is" in report.stdout
    assert '<p class="card" id="verdict"><b>Do not use this model as it is' in page.read_text()
    as_json = CliRunner().invoke(app, ["report", str(tmp_path / "result.json"), "--json"])
    assert json.loads(as_json.stdout)[0]["verdict"]["state"] == "worse"
    again = CliRunner().invoke(app, ["evaluate", "-p", str(tmp_path / "plan.yaml"), "--model", model, "--quiet"])
    assert "Do not use this model as it is" in again.stderr
    # An evaluation has watched no training, and so has no advice about it.
    assert again.stderr.startswith("Do not use this model as it is.\n")
