"""The threshold that a run learns in round 0 is one number in everything that the run leaves behind."""

import asyncio
import json
from pathlib import Path

import pytest
import torch

from fedfair.cli.loopback import prepare
from fedfair.news.sums import RoundEvaluated, news_of_sum
from fedfair.results.loss_text import loss_text
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.plans import small_plan


@pytest.mark.parametrize("output", ["last", "best"])
def test_log_metrics_result_and_evaluation_say_one_threshold_for_every_round(tmp_path: Path, output: str) -> None:
    torch.set_num_threads(1)
    # A plan that learns nothing: its best model is that of round 0, whose evaluation is the one that is kept.
    rate = {"learning_rate": 1e-9, "threshold_learning_rate": 0.01}
    workspace = prepare(tmp_path, small_plan(rounds=2, threshold_init="quantile", output=output, **rate))
    log: dict[int, str] = {}

    async def everybody(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))
        news = [each for line in federation.watching.progress for each in news_of_sum(line, 5, 0.3)]
        log.update({each.round: each.figures.split(";")[0] for each in news if isinstance(each, RoundEvaluated)})

    assert play(workspace, everybody).state.value == "finished"
    result = json.loads(workspace.result.read_text())
    history = {entry["round"]: entry["threshold"] for entry in result["history"]}
    assert history[0] != 1.0  # What is broadcast before the losses are known.
    written = {line["round"]: line["threshold"] for line in metrics(workspace) if line["purpose"] == "evaluation"}
    assert written == history
    stated = [line["threshold"] for line in metrics(workspace) if line["round"] == 0 and "threshold" in line]
    assert stated == [history[0]]
    assert log == {number: f"threshold {loss_text(threshold, 4)}" for number, threshold in history.items()}
    kept = json.loads((tmp_path / "save" / "evaluation.json").read_text())
    assert kept["threshold"] == history[kept["round"]] == result["threshold"]
