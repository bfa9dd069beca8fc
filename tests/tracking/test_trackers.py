"""Trackers write into the real libraries' stores, and a store that fails holds nobody up."""

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from fedfair.errors import DataError
from fedfair.extras import install_command
from fedfair.news.event import LoggedEvent, LogLevel
from fedfair.news.tracker import TrackerFailed
from fedfair.tracking import targets as targets_module
from fedfair.tracking.background import MAX_WAITING, BackgroundTracker, Trackers, make_tracker
from fedfair.tracking.targets import TrackerKind, TrackTarget, track_targets
from fedfair.tracking.tracker import Figures, TrackedEnd, TrackedRun
from tests.conftest import REPOSITORY
from tests.full_disk import full_beyond
from tests.patience import PATIENCE

RUN = TrackedRun("0123456789abcdef" * 2, "heart", "aggregator", {"algorithm": "fedsrcvar", "plan/model": "linear"})
LOST = LoggedEvent("attempt_lost", LogLevel.WARNING, "round 7 is lost", {"round": 7})
DONE = TrackedEnd("finished", "all 20 rounds are done", 20, {"final/rcvar": 0.25})


def track(word: str, run: TrackedRun = RUN) -> list[TrackerFailed]:
    """Track one small run, and wait for its store."""
    trackers = Trackers(track_targets([word]), run)
    trackers.event(LOST)
    trackers.figures(0, {"train/mean": 0.75, "train/worst_0.1": 1.5})
    trackers.figures(10, {"train/mean": 0.5, "train/worst_0.1": 1.0})
    trackers.finish(DONE, PATIENCE)
    return trackers.take_failures()


def test_a_file_of_lines_holds_everything_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    assert track(f"jsonl:{path}") == []
    begun, lost, first, second, ended = map(json.loads, path.read_text().splitlines())
    assert {line["run_id"] for line in (begun, lost, first, second, ended)} == {RUN.run_id}
    assert (begun["role"], begun["facts"]["algorithm"]) == ("aggregator", "fedsrcvar")
    assert (lost["event"], lost["message"], lost["round"]) == ("attempt_lost", "round 7 is lost", 7)
    assert (first["round"], second["figures"]) == (0, {"train/mean": 0.5, "train/worst_0.1": 1.0})
    assert (ended["state"], ended["figures"]) == ("finished", {"final/rcvar": 0.25})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


TRACK_AND_READ_MLFLOW = """
import json, sys, warnings
warnings.simplefilter("ignore")
from tests.tracking.test_trackers import track
for uri in sys.argv[1:]:
    failed = [one.fault for _ in range(2) for one in track(f"mlflow:{uri}")]
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=uri)
    found = []
    for experiment in client.search_experiments(filter_string="name = 'heart'"):
        for run in client.search_runs([experiment.experiment_id]):
            metrics = {
                name: [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
            found.append([run.info.status, run.data.params, run.data.tags, metrics])
    print(json.dumps([failed, found]))
"""


