"""Histograms of scores over real sockets: where the plan asks and every site agrees, and not otherwise."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.metrics import brier_score_loss, roc_auc_score

from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.aggregation.model_file import load
from fedfair.aggregation.score_histogram import rounded_scores
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PlanError
from fedfair.fairness.record_losses import Losses
from fedfair.plan.loading import load_plan
from fedfair.results.document import JsonObject, to_json
from fedfair.run.saved_model import save_model
from fedfair.simulation.simulate import SimulationOutcome, simulate
from tests.interop.federation_kit import NAMES, Federation, play
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512, "clip": 1.0}


def asking(
    protection: Mapping[str, object] | None,
    *,
    data: str = "breast-cancer",
    scores: bool = True,
    **federation: object,
) -> dict[str, object]:
    plan = small_plan(rounds=2, federation=federation, protection=protection)
    task = plan["task"]
    assert isinstance(task, dict)
    return plan | {
        "task": task | {"data": data, "test_fraction": 0.2},
        "evaluation": {"every": 5, "bins": 8, "scores": scores},
    }


def pooled(outcome: SimulationOutcome, split: str) -> Losses:
    held = [site[split] for site in outcome.losses.values() if split in site]
    parts = ([getattr(each, name) for each in held] for name in ("values", "labels", "predictions", "scores"))
    return Losses(*(np.concatenate(part) for part in parts))


def results(workspace: Workspace, outcome: SimulationOutcome) -> tuple[JsonObject, JsonObject]:
    return json.loads(json.dumps(to_json(outcome.result))), json.loads(workspace.result.read_text())


Played = tuple[Workspace, SimulationOutcome]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A finished federation of ten classes, and its simulation."""
    workspace = prepare(tmp_path_factory.mktemp("digits"), asking(None, data="digits"))
    assert play(workspace, Federation.everybody).state.value == "finished"
    return workspace, simulate(load_plan(workspace.plan), workspace.folder)


@pytest.mark.parametrize(
    ("protection", "tolerance"),
    # A masked model differs by so little that a score differs by less than 1e-3.
    [(None, 1e-12), (MASKED, 1e-3)],
    ids=["plain", "masked"],
)
def test_a_deployment_tells_of_scores_what_its_simulation_does(
    tmp_path: Path, protection: dict[str, object] | None, tolerance: float
) -> None:
    workspace = prepare(tmp_path, asking(protection))
    assert play(workspace, Federation.everybody).state.value == "finished"
    outcome = simulate(load_plan(workspace.plan), workspace.folder)
    simulated, deployed = results(workspace, outcome)
    for split in ("train", "test"):
        told, exact = deployed[split]["scores"], simulated[split]["scores"]
        losses = pooled(outcome, split)
        truth = roc_auc_score(losses.labels, losses.scores[:, 0])
        assert exact["auc"] == exact["auc_bound"][0] == exact["auc_bound"][1] == pytest.approx(truth, abs=1e-12)
        low, high = told["auc_bound"]
        assert low - 10 * tolerance <= truth <= high + 10 * tolerance
        assert low <= high < low + 0.02
        assert told["auc"] == (low + high) / 2
        brier = float(brier_score_loss(losses.labels, rounded_scores(losses.scores[:, 0], 1)))
        assert told["brier"] == pytest.approx(brier, abs=tolerance)
        assert exact["brier"] == pytest.approx(brier, abs=1e-12)
        assert told["calibration_error"] == pytest.approx(exact["calibration_error"], abs=30 * tolerance)
        (only,) = told["by_class"].values()
        assert list(told["by_class"]) == ["1"]
        assert sum(row["records"] for row in only["reliability"]) == deployed[split]["n"]
        if protection is None:
            assert [row["records"] for row in only["reliability"]] == [
                row["records"] for row in exact["by_class"]["1"]["reliability"]
            ]
    kept = parse_evaluation((workspace.folder / "save" / "evaluation.json").read_bytes(), "here")
    (sums,) = kept.splits["test"].scores or ()
    assert sum(sums.positives) + sum(sums.negatives) == deployed["test"]["n"]
    initial, last = (load(workspace.folder / "save" / f"{kind}.safetensors")[2] for kind in ("init", "last"))
    assert "calibration" in last
    # The file of the beginning is from before every evaluation.
    assert "calibration" not in initial
    assert initial["uncalibrated"] == "no sums of an evaluation of this very model are kept"


