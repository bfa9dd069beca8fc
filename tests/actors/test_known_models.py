"""A site knows the saved models that it has itself, and those that it has approved by their digest."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from collaborator.known_models import ModelPlaces, approve_model, find_model, read_model
from collaborator.run_folder import RunFolder
from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import ApprovalError, DataError, StateError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.results.outcome import EndState
from fedfair.run.progress import Progress
from fedfair.run.saved_model import ModelOrigin, TrainedModel, save_model
from fedfair.run.training_run import TrainingRun
from tests import plans
from tests.actors.site_play import MINE, PlayedRun, played, small
from tests.full_disk import full_beyond

NOON = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
RUNS = ("0" * 32, "f" * 32)


def places_of(folder: Path, run: PlayedRun, who: ParticipantId = MINE) -> ModelPlaces:
    return ModelPlaces(who, folder / "approvals", folder / "runs" / who, run.subject)


def kept(folder: Path, plan: Plan, run_id: str) -> PlayedRun:
    """Play a run, and keep this site's own copy of it."""
    probe: list[RunFolder] = []

    def heard(progress: Progress, training_run: TrainingRun, losses: SiteLosses) -> None:
        del losses
        if probe and progress.evaluation is not None:
            assert probe[0].evaluated(training_run, is_best=progress.is_best) is None

    probe.append(RunFolder(folder / "runs" / MINE / run_id, played(plan, folder).subject))
    run = played(plan, folder, heard)
    assert probe[0].ended(run.training_run, EndState.FINISHED, "done") is None
    return run


def saved_of(run: PlayedRun) -> TrainedModel:
    state = run.training_run
    return TrainedModel(state.model, state.rounds_done, run.subject.plan_digest, state.scaling)


def written(path: Path, run: PlayedRun, saved: TrainedModel) -> Path:
    origin = ModelOrigin.of_plan(run.subject.plan, saved.plan_digest, run.subject.schema)
    save_model(path, run.subject.layout, saved, origin)
    return path


def test_a_site_knows_the_last_and_the_best_model_of_every_run_of_the_plan(tmp_path: Path) -> None:
    run = kept(tmp_path, small(), RUNS[0])
    kept(tmp_path, small(seed=8), RUNS[1])
    places = places_of(tmp_path, run)
    digest = places.identity(saved_of(run))
    found = find_model(places, digest)
    assert found.model.vector.tobytes() == run.training_run.model.vector.tobytes()
    assert places.identity(found) == digest
    assert find_model(places, bytes(32)) is None
    # The run of another plan lies there too, and is not what this plan's sites are asked about.
    assert find_model(places, places.identity(saved_of(kept(tmp_path, small(seed=8), RUNS[1])))) is None
    # Another site of the same machine has its own folder.
    assert find_model(places_of(tmp_path, run, plans.NAMES[0]), digest) is None  # type: ignore[arg-type]


def test_an_approved_model_is_found_by_its_digest_without_the_file_that_was_approved(tmp_path: Path) -> None:
    run = played(small(), tmp_path)
    places, source = places_of(tmp_path, run), written(tmp_path / "theirs.safetensors", run, saved_of(run))
    saved = read_model(places, source)
    record, digest = approve_model(places, saved, NOON), places.identity(saved)
    source.unlink()
    assert record.name == f"clinic-b.model-{digest.hex()}.json"
    assert json.loads(record.read_text()) == {
        "format": "fedfair/model-approval/1", "federation": "heart", "participant": "clinic-b",
        "plan_digest": run.subject.plan_digest, "model_digest": f"sha256:{digest.hex()}", "round": 3,
        "threshold": saved.model.threshold, "approved_at": "2031-05-04T12:00:00+00:00",
    }  # fmt: skip
    assert find_model(places, digest).model.vector.tobytes() == saved.model.vector.tobytes()
    # One bit of the threshold makes another model, which nobody has approved.
    moved = GlobalModel(saved.model.vector, float(np.nextafter(saved.model.threshold, 1.0)))
    assert find_model(places, places.identity(replace(saved, model=moved))) is None


def test_what_cannot_be_approved_is_refused_in_words(tmp_path: Path) -> None:
    run = played(small(), tmp_path)
    places = places_of(tmp_path, run)
    with pytest.raises(ApprovalError, match="there is no model"):
        read_model(places, tmp_path / "nothing.safetensors")
    other = written(tmp_path / "other", run, replace(saved_of(run), plan_digest="sha256:" + "1" * 64))
    with pytest.raises(DataError, match=r"was trained by the plan sha256:1111.*, this plan is sha256:"):
        read_model(places, other)
    bare = written(tmp_path / "bare", run, replace(saved_of(run), scaling=None))
    with pytest.raises(DataError, match="does not say how its features were scaled"):
        read_model(places, bare)
    (tmp_path / "text").write_text("no model")
    with pytest.raises(DataError, match="is not a model that can be read"):
        read_model(places, tmp_path / "text")


def test_an_approval_that_was_altered_is_refused_in_words(tmp_path: Path) -> None:
    run = played(small(), tmp_path)
    places, saved = places_of(tmp_path, run), saved_of(run)
    digest, path = places.identity(saved), approve_model(places, saved, NOON)
    text = path.read_text()
    for old, new, fault in (
        ('"heart"', '"lungs"', "is for the federation 'lungs', not for 'heart'"),
        ('"clinic-b"', '"clinic-c"', "is for the participant 'clinic-c'"),
        (digest.hex(), "0" * 64, "is for the model 'sha256:0000"),
        ("model-approval/1", "model-approval/2", "is no approval of a model: format"),
        ('"round": 3', '"round": "3"', "is no approval of a model: round"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(StateError, match=fault):
            find_model(places, digest)
    path.write_text(text)
    other = GlobalModel(saved.model.vector + 1, saved.model.threshold)
    written(path.with_suffix(".safetensors"), run, replace(saved, model=other))
    with pytest.raises(StateError, match="is for the model in the copy"):
        find_model(places, digest)
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(StateError, match="the approved model cannot be read"):
        find_model(places, digest)


def test_a_damaged_model_of_a_run_is_named_where_it_might_be_the_one(tmp_path: Path) -> None:
    run = kept(tmp_path, small(), RUNS[0])
    places, digest = places_of(tmp_path, run), bytes(32)
    damaged = tmp_path / "runs" / MINE / RUNS[0] / "save" / "best.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert find_model(places, places.identity(saved_of(run))) is not None
    with pytest.raises(StateError, match=r"no file here that can be read has the model .*best\.safetensors"):
        find_model(places, digest)


def test_a_full_disk_approves_nothing(tmp_path: Path) -> None:
    run = played(small(), tmp_path)
    places, saved = places_of(tmp_path, run), saved_of(run)
    with pytest.raises(ApprovalError, match="nothing was approved: cannot write the model"), full_beyond(100):
        approve_model(places, saved, NOON)
    assert find_model(places, places.identity(saved)) is None
    assert list(places.approvals.iterdir()) == []