@pytest.mark.slow
def test_mlflow_holds_figures_by_round_and_a_restart_continues_its_run(tmp_path: Path) -> None:
    stores = [f"sqlite:///{tmp_path}/runs.sqlite", f"file:{tmp_path}/store"]
    # In a process of its own: a library may set and warn there what it wants.
    ran = subprocess.run(
        [sys.executable, "-c", TRACK_AND_READ_MLFLOW, *stores],
        capture_output=True, text=True, check=True, timeout=PATIENCE, env={"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    told = ran.stdout.splitlines()
    assert len(told) == len(stores)
    for failed, ((status, params, tags, metrics),) in map(json.loads, told):
        assert failed == []
        assert (status, params["algorithm"]) == ("FINISHED", "fedsrcvar")
        assert (tags["fedfair.run_id"], tags["fedfair.last_notice"]) == (RUN.run_id, "round 7 is lost")
        assert min(map(tuple, metrics["train/mean"])) == (0, 0.75)
        assert {tuple(one) for one in metrics["train/worst_0.1"]} == {(0, 1.5), (10, 1.0)}
        assert {tuple(one) for one in metrics["final/rcvar"]} == {(20, 0.25)}


def test_tensorboard_reads_the_figures_back_and_tells_a_full_disk_once(tmp_path: Path) -> None:
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); sys.path.insert(0, sys.argv[3])\n"
        "from tests.tracking.test_trackers import failed_on_a_full_disk, track\n"
        "from pathlib import Path\n"
        "print(track(f'tensorboard:{sys.argv[1]}'))\n"
        "print(failed_on_a_full_disk(f'tensorboard:{sys.argv[2]}'))\n"
        "(sys.argv[1],) = map(str, Path(sys.argv[1]).iterdir())\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "read = EventAccumulator(sys.argv[1]); read.Reload()\n"
        "print([[one.step, one.value] for one in read.Scalars('train/mean')])\n"
        "print([[one.step, one.value] for one in read.Scalars('final/rcvar')])\n"
        "print(read.Tensors('notices')[0].tensor_proto.string_val[0].decode())\n"
        "print(read.Tensors('plan')[0].tensor_proto.string_val[0].decode())"
    )
    places = [str(tmp_path / "runs"), str(tmp_path / "full")]
    command = [sys.executable, "-c", code, *places, str(REPOSITORY)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["heart-aggregator-01234567"]
    failed, full, mean, final, notice, *plan = ran.stdout.splitlines()
    assert (failed, full) == ("[]", f"{[TOO_LARGE]}")
    assert (json.loads(mean), json.loads(final)) == ([[0, 0.75], [10, 0.5]], [[20, 0.25]])
    assert notice == "warning attempt_lost: round 7 is lost"
    assert "| algorithm | fedsrcvar |" in plan


FULL = 600
"""Bytes after which the disk is full: in the middle of the second line."""


TOO_LARGE = "[Errno 27] File too large"


def failed_on_a_full_disk(word: str) -> list[str]:
    """Return every fault that is told while many events find no room."""
    with full_beyond(FULL):
        trackers = Trackers(track_targets([word]), RUN)
        for _ in range(50):
            trackers.event(LOST)
        trackers.finish(DONE, PATIENCE)
    return [failure.fault for failure in trackers.take_failures() + trackers.take_failures()]


def test_a_full_disk_is_told_once_and_the_run_goes_on(tmp_path: Path) -> None:
    assert failed_on_a_full_disk(f"jsonl:{tmp_path}/run.jsonl") == [TOO_LARGE]


class Store:
    """A store that a test opens and shuts."""

    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.calls: list[str] = []
        self.entered, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def _take(self, what: str) -> None:
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        if self.fault is not None:
            raise self.fault
        self.calls.append(what)

    def begin(self, run: TrackedRun) -> None:
        self._take(f"begin {run.federation}")

    def event(self, when: datetime, event: LoggedEvent) -> None:
        del when
        self._take(event.name)

    def figures(self, when: datetime, number: int, figures: Figures) -> None:
        del when, figures
        self._take(f"round {number}")

    def end(self, when: datetime, end: TrackedEnd) -> None:
        del when
        self._take(end.state)


def background(store: Store) -> BackgroundTracker:
    return BackgroundTracker("store", lambda: store, first_pause_seconds=0.001)


def test_a_store_that_is_away_for_a_while_gets_everything_in_order_later() -> None:
    store = Store(ConnectionError("away"))
    tracker = background(store)
    tracker.put(lambda one: one.begin(RUN))
    tracker.put(lambda one: one.event(datetime.now(UTC), LOST))
    assert store.entered.wait(PATIENCE)
    while (failure := tracker.take_failure()) is None:
        pass
    assert failure == TrackerFailed("store", "away")
    store.fault = None
    while len(store.calls) < 2:
        pass
    tracker.finish(PATIENCE)
    assert store.calls == ["begin heart", "attempt_lost"]
    assert tracker.take_failure() is None


def test_a_store_that_never_answers_is_left_behind_and_that_is_told() -> None:
    store = Store()
    store.gate.clear()
    tracker = background(store)
    tracker.put(lambda one: one.begin(RUN))
    assert store.entered.wait(PATIENCE)
    tracker.finish(0.0)
    assert tracker.take_failure() == TrackerFailed("store", "1 entries were not written in time")
    store.gate.set()


def test_what_waits_for_a_store_is_bounded_and_the_run_is_still_begun_first() -> None:
    store = Store()
    store.gate.clear()
    tracker = background(store)
    tracker.put(lambda one: one.begin(RUN))
    assert store.entered.wait(PATIENCE)
    for number in range(MAX_WAITING + 5):
        tracker.put(lambda one, number=number: one.figures(datetime.now(UTC), number, {}))  # type: ignore[misc]
    store.gate.set()
    tracker.finish(PATIENCE)
    failure = tracker.take_failure()
    assert failure is not None
    assert failure.fault == f"more than {MAX_WAITING} entries wait, the oldest are forgotten"
    assert store.calls[:2] == ["begin heart", "round 6"]
    assert len(store.calls) == MAX_WAITING


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_a_library_ends_its_thread_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    tracker = background(Store(ZeroDivisionError("at http://me:secret@host/x")))
    tracker.put(lambda one: one.begin(RUN))
    tracker.finish(PATIENCE)
    assert tracker.take_failure() == TrackerFailed("store", "at http://host/x")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("word", ["mlflow", "csv:x", "jsonl:", ":x", ""])
def test_what_is_no_target_is_a_mistake_of_usage(word: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not mlflow:URI, tensorboard:DIR or jsonl:FILE"):
        track_targets([word])


def test_one_target_is_named_once() -> None:
    with pytest.raises(typer.BadParameter, match="named twice"):
        track_targets(["jsonl:a", "jsonl:a"])


@pytest.mark.parametrize("kind", [TrackerKind.MLFLOW, TrackerKind.TENSORBOARD])
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    kind: TrackerKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(targets_module.LIBRARY, kind, "no_such_library")
    with pytest.raises(DataError, match="no_such_library, which is not installed") as refused:
        track_targets([f"{kind.value}:x"])
    assert refused.value.remedy == install_command(kind.value)


def test_no_password_of_a_uri_is_told() -> None:
    target = TrackTarget(TrackerKind.MLFLOW, "https://me:secret@host:5000/x")
    assert target.shown == "mlflow:https://host:5000/x"
    assert "secret" not in TrackerFailed(target.shown, "away").sentence


def test_every_kind_has_a_tracker(tmp_path: Path) -> None:
    makes: Callable[[TrackTarget], object] = make_tracker
    assert {type(makes(TrackTarget(TrackerKind.JSONL, str(tmp_path / "x")))).__name__} == {"JsonlTracker"}
