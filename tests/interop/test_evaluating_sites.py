"""Sites whose policy allows evaluation and nothing else: they join an evaluation, and no lie makes them train."""

import asyncio
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from aggregator.streams import Streams
from collaborator.known_models import ModelPlaces, approve_model, read_model
from fedfair.aggregation.requests import GlobalModel
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ApprovalError, PlanError, RemoteProtocolError
from fedfair.plan.loading import load_plan
from fedfair.rounds.state_steps import StateSteps
from fedfair.run.saved_model import ModelOrigin, TrainedModel, load_saved, model_identity, save_model
from fedfair.training.binding import PlanBinding, plan_binding
from fedfair.wire.frames import Welcome
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512, "clip": 1.0}


def allow(workspace: Workspace, name: str, *purposes: str) -> None:
    file = workspace.folder / f"{name}.yaml"
    site = yaml.safe_load(file.read_text())
    site["policy"]["purposes"] = list(purposes)
    file.write_text(yaml.safe_dump(site))


def evaluation_lines(workspace: Workspace) -> list[dict[str, object]]:
    """Return what the aggregator's log says of the sums of an evaluation on demand."""
    log = workspace.folder / "evaluation" / "logs" / "aggregator_metrics.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def saved_model(workspace: Workspace, path: Path) -> tuple[TrainedModel, PlanBinding]:
    plan = load_plan(workspace.plan)
    binding = plan_binding(plan, workspace.folder)
    return load_saved(path, plan, binding.layout, binding.schema), binding


def identity_of(workspace: Workspace, path: Path) -> bytes:
    saved, binding = saved_model(workspace, path)
    return model_identity(binding.layout, saved.model, saved.scaling)


def approve_for(federation: Federation, name: str, model: Path) -> None:
    ready = federation.ready(name)
    places = ModelPlaces.of_site(ready.site, ready.binding)
    approve_model(places, read_model(places, model), datetime.now(UTC))


def write_moved(workspace: Workspace, path: Path, moved: Path) -> None:
    """Write the model of a file with another threshold."""
    saved, binding = saved_model(workspace, path)
    other = replace(saved, model=GlobalModel(saved.model.vector, saved.model.threshold / 2))
    origin = ModelOrigin.of_plan(load_plan(workspace.plan), saved.plan_digest, binding.schema)
    save_model(moved, binding.layout, other, origin)


def test_a_site_that_only_evaluates_leaves_a_training_run_in_words_and_adds_to_nothing(tmp_path: Path) -> None:
    federation = {"min_collaborators": 2}
    workspace = prepare(tmp_path, small_plan(rounds=1, federation=federation))
    allow(workspace, "clinic-c", "evaluation")

    async def one_leaves(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in NAMES[:2]]
        with pytest.raises(
            PlanError, match="the plan asks for training sums; this site's policy allows evaluation"
        ):
            await federation.take_part("clinic-c")
        await federation.begin_with(*NAMES[:2])
        await asyncio.gather(*others)

    assert play(workspace, one_leaves).state.value == "finished"
    assert {line["contributors"] for line in metrics(workspace)} == {2}


@pytest.fixture(scope="module", params=[None, MASKED], ids=["plain", "masked"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A finished run whose first sums are the evaluation of round 0 and the training of round 1."""
    plan = small_plan(rounds=1, protection=request.param)
    task = plan["task"]
    assert isinstance(task, dict)
    workspace = prepare(tmp_path_factory.mktemp("finished"), plan | {"task": task | {"standardize": "none"}})
    assert play(workspace, Federation.everybody).state.value == "finished"
    return workspace


def copied(workspace: Workspace, folder: Path) -> Workspace:
    shutil.copytree(workspace.folder, folder, dirs_exist_ok=True)
    return Workspace(folder, workspace.collaborators)


def test_an_aggregator_that_calls_training_an_evaluation_gets_no_update_of_anybody(
    tmp_path: Path, finished: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = copied(finished, tmp_path)
    allow(workspace, "clinic-c", "evaluation")
    before = len(metrics(workspace))
    # Every site has approved the model that the liar's run begins with, so that nobody refuses for the lack of it.
    begun_with = workspace.folder / "save" / "init.safetensors"
    announced = identity_of(workspace, begun_with)
    honest = Streams.welcome

    def lie(streams: Streams) -> Welcome:
        return replace(honest(streams), evaluation_only=True, model=announced)

    monkeypatch.setattr(Streams, "welcome", lie)

    async def lied_to(federation: Federation) -> None:
        for name in NAMES:
            approve_for(federation, name, begun_with)
        found = await asyncio.gather(*(federation.take_part(name) for name in NAMES), return_exceptions=True)
        # The site that would have trained holds the aggregator to its word just as well.
        for fault in found:
            assert isinstance(fault, RemoteProtocolError)
            assert "a training sum was asked for in a run that was announced as an evaluation only" in str(fault)
        federation.serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        play(workspace, lied_to, fresh=True)
    assert {line["purpose"] for line in metrics(workspace)[before:]} <= {"evaluation"}


def test_an_aggregator_that_announces_one_saved_model_gets_no_evaluation_of_another(
    tmp_path: Path, finished: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = copied(finished, tmp_path)
    known, other = (workspace.folder / "save" / name for name in ("last.safetensors", "other.safetensors"))
    write_moved(workspace, known, other)
    announced = identity_of(workspace, known)
    honest = Streams.welcome

    def lie(streams: Streams) -> Welcome:
        return replace(honest(streams), model=announced)

    monkeypatch.setattr(Streams, "welcome", lie)
    # The state with the other model is sent before every request.
    monkeypatch.setattr(StateSteps, "is_present", lambda *_: False)

    async def lied_to(federation: Federation) -> None:
        found = await asyncio.gather(*(federation.take_part(name) for name in NAMES), return_exceptions=True)
        for fault in found:
            assert isinstance(fault, RemoteProtocolError)
            assert "another model than the one whose evaluation was announced" in str(fault)
        federation.serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        play(workspace, lied_to, model=other)
    assert evaluation_lines(workspace) == []


def test_a_site_without_the_saved_model_refuses_in_words_until_it_has_approved_it(
    tmp_path: Path, finished: Workspace
) -> None:
    workspace = copied(finished, tmp_path)
    # To evaluate is all that its own rules allow it.
    allow(workspace, "clinic-c", "evaluation")
    shutil.rmtree(workspace.folder / "runs" / "clinic-c")
    model = workspace.folder / "save" / "last.safetensors"

    async def one_refuses(federation: Federation) -> None:
        with pytest.raises(ApprovalError, match="neither has from a run of its own nor has approved") as refusal:
            await federation.take_part("clinic-c")
        assert "fedfair plan approve -n clinic-c --model" in refusal.value.remedy
        await federation.watching.until_said("its own rules refuse the request")
        approve_for(federation, "clinic-c", model)
        await federation.everybody()

    assert play(workspace, one_refuses, model=model).state.value == "finished"
    (line,) = evaluation_lines(workspace)
    assert line["contributors"] == 3
    # What is evaluated on demand is no run of a site's own.
    assert len(list((workspace.folder / "runs" / "clinic-a").iterdir())) == 1
    assert not (workspace.folder / "runs" / "clinic-c").exists()
