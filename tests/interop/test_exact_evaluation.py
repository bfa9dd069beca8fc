"""Exact evaluations over real sockets, plain and masked: the same risks as a simulation, to seven digits."""

import json
from pathlib import Path

import pytest

from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.results.document import to_json
from fedfair.simulation.simulate import simulate
from tests.interop.federation_kit import Federation, metrics, play
from tests.plans import small_plan


@pytest.mark.parametrize(
    ("protection", "tolerance"),
    # A masked model is off by less than 2^-20 of a parameter here; 30 standardised features of size below 12, and
    # a loss whose slope is at most 1, make less than 1e-3 of that.
    [({"mode": "off"}, 0.0), ({"mode": "malicious", "most_records": 512, "clip": 1.0}, 1e-3)],
    ids=["plain", "masked"],
)
def test_an_exact_evaluation_has_the_risks_of_the_simulation_and_is_made_again_of_the_saved_model(
    tmp_path: Path, protection: dict[str, object], tolerance: float
) -> None:
    plan = small_plan(rounds=2, protection=protection) | {
        "evaluation": {"every": 5, "bins": 8, "method": "exact", "group_sizes": [0.1, 0.5]}
    }
    workspace = prepare(tmp_path, plan)
    assert play(workspace, Federation.everybody).state.value == "finished"
    purposes = [line["purpose"] for line in metrics(workspace)]
    assert purposes[-5:] == ["evaluation", *["exact-evaluation"] * 4]
    simulated = to_json(simulate(load_plan(workspace.plan), workspace.folder).result)
    deployed = json.loads(workspace.result.read_text())
    assert simulated["evaluation"] == deployed["evaluation"] == {"method": "exact", "given_up": None}
    for size, risk in deployed["train"]["by_group_size"].items():
        truth, (low, high) = simulated["train"]["by_group_size"][size]["worst"], risk["bound"]
        assert low - tolerance <= truth <= high + tolerance
        # Two half gaps of float32, and the slack of 569 sums: far less than a millionth.
        assert high - low <= 1e-6 * truth
        assert risk["at_least"] <= risk["worst"]
    low, high = deployed["objective"]["rcvar_bound"]
    assert low - tolerance <= simulated["objective"]["rcvar"] <= high + tolerance
    assert high - low <= 1e-6
    if tolerance:
        assert_evaluated_again_without_training(workspace)


def assert_evaluated_again_without_training(workspace: Workspace) -> None:
    model = workspace.folder / "save" / "last.safetensors"
    before = model.read_bytes()
    assert play(workspace, Federation.everybody, model=model).state.value == "finished"
    folder = workspace.folder / "evaluation"
    lines = (folder / "logs" / "aggregator_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["purpose"] for line in lines] == ["evaluation", *["exact-evaluation"] * 4]
    run, again = (json.loads((place / "result.json").read_text()) for place in (workspace.folder, folder))
    assert again["evaluation"] == {"method": "exact", "given_up": None}
    assert again["rounds"] == run["rounds"] == 2
    # The same model, the same records: all that can differ is what masks take from a sum, 2^-56 of an addend.
    for size, risk in run["train"]["by_group_size"].items():
        other = again["train"]["by_group_size"][size]
        assert other["at_least"] == risk["at_least"]
        assert other["worst"] == pytest.approx(risk["worst"], rel=1e-12)
    assert again["train"]["confusion"] == run["train"]["confusion"]
    assert model.read_bytes() == before
