"""SIGTERM at any instant of a service that starts: it shuts down cleanly, or as the system ends a process."""

import json
import subprocess
import sys
from signal import SIGTERM

import pytest

from tests.patience import PATIENCE
from tests.process.forked_instants import FORKED, endings

STEP = 113
"""One of so many instants is tried. An instant is the begin of a line in what reads a command line and ends it."""

PLAYED = """
import json, os, signal, sys
import typer
from fedfair.process.launch import launch
from fedfair.process.stopping import as_service
from fedfair.process.terminal import console

step = int(sys.argv[1])
app = typer.Typer()
wanted = seen = 0

def trace(frame, event, argument):
    global seen
    if not any(part in frame.f_code.co_filename for part in ("/fedfair/", "/typer/", "contextlib", "<string>")):
        return None
    if event == "line" and not reached[0]:
        seen += 1
        if seen == wanted:
            reached[0] = 1
            os.kill(os.getpid(), signal.SIGTERM)
    return trace

@app.command()
@as_service("the work")
def serve(rounds: int = 3) -> None:
    console.print(f"{rounds} rounds")

@app.command()
def look() -> None:
    pass

endings = []
while True:
    wanted += step
    ending = play(wanted, "serve")
    if ending is None:
        sys.settrace(trace)
        launch(lambda: app)
    endings.append(ending)
    if not reached[0]:
        break
print(json.dumps(endings))
"""

DONE = "3 rounds\n"
STOPPED = "the work was stopped by its operator (SIGTERM)\n"


@pytest.mark.slow
def test_sigterm_at_any_instant_of_a_service_is_no_failure() -> None:
    command = [sys.executable, "-c", FORKED + PLAYED, str(STEP)]
    played = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    endings = [(status, words) for _, status, words in json.loads(played.stdout)]
    # By the system before the command line is read; cleanly from then on, whether it had begun or not.
    assert set(endings) <= {(-SIGTERM, ""), (4, STOPPED), (0, DONE + STOPPED), (0, DONE)}
    assert {(4, STOPPED), (0, DONE)} <= set(endings)


OTHER = """
import os, signal, sys, typer
from fedfair.process.terminal import run_app

app = typer.Typer()

def arrived(value: str) -> str:
    os.kill(os.getpid(), signal.Signals[value])
    return value

@app.command()
def work(name: str = typer.Argument(callback=arrived)) -> None:
    print("nobody stopped it")

run_app(app)
"""


def test_a_signal_that_comes_before_a_command_has_begun_interrupts_it() -> None:
    assert endings(OTHER, [["SIGTERM"], ["SIGINT"]]) == [(130, ""), (130, "")]
