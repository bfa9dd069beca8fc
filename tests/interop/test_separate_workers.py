"""A site whose computing process is started elsewhere by a template, queued, killed: the run notices nothing."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from collaborator.computing.apart import SeparateComputation
from fedfair.aggregation.model_file import load
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.simulation.simulate import simulate
from fedfair.wire.receiving import ForWorker, ReceivedRequest
from tests.interop.federation_kit import Federation, WatchedWorker, play
from tests.plans import small_plan

STARTER = """#!/bin/sh
# As a queue does: it notes the request, waits for its turn, and starts the command elsewhere, with little of the
# environment.
echo asked >> {folder}/asked
while [ ! -e {folder}/turn ]; do sleep 0.02; done
cd /
exec env -i HOME=/nowhere PATH="$PATH" OMP_NUM_THREADS=1 "$@"
"""


def queued(folder: Path) -> Path:
    """Return a program that stands for srun."""
    folder.mkdir()
    program = folder / "run-elsewhere"
    program.write_text(STARTER.format(folder=folder))
    program.chmod(0o755)
    return program


def elsewhere(workspace: Workspace, name: str, starter: Path, over: str) -> None:
    file = workspace.folder / f"{name}.yaml"
    worker = {"process": True, "launch": f"{starter} {{command}}", "over": over}
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"worker": worker}))


def killed(computation: SeparateComputation) -> None:
    """Kill the process that computes, as a system without memory does."""
    running = computation._process._running
    assert running is not None
    for process in psutil.Process(running._process.pid).children(recursive=True) or [  # type: ignore[attr-defined]
        psutil.Process(running._process.pid)  # type: ignore[attr-defined]
    ]:
        os.kill(process.pid, signal.SIGKILL)


def killing(federation: Federation, name: str, rounds: list[int]) -> Callable[[object], WatchedWorker]:
    """Return what kills a site's computing process before it answers in some rounds."""
    left = list(rounds)

    async def before(said: ForWorker) -> None:
        if (
            isinstance(said, ReceivedRequest)
            and said.start.round in left
            and said.start.purpose.statistic.is_round
        ):
            left.remove(said.start.round)
            computation = federation.sites[name].computation
            assert isinstance(computation, SeparateComputation)
            killed(computation)

    return lambda worker: WatchedWorker(worker, before)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("over", ["tcp", "folder"])
def test_a_run_does_not_notice_a_process_that_was_queued_and_killed_elsewhere(over: str, tmp_path: Path) -> None:
    starter = queued(tmp_path / "queue")
    workspace = prepare(tmp_path / "federation", small_plan(rounds=3))
    expected = simulate(load_plan(workspace.plan), workspace.folder).model.vector
    elsewhere(workspace, "clinic-a", starter, over)

    async def scenario(federation: Federation) -> None:
        (tmp_path / "queue" / "turn").touch()
        around = killing(federation, "clinic-a", [2])
        await asyncio.gather(
            federation.take_part("clinic-a", around=around),
            *(federation.take_part(name) for name in ("clinic-b", "clinic-c")),
        )

    play(workspace, scenario)
    _, found, _ = load(workspace.folder / "save" / "last.safetensors")
    # Sums are added as they arrive, which moves the last bits.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    # One start before the run, and one after the kill in round 2; nothing is left of either.
    assert (tmp_path / "queue" / "asked").read_text().splitlines() == ["asked", "asked"]
    assert list((workspace.folder / "state" / "worker" / "clinic-a").iterdir()) == []
