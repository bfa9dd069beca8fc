"""A signal that arrives where Python can raise nothing still ends the program, without a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedfair.process.interrupts import send_until_taken
from tests.patience import PATIENCE

SECONDS = 120
PROGRAM = """
import signal, sys, threading, weakref
import typer
from fedfair.process.stopping import service
from fedfair.process.terminal import run_app

number = signal.Signals[sys.argv.pop(1)]
how = sys.argv.pop(1)

class Thing:
    def __del__(self):
        if how == "finaliser":
            raise_it()

def raise_it(*_):
    signal.raise_signal(number)
    for _ in range(1000):
        pass

app = typer.Typer()

@app.command()
def work() -> None:
    with service("the work"):
        thing = Thing()
        watched = weakref.ref(thing, raise_it) if how == "weak reference" else None
        del thing
        threading.Event().wait(float(sys.argv[1]))
        print("nobody stopped it")

@app.command()
def other() -> None:
    class Broken:
        def __del__(self):
            raise ValueError("this is a bug")
    Broken()

run_app(app, [how.split()[0] if how == "other" else "work"])
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *words, str(SECONDS)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("how", ["weak reference", "finaliser"])
def test_sigterm_where_nothing_can_be_raised_still_stops_a_service_in_order(how: str) -> None:
    ended = run("SIGTERM", how)
    assert (ended.returncode, ended.stdout, ended.stderr.strip()) == (
        4, "", "the work was stopped by its operator (SIGTERM)"
    )  # fmt: skip


@pytest.mark.parametrize("how", ["weak reference", "finaliser"])
def test_ctrl_c_where_nothing_can_be_raised_still_interrupts_a_command(how: str) -> None:
    ended = run("SIGINT", how)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert "Traceback" not in ended.stderr


def test_a_signal_that_the_sleeping_main_thread_did_not_take_is_sent_again() -> None:
    sent: list[str] = []
    send_until_taken(lambda: sent.append("SIGINT"), lambda: len(sent) > 2, every=0)
    assert sent == ["SIGINT"] * 3


SLEEPING = """
import signal, threading
from fedfair.process.interrupts import Interrupts, send_until_taken

# The first signal never reaches the sleep, as one that comes just before it.
interrupts = Interrupts()
signal.signal(signal.SIGINT, interrupts)
sleeping = threading.Event()
times = []

def send():
    sleeping.wait()
    times.append(1)
    if len(times) > 1:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

threading.Thread(target=send_until_taken, args=(send, interrupts.has_request), daemon=True).start()
try:
    sleeping.set()
    threading.Event().wait(120)
except KeyboardInterrupt:
    print("stopped", len(times) > 1)
"""


def test_a_signal_that_was_lost_before_the_sleep_ends_the_sleep_the_next_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLEEPING], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout == "stopped True\n"


IMPORTING = """
import signal, sys
import typer
from fedfair.errors import PlanError
from fedfair.process.launch import launch
from fedfair.process.stopping import as_service

number, how = signal.Signals[sys.argv.pop(1)], sys.argv.pop(1)

def initialise():
    try:
        signal.raise_signal(number)
        signal.pause()
    except KeyboardInterrupt as stop:
        raise ImportError("initialization failed") from stop

app = typer.Typer()

@app.command()
@as_service("the work")
def work() -> None:
    try:
        initialise()
    except ImportError as fault:
        if how == "wrapped":
            raise PlanError("the module of the plan cannot be loaded") from fault
        raise

@app.command()
def other() -> None:
    initialise()

def load() -> typer.Typer:
    if how == "load":
        initialise()
    return app

launch(load)
"""


@pytest.mark.parametrize(
    ("name", "how", "command", "status", "words"),
    [
        ("SIGTERM", "bare", "work", 4, "the work was stopped by its operator (SIGTERM)\n"),
        ("SIGTERM", "wrapped", "work", 4, "the work was stopped by its operator (SIGTERM)\n"),
        ("SIGTERM", "bare", "other", 130, ""),
        ("SIGINT", "bare", "work", 130, ""),
        ("SIGINT", "wrapped", "work", 130, ""),
        ("SIGINT", "bare", "other", 130, ""),
        ("SIGINT", "load", "other", 130, ""),
    ],
)
def test_a_signal_of_which_an_import_makes_a_fault_of_its_own_still_ends_the_program(
    name: str, how: str, command: str, status: int, words: str
) -> None:
    # So does a module in C that is interrupted while it is initialised, such as one of SciPy's.
    line = [sys.executable, "-c", IMPORTING, name, how, command]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", words)


def test_any_other_fault_that_cannot_be_raised_is_told_as_ever() -> None:
    ended = run("SIGINT", "other")
    assert ended.returncode == 0
    assert "ValueError: this is a bug" in ended.stderr
