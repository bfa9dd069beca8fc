"""A site that finds too many members withholds its agreement: the lead's files and terminal say who."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from fedfair.cli.loopback import prepare
from fedfair.cli.model_faults import faults_of_model
from fedfair.plan.loading import load_plan
from fedfair.results.document import to_json
from fedfair.results.reading import read_result
from fedfair.results.release import withheld_sentence
from fedfair.simulation.simulate import simulate
from tests.interop.federation_kit import Federation, metrics, play, states_agree
from tests.plans import small_plan

# As strict as can be: any record of any group that is found at one mistake in a hundred.
STRICT = {"judged_by": "estimate", "membership_tpr_at_01": 0.0}


@pytest.mark.parametrize("protection", [{"mode": "malicious"}, None], ids=["masked", "in the clear"])
def test_the_lead_is_told_by_whom_a_model_is_not_released(
    tmp_path: Path, protection: Mapping[str, object] | None
) -> None:
    plan = small_plan(rounds=2, protection=protection)
    plan["task"] = {**plan["task"], "test_fraction": 0.4}  # type: ignore[dict-item]
    plan["evaluation"] = {"every": 2, "bins": 64, "release_audit": {}}
    workspace = prepare(tmp_path, plan)
    file = tmp_path / "clinic-b.yaml"
    own = yaml.safe_load(file.read_text())
    own["policy"] = {**own.get("policy", {}), "release": STRICT}
    file.write_text(yaml.safe_dump(own))
    assert play(workspace, Federation.everybody).state.value == "finished"
    states_agree(workspace)
    assert [line["purpose"] for line in metrics(workspace)][-1] == "release-audit"
    found = json.loads(workspace.result.read_text())["release"]
    assert found["state"] == "not released"
    assert found["by"] == {
        "clinic-a": {"word": "agreed"}, "clinic-b": {"word": "withheld", "reasons": ["membership-tpr-at-01"]},
        "clinic-c": {"word": "agreed"},
    }  # fmt: skip
    said = read_result(workspace.result)
    (warning,) = withheld_sentence(said.release)
    assert warning == "The model is not released by clinic-b (membership-tpr-at-01): do not hand it out."
    # Whoever uses the model's file is warned, and a model of another plan is another model.
    model = tmp_path / "save" / "last.safetensors"
    assert warning in faults_of_model(model, said.plan_digest)
    assert warning not in faults_of_model(model, "sha256:" + "0" * 64)
    simulated = json.loads(json.dumps(to_json(simulate(load_plan(workspace.plan), tmp_path).result)))["release"]
    assert "by" not in simulated
    # A masked model is off by 2^-20 of a parameter, which may move a loss into the next bin.
    here, there = (release["audit"]["groups"][0] for release in (found, simulated))
    assert (here["train"], here["held_out"]) == (there["train"], there["held_out"])
    assert here["auc"] == pytest.approx(there["auc"], abs=0.01)