def test_the_aggregator_every_site_and_the_simulation_store_one_calibration(digits: Played) -> None:
    workspace, outcome = digits
    ours = workspace.folder / "simulated.safetensors"
    save_model(ours, outcome.layout, outcome.saved, outcome.origin)
    runs = sorted(workspace.folder.glob("runs/*/*/save/last.safetensors"))
    assert [path.parts[-4] for path in runs] == list(NAMES)
    files = [workspace.folder / "save" / "last.safetensors", *runs, ours]
    stated = {load(path)[2]["calibration"] for path in files}
    assert len(stated) == 1
    told = json.loads(stated.pop())
    # The plan holds no validation records out.
    assert (told["method"], told["split"]) == ("platt", "train")
    assert list(told["fits"]) == [str(number) for number in range(10)]


def test_a_plan_that_asks_for_no_calibration_gets_none_and_its_model_says_why(tmp_path: Path) -> None:
    plan = asking(None)
    workspace = prepare(tmp_path, plan | {"evaluation": {"every": 5, "scores": True, "calibration": "none"}})
    assert play(workspace, Federation.everybody).state.value == "finished"
    words = load(workspace.folder / "save" / "last.safetensors")[2]
    assert "calibration" not in words
    assert words["uncalibrated"] == "the plan asks for none (evaluation.calibration: none)"


def test_ten_classes_are_each_told_of(digits: Played) -> None:
    workspace, outcome = digits
    simulated, deployed = results(workspace, outcome)
    losses, told = pooled(outcome, "test"), deployed["test"]["scores"]
    truth = roc_auc_score(losses.labels, losses.scores, multi_class="ovr", average="macro")
    assert told["auc_bound"][0] <= truth <= told["auc_bound"][1]
    assert simulated["test"]["scores"]["auc"] == pytest.approx(truth, abs=1e-12)
    assert list(told["by_class"]) == [str(number) for number in range(10)]
    squares = ((rounded_scores(losses.scores, 10) - np.eye(10)[losses.labels]) ** 2).sum(axis=1).mean()
    assert told["brier"] == pytest.approx(squares, rel=1e-12)


def test_a_site_whose_policy_does_not_name_scores_refuses_before_anything_is_sent(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, asking(None, min_collaborators=2))
    file = workspace.folder / "clinic-c.yaml"
    site = yaml.safe_load(file.read_text())
    assert "score-sums" in site["policy"].pop("reveals")
    file.write_text(yaml.safe_dump(site))

    async def one_refuses(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in NAMES[:2]]
        with pytest.raises(
            PlanError, match=r"evaluation\.scores: true reveals score-sums; this site's policy allows"
        ):
            await federation.take_part("clinic-c")
        await federation.begin_with(*NAMES[:2])
        await asyncio.gather(*others)
        assert not any("clinic-c connected" in note for note in federation.watching.notes)

    assert play(workspace, one_refuses).state.value == "finished"


def test_a_plan_that_does_not_ask_sums_no_scores_even_where_every_site_would_allow_it(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, asking(None, scores=False))
    for name in NAMES:
        file = workspace.folder / f"{name}.yaml"
        site = yaml.safe_load(file.read_text())
        site["policy"]["reveals"] = ["update-sums", "loss-sums", "feature-sums", "score-sums"]
        file.write_text(yaml.safe_dump(site))
    assert play(workspace, Federation.everybody).state.value == "finished"
    outcome = simulate(load_plan(workspace.plan), workspace.folder)
    simulated, deployed = results(workspace, outcome)
    for split in ("train", "test"):
        assert "scores" not in simulated[split]
        assert "scores" not in deployed[split]
        assert pooled(outcome, split).scores.size == 0
    assert "scores" not in (workspace.folder / "save" / "evaluation.json").read_text()
