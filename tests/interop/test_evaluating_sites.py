"""Sites whose policy allows evaluation and nothing else: they join an evaluation, and no lie makes them train."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from aggregator.driver import RunDriver
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PlanError, RemoteProtocolError
from fedfair.wire.frames import Welcome
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512, "clip": 1.0}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def allow(workspace: Workspace, name: str, *purposes: str) -> None:
    file = workspace.folder / f"{name}.yaml"
    site = yaml.safe_load(file.read_text())
    site["policy"]["purposes"] = list(purposes)
    file.write_text(yaml.safe_dump(site))


async def everybody(federation: Federation) -> None:
    await asyncio.gather(*(federation.take_part(name) for name in NAMES))


@pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])
def test_a_site_that_only_evaluates_joins_the_evaluation_of_a_saved_model(
    tmp_path: Path, protection: Mapping[str, object] | None
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2, protection=protection))
    assert play(workspace, everybody).state.value == "finished"
    allow(workspace, "clinic-c", "evaluation")
    model = workspace.folder / "save" / "last.safetensors"
    assert play(workspace, everybody, model=model).state.value == "finished"
    lines = (workspace.folder / "evaluation" / "logs" / "aggregator_metrics.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert '"contributors": 3' in lines[0]


def test_a_site_that_only_evaluates_leaves_a_training_run_in_words_and_adds_to_nothing(tmp_path: Path) -> None:
    federation = {"min_collaborators": 2, "join_deadline_seconds": 1}
    workspace = prepare(tmp_path, small_plan(rounds=2, federation=federation))
    allow(workspace, "clinic-c", "evaluation")

    async def one_leaves(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in NAMES[:2]]
        with pytest.raises(
            PlanError, match="the plan asks for training sums; this site's policy allows evaluation"
        ):
            await federation.take_part("clinic-c")
        await asyncio.gather(*others)

    assert play(workspace, one_leaves).state.value == "finished"
    assert {line["contributors"] for line in metrics(workspace)} == {2}


@pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])
def test_an_aggregator_that_calls_training_an_evaluation_gets_no_update_of_anybody(
    tmp_path: Path, protection: Mapping[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(rounds=2, protection=protection)
    # Nothing is standardised, so that the first forbidden sum is the training of round 1.
    task = plan["task"]
    assert isinstance(task, dict)
    workspace = prepare(tmp_path, plan | {"task": task | {"standardize": "none"}})
    allow(workspace, "clinic-c", "evaluation")
    honest = RunDriver.welcome

    def lie(driver: RunDriver) -> Welcome:
        return replace(honest(driver), evaluation_only=True)

    monkeypatch.setattr(RunDriver, "welcome", lie)

    async def lied_to(federation: Federation) -> None:
        found = await asyncio.gather(*(federation.take_part(name) for name in NAMES), return_exceptions=True)
        # The site that would have trained holds the aggregator to its word just as well.
        for fault in found:
            assert isinstance(fault, RemoteProtocolError)
            assert "a training sum was asked for in a run that was announced as an evaluation only" in str(fault)
        federation.serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        play(workspace, lied_to)
    assert {line["purpose"] for line in metrics(workspace)} == {"evaluation"}
