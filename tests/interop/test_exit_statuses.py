"""The exit status of real processes: stopped by a signal, refused, aborted, done."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.conftest import REPOSITORY
from tests.fork_server import ENVIRONMENT
from tests.interop.federation_kit import NAMES
from tests.interop.processes import Started, ended, until_line
from tests.plans import small_plan

SIGNALS = [(signal.SIGTERM, 4), (signal.SIGINT, 130)]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "expected"), SIGNALS)
def test_both_services_that_are_stopped_in_the_middle_of_a_run_end_as_their_signal_says(
    tmp_path: Path, started: Started, number: signal.Signals, expected: int
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=1_000_000))
    aggregator = started.aggregator()
    sites = [started.collaborator(name) for name in NAMES]
    until_line(aggregator, "round 5 of")
    # Twice, as `timeout` and a terminal do: one request.
    for process in (sites[0], aggregator):
        for _ in range(2):
            process.send_signal(number)
        status, words = ended(process)
        assert status == expected, words
        assert "start it again" in words
        assert "error:" not in words
        assert "Traceback" not in words
    for process in sites[1:]:
        # They wait for an aggregator that does not come back.
        until_line(process, "trying again")
        process.send_signal(number)
        assert ended(process)[0] == expected


@pytest.mark.slow
def test_an_evaluation_that_is_stopped_does_not_speak_of_rounds_that_go_on(
    tmp_path: Path, started: Started
) -> None:
    plan = small_plan(rounds=1)
    plan["task"] = {"data": "breast-cancer", "partition": {"scheme": "random"}, "model": {"name": "linear"}}
    started.workspace = prepare(tmp_path, plan)
    for command, words in (("start", ()), ("evaluate", ("--model", "save/init.safetensors"))):
        aggregator = started.aggregator(*words, command=command)
        aggregator.send_signal(signal.SIGTERM)
        status, output = ended(aggregator)
        assert status == 4, output
    assert "the evaluation was stopped: " in output
    assert "start it again: it evaluates the model from the beginning" in output
    assert "continues after" not in output


@pytest.mark.slow
def test_a_run_that_is_aborted_ends_with_a_status_of_its_own_on_both_sides(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=1, federation={"join_deadline_seconds": 1}))
    aborted = started.command("aggregator", "start", "--listen", "localhost:0")
    assert aborted.returncode == 3
    assert "error: the run was aborted: " in aborted.stdout
    alone = ("collaborator", "start", "-n", "clinic-a", "-c", "clinic-a.yaml", "--give-up-after", "0")
    gave_up = started.command(*alone, "-a", "localhost:1")
    assert gave_up.returncode == 3
    assert "gave up after" in gave_up.stdout


@pytest.mark.slow
def test_what_is_refused_ends_with_the_status_of_wrong_usage(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=1))
    (tmp_path / "approvals" / "clinic-a.json").unlink()
    words = ("-n", "clinic-a", "-c", "clinic-a.yaml")
    assert started.command("collaborator", "start", *words).returncode == 2
    assert started.command("collaborator", "check", *words).returncode == 2
    assert started.command("aggregator", "start", "--no-such-option").returncode == 2
    (tmp_path / "save").mkdir(exist_ok=True)
    (tmp_path / "save" / "journal.sqlite").write_bytes(b"no journal")
    damaged = started.command("aggregator", "start")
    assert (damaged.returncode, "save/journal.sqlite cannot be used" in damaged.stdout) == (2, True)
    plan = started.workspace.plan
    plan.write_text(plan.read_text(encoding="utf-8") + "nonsense: 1\n", encoding="utf-8")
    for command in (("aggregator", "start"), ("fedfair.cli", "plan", "check"), ("fedfair.cli", "simulate")):
        refused = started.command(*command)
        assert refused.returncode == 2
        assert "nonsense: unknown key" in refused.stdout


COMMAND = """
import signal, typer
from fedfair.process.terminal import run_app

def work() -> None:
    print("working", flush=True)
    signal.pause()

app = typer.Typer()
app.command()(work)
run_app(app)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_no_service_has_not_done_its_work_when_it_is_interrupted(
    started: Started, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": str(REPOSITORY)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    started.running.append(process)
    until_line(process, "working")
    process.send_signal(number)
    assert ended(process) == (130, "")
