"""A deployed run and its simulation come to the same verdict, and the sites to that of the aggregator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedfair.cli.loopback import prepare
from fedfair.report.run_page import run_page
from fedfair.results.reading import read_result
from fedfair.results.warnings import result_warnings
from tests.interop.federation_kit import NAMES, Federation, model_files_agree, play
from tests.interop.processes import Started, ended
from tests.plans import over, small_plan

PLAN: Mapping[str, Any] = {
    "federation": {
        "name": "demo",
        "aggregator": {"host": "localhost"},
        "collaborators": [*NAMES],
        "min_collaborators": 3,
    },
    "task": {
        "data": "breast-cancer",
        "partition": {"scheme": "dirichlet", "alpha": 2.0},
        "standardize": "secure",
        "model": {"name": "linear", "init": "zeros"},
    },
    "objective": {"name": "rcvar", "measure": "loss", "worst_group_size": 0.1, "tradeoff": 0.01},
    "training": {"batch_size": "full", "threshold_init": "quantile", "seed": 1},
    "secure_aggregation": {"mode": "malicious", "most_records": 1024},
    "evaluation": {"scores": True},
}


def findings(verdict: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    return [
        (finding["subject"], finding["split"], finding["reference"], finding["certain"])
        for finding in verdict["findings"]
    ]


@pytest.mark.parametrize(("rate", "state"), [(0.3, "fine"), (60.0, "worse")])
def test_a_run_and_its_simulation_come_to_the_same_verdict(tmp_path: Path, rate: float, state: str) -> None:
    steps = {"server_optimizer": {"name": "sgd"}, "schedule": "constant", "threshold_learning_rate": 0.02}
    plan = over(PLAN, training={"rounds": 8, "learning_rate": rate, **steps}, evaluation={"every": 5})
    workspace = prepare(tmp_path, plan)
    assert play(workspace, Federation.everybody).state.value == "finished"
    deployed, simulated = model_files_agree(workspace, 1e-3 * rate)
    told, exact = deployed["verdict"], simulated["verdict"]
    assert isinstance(told, dict)
    assert isinstance(exact, dict)
    assert told["state"] == exact["state"] == state
    assert findings(told) == findings(exact)
    assert told["better_than_guess_from"] == exact["better_than_guess_from"]
    for mine, other in zip(told["findings"], exact["findings"], strict=True):
        # An interval of the default histogram is at most one of 256 bins wide, up to 8 log(2).
        assert mine["value"] == pytest.approx(other["value"], rel=0.03)
    result = read_result(workspace.result)
    assert ("Do not use this model as it is" in " ".join(result_warnings(result))) == (state == "worse")
    assert ('class="card" id="verdict"' in run_page({"a": result})) == (state == "worse")
    for name in workspace.collaborators:
        (run,) = (tmp_path / "runs" / name).iterdir()
        assert json.loads((run / "result.json").read_text())["verdict"] == told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "words"), [(100.0, "Do not use this model as it is; try "), (0.1, "No evaluation ")]
)
def test_the_terminal_of_the_aggregator_tells_the_verdict(
    tmp_path: Path, started: Started, rate: float, words: str
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=15, learning_rate=rate))
    aggregator = started.aggregator()
    sites = [started.collaborator(name) for name in NAMES]
    status, said = ended(aggregator)
    assert status == 0, said
    assert {ended(site)[0] for site in sites} == {0}
    verdict = json.loads(started.workspace.result.read_text())["verdict"]
    assert verdict["sentences"][0].startswith(words)
    lines = said.splitlines()
    assert set(verdict["sentences"]) <= set(lines), said
