"""A second signal, at any instant after the first: no traceback, and the status that the first one gives."""

from __future__ import annotations

import json
import subprocess
import sys
from signal import Signals

import pytest

from tests.patience import PATIENCE
from tests.process.forked_instants import FORKED

STEP = 211
"""One of so many instants is tried. An instant is the begin of a line in what decides how a program ends."""

AT_EXIT = 0
"""Instead of a step: the one instant at which the interpreter takes itself apart."""

PLAYED = """
import asyncio, json, os, signal, sys
import typer
from rich.text import Text
from fedfair.errors import PlanError, StoppedError
from fedfair.process import stopping as stopping_module
from fedfair.process.launch import launch
from fedfair.process.stopping import service, stopping
from fedfair.process.terminal import console

kind, (first, second, step) = sys.argv[1], map(int, sys.argv[2:])
app = typer.Typer()
wanted = seen = 0

def trace(frame, event, argument):
    global seen
    if not any(part in frame.f_code.co_filename for part in ("/fedfair/", "/asyncio/", "/typer/", "contextlib")):
        return None
    if event == "line" and not reached[0]:
        seen += 1
        if seen == wanted:
            reached[0] = 1
            os.kill(os.getpid(), second)
    return trace

def ask():
    '''Send the first signal, and let instants be counted from here.'''
    frame = sys._getframe()
    while frame is not None:
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace if wanted else None)
    os.kill(os.getpid(), first)

async def serve():
    running, stopped_by = asyncio.current_task(), []

    def stop(name):
        stopped_by.append(name)
        running.cancel()

    try:
        with stopping(stop):
            ask()
            await asyncio.Event().wait()
    except asyncio.CancelledError as cancelled:
        raise StoppedError("the last words", "start it again", stopped_by[0]) from cancelled

@app.command()
def work():
    if kind == "a service":
        with service("the work"):
            asyncio.run(serve())
    elif kind == "a service that prepares":
        with service("the work"):
            ask()
            signal.pause()
    elif kind == "a command":
        ask()
        signal.pause()

class Last:
    def __del__(self):
        signal.raise_signal(second)

endings = []
while True:
    wanted += step
    ending = play(wanted)
    if ending is None:
        if not wanted:
            stopping_module.last = Last()
        launch(lambda: app)
    endings.append(ending)
    if not reached[0]:
        break
print(json.dumps(endings))
"""


LAST_WORDS = "the last words\n  -> start it again\n"
STOPPED = "the work was stopped by its operator (SIGTERM)\n"


@pytest.mark.parametrize("step", [STEP, AT_EXIT])
@pytest.mark.parametrize(
    ("kind", "first", "second", "status", "words"),
    [
        ("a service", "SIGTERM", "SIGTERM", 4, LAST_WORDS),
        ("a service", "SIGTERM", "SIGINT", 4, LAST_WORDS),
        ("a service that prepares", "SIGTERM", "SIGTERM", 4, STOPPED),
        ("a service that prepares", "SIGINT", "SIGTERM", 130, ""),
        ("a command", "SIGINT", "SIGINT", 130, ""),
    ],
)
def test_a_second_signal_at_any_instant_changes_nothing(
    kind: str, first: str, second: str, status: int, words: str, step: int
) -> None:
    numbers = [str(int(number)) for number in (Signals[first], Signals[second], step)]
    command = [sys.executable, "-c", FORKED + PLAYED, kind, *numbers]
    played = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    endings = json.loads(played.stdout)
    assert endings
    assert [ending for ending in endings if ending[1:] != [status, words]] == []
