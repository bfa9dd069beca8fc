"""A signal that arrives where Python can raise nothing still ends the program, without a traceback."""

import subprocess
import sys

from fedfair.process.interrupts import send_until_taken
from tests.patience import PATIENCE
from tests.process.forked_instants import endings

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


STOPPED = "the work was stopped by its operator (SIGTERM)\n"


def test_a_signal_where_nothing_can_be_raised_still_ends_a_program_and_other_faults_are_told_as_ever() -> None:
    ways = ("weak reference", "finaliser")
    cases = [*(("SIGTERM", how) for how in ways), *(("SIGINT", how) for how in ways), ("SIGINT", "other")]
    *ended, (status, told) = endings(PROGRAM, [[*case, str(SECONDS)] for case in cases])
    assert ended == [(4, STOPPED), (4, STOPPED), (130, ""), (130, "")]
    assert status == 0
    assert "ValueError: this is a bug" in told


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


def test_a_signal_of_which_an_import_makes_a_fault_of_its_own_still_ends_the_program() -> None:
    # So does a module in C that is interrupted while it is initialised, such as one of SciPy's.
    expected = {
        "SIGTERM bare work": (4, STOPPED),
        "SIGTERM wrapped work": (4, STOPPED),
        "SIGTERM bare other": (130, ""),
        "SIGINT bare work": (130, ""),
        "SIGINT wrapped work": (130, ""),
        "SIGINT bare other": (130, ""),
        "SIGINT load other": (130, ""),
    }
    ended = endings(IMPORTING, [words.split() for words in expected])
    assert dict(zip(expected, ended, strict=True)) == expected
