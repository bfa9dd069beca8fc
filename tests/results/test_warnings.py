import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.results.document import ResultDocument
from fedfair.results.warnings import result_warnings


def document(train_mean: float) -> ResultDocument:
    group = {"worst": train_mean, "best": train_mean, "disparity": 0.0, "bound": (train_mean, train_mean)}
    split = {"n": 10, "mean": train_mean, "accuracy": 0.5, "by_group_size": {"0.1": group}}
    return ResultDocument.model_validate(
        {
            "format": "fedfair/result/1", "plan_digest": "", "algorithm": "fedavg", "rounds": 1, "threshold": 0.0,
            "uniform_floor": math.log(2), "train": split, "test": None,
        }
    )  # fmt: skip


@pytest.mark.parametrize("mean", [0.0, 0.3, math.log(2)])
def test_a_model_that_is_no_worse_than_guessing_raises_no_doubt(mean: float) -> None:
    assert result_warnings(document(mean)) == ()


@pytest.mark.parametrize("mean", [0.7, 1e199])
def test_a_model_that_is_worse_than_guessing_is_told_with_both_losses_and_a_remedy(mean: float) -> None:
    (doubt,) = result_warnings(document(mean))
    assert f"{mean:.3g}" in doubt
    assert "0.693" in doubt
    assert "training.learning_rate" in doubt


def test_a_simulation_with_an_absurd_learning_rate_does_not_end_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("""
federation: {name: demo, collaborators: [a, b]}
task: {data: breast-cancer, partition: {scheme: random}, standardize: secure, model: {name: linear}}
objective: {measure: loss}
training:
  {rounds: 2, learning_rate: 1.0e+200, precision: fp64, device: cpu, schedule: constant,
   server_optimizer: {name: sgd}}
secure_aggregation: {mode: "off"}
""")
    plan, out = str(tmp_path / "plan.yaml"), tmp_path / "out.json"
    outcome = CliRunner().invoke(app, ["simulate", "-p", plan, "--output", str(out), "--quiet"])
    assert outcome.exit_code == 0
    result = json.loads(out.read_text())
    # The untrained model is returned, all figures are of it, and the verdict says why.
    assert result["train"]["mean"] == pytest.approx(math.log(2))
    assert result["history"][-1]["train"]["mean"] > 1e100
    assert [finding["subject"] for finding in result["verdict"]["findings"]][:1] == ["training"]
    assert "Do not use this model as it is; try training.learning_rate: 1e+199 (now 1e+200)" in outcome.stderr
    piped = CliRunner().invoke(app, ["simulate", "-p", plan, "--json"])
    assert json.loads(piped.stdout)["format"] == "fedfair/result/1"
