"""The engines with their real processes; what they run is small, what they cost is a start of Python and torch."""

import contextlib
import json
import os
import subprocess
import textwrap
from pathlib import Path

import psutil
import pytest

from fedfair.results.document import ResultDocument, to_json
from fedfair.studies.sweep.events import Event, Failure
from fedfair.studies.sweep.grid import Point
from fedfair.studies.sweep.local import run_locally
from tests.conftest import REPOSITORY
from tests.fork_server import forked_workers, stand_in
from tests.patience import PATIENCE
from tests.studies.sweep_kit import grid, in_order, untimed


def results(events: list[Event]) -> dict[str, object]:
    return {
        event.point.id: untimed(to_json(event.said)) for event in events if isinstance(event.said, ResultDocument)
    }


def serial(points: tuple[Point, ...]) -> dict[str, object]:
    return results(list(in_order(points)))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_processes_give_the_bits_of_one_thread_of_this_process(workers: int, tmp_path: Path) -> None:
    points = grid("learning_rate=0.1,0.2,1e300", "seed=0,1")
    # One worker is an interpreter of its own; several are forks.
    with forked_workers(tmp_path) if workers > 1 else contextlib.nullcontext():
        events = [event for event in run_locally(points, Path(), workers=workers) if event.ends]
    assert sorted(event.point.id for event in events) == sorted(point.id for point in points)
    assert {event.point.settings["learning_rate"] for event in events if isinstance(event.said, Failure)} == {
        1e300
    }
    assert results(events) == serial(points)


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_its_point_and_is_replaced() -> None:
    # The first point would take hours; the one worker is killed in the middle of it.
    points = (*grid("rounds=1000000000"), *grid("rounds=3"))
    events: list[Event] = []
    for event in run_locally(points, Path(), workers=1):
        if event.ends:
            events.append(event)
        elif event.point is points[0]:
            for child in _workers():
                child.kill()
    lost, finished = events
    assert isinstance(lost.said, Failure)
    assert lost.point is points[0]
    assert "SIGKILL" in lost.said.message
    assert results([finished]) == serial(points[1:])


def _workers() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.slow
def test_a_local_ray_gives_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip(
        "ray", reason="the extra ray is not installed: pip install --require-hashes --no-deps -r constraints.txt"
    )
    # In a process of its own: Ray leaves threads and warnings behind.
    script = """
        import json, os, sys
        from pathlib import Path
        from fedfair.studies.sweep.cluster import run_on_ray
        from fedfair.results.document import ResultDocument, to_json
        from tests.studies.sweep_kit import grid
        os.environ.pop("RAY_ADDRESS", None)
        points = grid("learning_rate=0.1,0.2,1e300")
        events = list(run_on_ray(points, Path(), workers=2))
        done = {event.point.id: to_json(event.said) for event in events if isinstance(event.said, ResultDocument)}
        json.dump({"count": len(events), "done": done}, open(sys.argv[1], "w"))
    """
    out = tmp_path / "out.json"
    command = [str(stand_in(tmp_path)), "-c", textwrap.dedent(script), str(out)]
    child = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    found = json.loads(out.read_text())
    points = grid("learning_rate=0.1,0.2,1e300")
    assert found["count"] == 3
    assert untimed(found["done"]) == serial(points)
