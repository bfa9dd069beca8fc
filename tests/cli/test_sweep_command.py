"""`fedfair sweep` as people run it: the files it leaves, its exit status, and what a kill costs."""

import json
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import FedfairError, PlanError
from fedfair.plan.yaml_reader import parse_document
from fedfair.studies.sweep import local
from fedfair.studies.sweep.events import Event
from fedfair.studies.sweep.grid import ALIASES, Point, parse_grid, points_of
from tests.conftest import REPOSITORY
from tests.fork_server import ENVIRONMENT, Process, forked_workers, started
from tests.patience import PATIENCE
from tests.studies.sweep_kit import in_order

PLAN = """
federation: {name: demo, collaborators: [a, b]}
task:
  data: breast-cancer
  partition: {scheme: random}
  test_fraction: 0.2
  validation_fraction: 0.2
  standardize: secure
  model: {name: linear}
objective: {measure: loss}
training: {rounds: 20, batch_size: 32, device: cpu}
secure_aggregation: {mode: "off"}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def arguments(folder: Path, *words: str) -> list[str]:
    return ["sweep", "-p", str(folder / "plan.yaml"), "--output", str(folder / "sweep"), "--workers", "1", *words]


def timeless(path: Path) -> dict[str, object]:
    table: dict[str, object] = json.loads(path.read_text())
    for row in table["rows"]:  # type: ignore[attr-defined]
        del row["seconds"]
    return table


def test_a_sweep_leaves_its_table_and_fails_at_the_end_for_what_failed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def here(points: Sequence[Point], root: Path, workers: int) -> Iterator[Event]:
        asked.append((root, workers))
        return in_order(points, root)

    # The engine of processes has tests of its own.
    monkeypatch.setattr(local, "run_locally", here)
    words = arguments(workspace, "--grid", "learning_rate=0.1,1e300", "--grid", "seed=0,1", "--json")
    outcome = CliRunner().invoke(app, words)
    assert asked == [(workspace, 1)]
    assert isinstance(outcome.exception, FedfairError)
    assert "2 of 4 points failed" in outcome.exception.message
    assert "learning_rate=1e+300, seed=0" in outcome.exception.message
    printed = json.loads(outcome.stdout)
    assert printed == json.loads((workspace / "sweep" / "table.json").read_text())
    best, lost = printed["rows"]
    assert (best["settings"], best["finished"], best["selected"]) == ({"learning_rate": 0.1}, 2, True)
    assert best["test"]["mean"]["standard_error"] > 0
    assert (lost["finished"], lost["selected"], lost["validation"]) == (0, False, None)
    assert len(list((workspace / "sweep" / "points").iterdir())) == 2
    assert len(list((workspace / "sweep" / "failed").iterdir())) == 2
    assert "selected" in (workspace / "sweep" / "table.csv").read_text()


def test_a_grid_with_a_mistake_is_refused_before_anything_is_made(workspace: Path) -> None:
    outcome = CliRunner().invoke(app, arguments(workspace, "--grid", "tradeoff=7"))
    assert isinstance(outcome.exception, PlanError)
    assert not (workspace / "sweep").exists()
    seeds = CliRunner().invoke(app, arguments(workspace, "--grid", "seed=1,2", "--per", "seed"))
    assert isinstance(seeds.exception, PlanError)
    assert CliRunner().invoke(app, arguments(workspace)).exit_code == 2


def test_the_page_about_sweeps_names_every_short_word_and_its_commands_are_sweeps() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "sweep.md").read_text()
    words = re.search(r"one of these words:\n\n(.*?)\n\n", page, re.DOTALL)
    assert words is not None
    assert re.findall(r"`(\w+)`", words[1]) == list(ALIASES)
    (command,) = re.findall(r"^fedfair (sweep .*)$", page, re.MULTILINE)
    readme = re.search(r"over a grid \(`(.*?)`\)", (REPOSITORY / "README.md").read_text())
    assert readme is not None
    for words_of_a_grid, points in ((command, 12), (readme[1], 6)):
        items = [word for word in shlex.split(words_of_a_grid) if "=" in word]
        assert len(points_of(parse_document(PLAN, Path("plan.yaml")), parse_grid(items))) == points


GRID = ("--grid", "rounds=10,600,601")


@pytest.mark.slow
def test_a_sweep_killed_in_the_middle_goes_on_to_the_same_table(workspace: Path) -> None:
    killed, points = _start(workspace, *GRID), workspace / "sweep" / "points"
    _wait_until(lambda: any(points.glob("*.json")), killed)
    workers = psutil.Process(killed.pid).children(recursive=True)
    killed.kill()
    killed.communicate()
    # Nobody would hear what they find; were they to continue, a restart would have to share the machine with them.
    gone, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert alive == []
    assert gone
    finished = len(list(points.glob("*.json")))
    assert 1 <= finished < 3
    again = _start(workspace, *GRID)
    errors, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, errors
    assert f"3 points, {finished} of them finished before" in errors
    (workspace / "sweep").rename(workspace / "interrupted")
    with forked_workers(workspace):
        whole = CliRunner().invoke(app, arguments(workspace, *GRID, "--quiet"))
    assert (whole.exit_code, whole.output) == (0, "")
    assert timeless(workspace / "interrupted" / "table.json") == timeless(workspace / "sweep" / "table.json")


@pytest.mark.slow
def test_a_sweep_that_is_stopped_says_how_to_go_on(workspace: Path) -> None:
    process, points = _start(workspace, "--grid", "rounds=10,1000000000"), workspace / "sweep" / "points"
    _wait_until(lambda: any(points.glob("*.json")), process)
    workers = psutil.Process(process.pid).children(recursive=True)
    # A terminal sends Ctrl-C to the workers too.
    for one in (process, *workers):
        one.send_signal(signal.SIGINT)
    errors, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "1 of 2 points are finished; the same command runs the rest" in errors
    assert "Traceback" not in errors
    assert psutil.wait_procs(workers, timeout=PATIENCE)[1] == []


def _start(folder: Path, *words: str) -> Process:
    return started(["-m", "fedfair.cli", *arguments(folder, *words)], folder, ENVIRONMENT)


def _wait_until(there: Callable[[], bool], process: Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
