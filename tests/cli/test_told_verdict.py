"""Nobody is left with "finished" alone: the terminal says whether the model may be used, and what to try."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fedfair.cli.commands import app

BANK = """
federation: {name: bank, collaborators: [bank-x, bank-y, bank-z]}
task:
  data:
    csv:
      {train: bank.csv, label: deposit, label_values: ["no", "yes"], numeric: [a, b, c, d], collaborator: bank}
  test_fraction: 0.2
  standardize: secure
  model: {name: linear, init: zeros}
objective: {smoothing: {name: softplus, gamma: 0.05}}
training:
  {rounds: 100, learning_rate: 0.5, device: cpu, server_optimizer: {name: sgd}, schedule: constant, batch_size: 64}
"""
CLINICS = """
federation: {name: demo, collaborators: [a, b, c]}
task: {data: breast-cancer, partition: {scheme: random}, standardize: secure, model: {name: linear, init: zeros}}
objective: {smoothing: {name: softplus, gamma: 0.05}}
training:
  {rounds: 40, batch_size: full, device: cpu, server_optimizer: {name: sgd}, schedule: constant,
   threshold_learning_rate: 0.02, learning_rate: RATE}
"""


def bank_table(path: Path) -> None:
    """Write 3000 clients of three banks, of whom 88.7 % say no; four noisy columns tell a little about it."""
    draw, clients = np.random.default_rng(12), 3000
    bank, columns = draw.integers(0, 3, clients), draw.normal(size=(clients, 4))
    wish = columns @ [1.1, -0.8, 0.5, 0.0] + 1.5 * draw.logistic(size=clients) + 0.4 * (bank - 1)
    says = np.full(clients, "no ")
    says[np.argsort(wish)[-339:]] = "yes"
    rows = [
        f"{','.join(f'{value:.4f}' for value in row)},bank-{'xyz'[owner]},{answer.strip()}"
        for row, owner, answer in zip(columns, bank, says, strict=True)
    ]
    path.write_text("\n".join(["a,b,c,d,bank,deposit", *rows]) + "\n")


def simulate(folder: Path, plan: str, *options: str) -> tuple[Result, dict[str, Any]]:
    (folder / "plan.yaml").write_text(plan)
    out = folder / "result.json"
    done = CliRunner().invoke(app, ["simulate", "-p", str(folder / "plan.yaml"), "--output", str(out), *options])
    assert done.exit_code == 0, done.output
    return done, json.loads(out.read_text())["verdict"]


def test_the_bank_is_told_that_its_model_is_worse_than_no_for_everybody(tmp_path: Path) -> None:
    bank_table(tmp_path / "bank.csv")
    done, verdict = simulate(tmp_path, BANK, "--quiet")
    assert verdict["state"] == "worse"
    assert all(finding["certain"] for finding in verdict["findings"])
    first, *others = done.stderr.splitlines()
    assert (first, *others) == tuple(verdict["sentences"])
    assert first == "Do not use this model as it is; try objective.worst_group_size: 0.25 (now 0.1)."
    assert verdict["remedies"] == [{"key": "objective.worst_group_size", "wanted": "0.25", "now": "0.1"}]
    figures = re.compile(r"All 601 test records have a mean loss of (\S+), above the (\S+) of telling everybody")
    (mean, base) = next(found.groups() for line in others if (found := figures.match(line)))
    assert float(mean) == 0.693 > float(base)
    # The advised size is above the critical one, and nothing else is advised where training is at its optimum.
    family = "No model of this kind serves the worst 23 % better than guessing (the critical group size)."
    assert family in others
    assert others[-1].endswith("another learning rate or more rounds would not help.")


@pytest.mark.parametrize(
    ("algorithm", "remedy", "course"),
    [
        ("fedsrcvar", "training.learning_rate: 5 (now 50) or training.schedule: cosine", "The objective rose"),
        # Plain averaging came back below its beginning, and was flat above the optimum.
        ("fedavg", "training.schedule: cosine (now constant)", "The mean training loss was flat at the end"),
    ],
)
def test_a_learning_rate_that_is_far_too_high_is_told(
    tmp_path: Path, algorithm: str, remedy: str, course: str
) -> None:
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
