"""The script `benchmarks/defaults.py`: its figure by hand, and that it resumes."""

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.fork_server import played

FOLDER = REPOSITORY / "benchmarks"


def test_the_figure_is_the_objective_at_the_best_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scripts import their neighbours by their bare names.
    monkeypatch.syspath_prepend(str(FOLDER))
    defaults = importlib.import_module("defaults")
    losses = np.array([0.1, 3.0, 0.5, 1.0])
    # The worst 3 of 8 eighths: all of the largest loss and half of the next.
    expected = 0.99 * (3.0 + 0.5 * 1.0) / 1.5 + 0.01 * 1.15
    assert defaults.objective(losses, 0.375) == pytest.approx(expected)
    thresholds = np.linspace(0.0, 3.0, 3001)
    above = np.maximum(losses - thresholds[:, None], 0.0).mean(axis=1)
    assert defaults.objective(losses, 0.375) == pytest.approx(
        (0.99 * (thresholds + above / 0.375)).min() + 0.01 * losses.mean()
    )


@pytest.mark.slow
def test_the_script_resumes_and_prints_a_table(tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    command = [
        str(FOLDER / "defaults.py"), "--data", "wine", "--sizes", "0.3", "--rounds", "5",
        "--cache", str(tmp_path / "cache"), "--runs", str(runs),
    ]  # fmt: skip

    def output(*more: str) -> str:
        done = played([*command, *more], tmp_path)
        assert done.returncode == 0, done.stdout
        return done.stdout

    first = json.loads(output("--seeds", "1", "--settings", "after"))
    assert first["benchmark"] == "defaults"
    assert [(one["above_start"], one["objective"] < math.log(3)) for one in first["runs"]] == [(False, True)]
    assert len(json.loads(output("--seeds", "2"))["runs"]) == 4
    assert [json.loads(line)["seed"] for line in runs.read_text().splitlines()] == [0, 0, 1, 1]
    assert json.loads(runs.read_text().splitlines()[0]) == first["runs"][0]
    table = output("--table").splitlines()
    assert table[0].startswith("| table | worst | optimum | before | excess |")
    assert table[2].startswith("| wine | 30 % | 0.0000 | ")
    assert table[-1] == "after: 0 of 1 cells pass; 0 of 2 runs end above their start."
