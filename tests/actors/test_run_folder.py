"""A site ends a run with the model, the result and the history in its own folder, whatever its disk does."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from typer.testing import CliRunner

from aggregator.driver import RunDriver
from aggregator.records import RunRecords
from collaborator.commands import other_process
from collaborator.known_models import ModelPlaces, approve_model, find_model, read_model
from collaborator.preflight import forgotten_runs
from collaborator.run_folder import RunFolder
from collaborator.write_ahead import WriteAheadLog
from fedfair.aggregation.requests import GlobalModel
from fedfair.cli.commands import app
from fedfair.errors import ApprovalError, DataError, StateError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.news.processors import ignore
from fedfair.news.site import RunFileUnwritten
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.results.document import to_text
from fedfair.results.outcome import AggregatorFacts, EndState, RunSubject, run_outcome
from fedfair.results.reading import read_result
from fedfair.rounds.events import Started
from fedfair.rounds.federation import Federation
from fedfair.run.progress import Progress
from fedfair.run.saved_model import ModelOrigin, TrainedModel, load_saved, read_saved, save_model
from fedfair.run.training_run import TrainingRun
from fedfair.run.which_model import WhichModel
from fedfair.training.binding import plan_binding
from tests import plans
from tests.actors.site_play import MINE, PlayedRun, played, small
from tests.full_disk import full_beyond
from tests.prediction.saved_runs import saved_run

RUN = "0123456789abcdef" * 2


class Site:
    """A site that keeps its own copy of a run, and what its operator was told."""

    def __init__(self, folder: Path, output: str = "last") -> None:
        plan = small(output=output)
        binding = plan_binding(plan, folder)
        subject = RunSubject(plan, format_digest(binding.digest), binding.layout, binding.schema)
        self.path = folder / "runs" / "clinic-b" / RUN
        self.files = RunFolder(self.path, subject)
        self.told: list[RunFileUnwritten] = []
        self.states: list[tuple[str, str, int]] = []
        self.best: list[tuple[int, float, bytes]] = []

    def heard(self, progress: Progress, training_run: TrainingRun, losses: SiteLosses) -> None:
        del losses
        if progress.evaluation is not None:
            if progress.is_best:
                best = training_run.best
                self.best.append((int(progress.round), best.threshold, best.vector.tobytes()))
            self.note(self.files.evaluated(training_run, is_best=progress.is_best))
            if (self.path / "result.json").exists():
                now = json.loads((self.path / "result.json").read_text())
                self.states.append((now["state"], now["outcome"], len(now["history"])))

    def note(self, notice: RunFileUnwritten | None) -> None:
        self.told += [notice] if notice else []


def report(*words: str) -> str:
    done = CliRunner().invoke(app, ["report", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("output", ["last", "best", "average"])
def test_a_site_has_models_and_result_after_every_evaluation_and_at_the_end(tmp_path: Path, output: str) -> None:
    site = Site(tmp_path, output)
    run = played(small(output=output), tmp_path, site.heard)
    site.note(site.files.ended(run.training_run, EndState.FINISHED, "all 3 rounds are done"))
    assert (site.told, site.states[:4]) == ([], [("running", f"round {n} of 3", n + 1) for n in range(4)])
    last = load_saved(site.path / "save" / "last.safetensors", run.subject.plan, run.subject.layout,
                      run.subject.schema)  # fmt: skip
    assert last.model.vector.tobytes() == run.training_run.model.vector.tobytes()
    assert (last.model.threshold, last.round) == (run.training_run.model.threshold, 3)
    assert last.plan_digest == run.subject.plan_digest
    assert last.scaling is not None
    best = read_saved(site.path / "save" / "best.safetensors").saved
    assert (int(best.round), best.model.threshold, best.model.vector.tobytes()) == site.best[-1]
    assert [path.name for path in sorted(site.path.rglob("*")) if path.is_file()] == [
        "result.json", "best.safetensors", "last.safetensors", "trained.safetensors",
    ]  # fmt: skip
    # Whatever is returned, what training ended with is kept, and each file says which model it holds.
    trained = read_saved(site.path / "save" / "trained.safetensors").saved
    assert trained.model.vector.tobytes() == run.training_run.trained.vector.tobytes()
    assert (trained.which, last.which) == (WhichModel("last", 3, 3), run.training_run.which)
    assert best.which == WhichModel("best", site.best[-1][0], 3)


def test_a_site_and_the_aggregator_make_one_result_but_for_what_only_one_of_them_knows(tmp_path: Path) -> None:
    site = Site(tmp_path)
    run = played(small(), tmp_path, site.heard)
    assert site.files.ended(run.training_run, EndState.FINISHED, "all 3 rounds are done") is None
    own = json.loads((site.path / "result.json").read_text())
    theirs = json.loads(_text(run, AggregatorFacts(2.0, (), ())))
    assert {key for key in theirs if own.get(key, "absent") != theirs[key]} == {"timing", "left"}
    assert (own["timing"], own["traffic"], "left" in own) == (None, None, False)
    assert [past["round"] for past in own["history"]] == [0, 1, 2, 3]


def _text(run: PlayedRun, known: AggregatorFacts) -> str:
    return to_text(
        run_outcome(run.subject, run.training_run.result(), EndState.FINISHED, "all 3 rounds are done", known)
    )


@pytest.mark.usefixtures("undrawn")
def test_a_report_is_made_of_a_sites_own_result_on_the_way_and_at_the_end(tmp_path: Path) -> None:
    site = Site(tmp_path)
    place = str(site.path / "result.json")
    first: list[str] = []

    def heard(progress: Progress, training_run: TrainingRun, losses: SiteLosses) -> None:
        site.heard(progress, training_run, losses)
        if progress.evaluation is not None and not first:
            report(place)
            first.append((site.path / "report.html").read_text())

    run = played(small(), tmp_path, heard)
    site.files.ended(run.training_run, EndState.FINISHED, "all 3 rounds are done")
    table, page = report(place), (site.path / "report.html").read_text()
    assert "THE RUN IS NOT OVER: round 0 of 3" in first[0]
    assert "THE RUN" not in page
    assert "worst" in table
    assert read_result(Path(place)).state == "finished"


def test_a_run_that_ends_before_its_first_evaluation_leaves_its_state_alone(tmp_path: Path) -> None:
    plan = small()
    binding, site = plan_binding(plan, tmp_path), Site(tmp_path)
    begun = TrainingRun(plan, binding.layout, binding.schema, binding.vector)
    assert site.files.ended(begun, EndState.STOPPED, "stopped by its operator") is None
    told = json.loads((site.path / "result.json").read_text())
    assert (told["state"], told["rounds"], told["left"]) == ("stopped", 0, [])
    assert "train" not in told


def test_a_full_disk_is_told_in_one_sentence_and_the_run_goes_on(tmp_path: Path) -> None:
    site, room = Site(tmp_path, "average"), [10**9]

    def heard(progress: Progress, training_run: TrainingRun, losses: SiteLosses) -> None:
        if progress.evaluation is not None:
            room[0] = 100 if progress.round == 1 else 10**9
        with full_beyond(room[0]):
            site.heard(progress, training_run, losses)

    run = played(small(output="average"), tmp_path, heard)
    # Round 1 is the best so far, so that the best model is the first file that there was no room for.
    assert site.told == [RunFileUnwritten(site.path / "save" / "best.safetensors", "File too large")]
    assert site.states[1] == site.states[0]
    assert run.training_run.result().finished
    best = read_saved(site.path / "save" / "best.safetensors").saved
    assert (int(best.round), best.model.threshold, best.model.vector.tobytes()) == site.best[-1]
    assert not list(site.path.rglob(".*"))


def test_a_best_model_that_found_no_room_is_written_when_there_is_some(tmp_path: Path) -> None:
    site = Site(tmp_path)
    found: list[bytes] = []

    def heard(progress: Progress, training_run: TrainingRun, losses: SiteLosses) -> None:
        del losses
        if progress.evaluation is None:
            return
        # Only the model of round 1 is called the best; the vector keeps changing after it.
        is_best = progress.round == 1
        with full_beyond(100 if is_best else 10**9):
            site.note(site.files.evaluated(training_run, is_best=is_best))
        if is_best:
            found.append(training_run.model.vector.tobytes())

    played(small(), tmp_path, heard)
    best = read_saved(site.path / "save" / "best.safetensors").saved
    assert (int(best.round), best.model.vector.tobytes(), len(site.told)) == (1, found[0], 1)


def test_a_folder_that_cannot_be_made_is_told_and_ends_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (tmp_path / "runs").write_text("a file where a folder should be")
    run = played(small(), tmp_path, site.heard)
    assert {notice.fault for notice in site.told} == {"Not a directory"}
    assert run.training_run.result().finished


# ---- what a site is told before a start reads anything: another process, and a state that is gone


def test_another_process_of_the_site_is_named_at_once_and_never_after_its_end(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert other_process(state, "clinic-a") == ""
    first = WriteAheadLog(state / "clinic-a-0123.secagg")
    assert "already runs as clinic-a and holds" in other_process(state, "clinic-a")
    assert other_process(state, "clinic-b") == ""
    first.close()
    assert other_process(state, "clinic-a") == ""


@pytest.mark.parametrize("removed", [True, False])
def test_a_state_that_was_removed_between_runs_is_told(tmp_path: Path, *, removed: bool) -> None:
    run = saved_run(tmp_path, plans.stated(task={"partition": {"scheme": "random"}}))
    save = tmp_path / "runs" / "clinic-a" / "one" / "save"
    save.mkdir(parents=True)
    (save / "last.safetensors").write_bytes(run.model.read_bytes())
    (tmp_path / "state").mkdir()
    if not removed:
        (tmp_path / "state" / "clinic-a-0123.run").write_bytes(b"")
    digest, runs = run.outcome.origin.plan_digest, tmp_path / "runs" / "clinic-a"
    said = forgotten_runs(tmp_path / "state", "clinic-a-0123", runs, digest)
    assert ("knows nothing of 1 earlier runs of this plan" in said) is removed
    assert forgotten_runs(tmp_path / "state", "clinic-a-0123", runs, "sha256:" + "0" * 64) == ""


# ---- one step of the driver: whoever waits for its event continues, whatever becomes of the step


def receive(_event: object) -> None:
    raise OSError("No space left on device")


def test_a_stream_whose_event_could_not_be_written_is_released() -> None:
    async def stepping() -> bool:
        driver = RunDriver(
            cast("Federation", SimpleNamespace(receive=receive)),
            cast("TrainingRun", SimpleNamespace(evaluation_only=False)),
            cast("RunRecords", SimpleNamespace(is_small=True)),
            ignore,
            worst_group_size=0.1,
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(OSError, match="No space left"):
            await driver._step(Started(), done)
        return done.done()

    assert asyncio.run(stepping())


# ---- a site knows the saved models that it has itself, and those that it has approved by their digest

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
