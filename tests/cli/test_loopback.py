"""The processes of a demonstration: none is left behind, whenever it is interrupted."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from fedfair.cli.loopback import Processes, Workspace, prepare
from fedfair.errors import AbortedError
from tests.fork_server import stand_in
from tests.plans import small_plan


class InterruptedNames(Sequence[str]):
    """Collaborators' names of which the second arrives with a Ctrl-C."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: object) -> NoReturn:
        raise AssertionError(place)

    def __iter__(self) -> Iterator[str]:
        yield "clinic-a"
        raise KeyboardInterrupt


def test_an_interrupt_between_two_starts_leaves_no_process(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, InterruptedNames())  # type: ignore[arg-type]  # any names will do
    processes = Processes(workspace)
    with pytest.raises(KeyboardInterrupt), processes:
        pytest.fail("nothing was interrupted")
    started = [
        psutil.pid_exists(process.pid) and process.poll() is None for process in processes._running.values()
    ]
    assert started == [False, False]


def test_an_interrupt_in_the_middle_of_a_start_leaves_no_process(tmp_path: Path) -> None:
    this = psutil.Process()
    before = set(this.children())
    started: list[psutil.Process] = []
    interrupted = threading.Event()

    def interrupt_at_the_first_child() -> None:
        while not started:
            started.extend(set(this.children()) - before)
        os.kill(os.getpid(), signal.SIGINT)
        interrupted.set()

    watcher = threading.Thread(target=interrupt_at_the_first_child)
    watcher.start()
    with pytest.raises(KeyboardInterrupt), Processes(Workspace(tmp_path, ("clinic-a", "clinic-b"))):
        interrupted.wait()
    watcher.join()
    assert [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []


def test_a_process_that_ends_with_an_error_is_told_at_once_with_its_last_words(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, ())
    with Processes(workspace) as processes, pytest.raises(AbortedError) as told:
        list(processes.progress())
    assert told.value.message.startswith("aggregator ended with status 2: ")
    assert "plan.yaml" in told.value.message


@pytest.mark.slow
def test_the_sums_of_a_run_are_told_as_they_are_taken_and_no_log_is_read_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=6))
    monkeypatch.setattr(sys, "executable", str(stand_in(tmp_path)))
    with Processes(workspace) as processes:
        told = processes.progress()
        found = [next(told)]
        # The reader of the pipe does not need the log, which may be gone by now.
        workspace.metrics.unlink()
        found += told
        processes.wait()
    assert [line["purpose"] for line in found[:3]] == ["standardisation", "evaluation", "training"]
    assert [line["round"] for line in found if line["purpose"] == "training"] == [1, 2, 3, 4, 5, 6]
    evaluated = [line["train"] for line in found if line["purpose"] == "evaluation"]
    assert len(evaluated) == 3
    assert all(isinstance(train, dict) and 0 < train["mean"] <= train["worst"] for train in evaluated)
