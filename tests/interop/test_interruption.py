"""Ctrl-C and SIGTERM before there is anything to leave in order: no trace, no temporary file, no process."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.fork_server import ENVIRONMENT, Process, started
from tests.patience import PATIENCE
from tests.plans import small_plan

AGAIN_SECONDS = 2
STOPPED_BY_SIGNAL = 130

INTERRUPTED_IMPORT = """
import runpy, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("program", ["fedfair.cli", "aggregator", "collaborator"])
def test_an_interrupt_while_the_program_loads_shows_no_traceback(program: str) -> None:
    words = [sys.executable, "-c", INTERRUPTED_IMPORT, program]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (STOPPED_BY_SIGNAL, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_aggregator_that_is_stopped_while_it_prepares_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    workspace, temporary = prepare(tmp_path / "heart", small_plan(rounds=1)), tmp_path / "tmp"
    temporary.mkdir()
    plan = workspace.plan
    plan.unlink()
    os.mkfifo(plan)
    variables = {**ENVIRONMENT, "TMPDIR": str(temporary)}
    process = started(("-m", "aggregator", "start", "--quiet"), workspace.folder, variables)
    writer = None
    try:
        # A pipe is opened for writing without a wait as soon as somebody reads it, and then has to wait for us.
        while (writer := _opened(plan)) is None:
            assert process.poll() is None
            time.sleep(0.01)
        output = _output_once_ended_by(process, number)
    finally:
        process.kill()
        process.wait()
        if writer is not None:
            os.close(writer)
    # A service that is asked to stop and stops is no failure.
    assert process.returncode == (STOPPED_BY_SIGNAL if number == signal.SIGINT else 4)
    assert "Traceback" not in output
    assert list(temporary.iterdir()) == []
    assert not (workspace.folder / "save").exists()


def _output_once_ended_by(process: Process, number: signal.Signals) -> str:
    """Send a signal until it is taken; return the output.

    Python looks for signals, then reads. One that comes between the two wakes nobody, and a read of this pipe
    never ends by itself, unlike one of a file. Who presses Ctrl-C and sees nothing presses it again.
    """
    for _ in range(int(PATIENCE / AGAIN_SECONDS)):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(AGAIN_SECONDS)
            return process.communicate(timeout=PATIENCE)[0] or ""
    raise AssertionError(f"{number.name} does not end the process")


def _opened(pipe: Path) -> int | None:
    """Return a pipe that somebody reads, open for writing; None where nobody reads it yet."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None
