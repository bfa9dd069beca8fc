"""A second signal, at any instant after the first: no traceback, and the status that the first one gives."""

import itertools
import json
import subprocess
import sys
from signal import SIGINT, SIGTERM

from tests.patience import PATIENCE
from tests.process.forked_instants import FORKED

STEPS = {"a service": 307, "a service that prepares": 59, "a command": 59}
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

app = typer.Typer()

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

found = []
for kind, first, second, step in json.loads(sys.argv[1]):
    wanted = seen = 0
    endings = []
    while not endings or reached[0]:
        wanted += step
        ending = play(wanted)
        if ending is None:
            if not wanted:
                stopping_module.last = Last()
            launch(lambda: app)
        endings.append(ending)
    found.append(endings)
print(json.dumps(found))
"""


LAST_WORDS = "the last words\n  -> start it again\n"
STOPPED = "the work was stopped by its operator (SIGTERM)\n"


CASES = [
    ("a service", SIGTERM, SIGTERM, 4, LAST_WORDS),
    ("a service", SIGTERM, SIGINT, 4, LAST_WORDS),
    ("a service that prepares", SIGTERM, SIGTERM, 4, STOPPED),
    ("a service that prepares", SIGINT, SIGTERM, 130, ""),
    ("a command", SIGINT, SIGINT, 130, ""),
]


def test_a_second_signal_at_any_instant_changes_nothing() -> None:
    played = [(*case[:3], step) for case in CASES for step in (STEPS[case[0]], AT_EXIT)]
    command = [sys.executable, "-c", FORKED + PLAYED, json.dumps(played)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    found = json.loads(done.stdout)
    for (kind, first, second, status, words), *endings in zip(CASES, found[::2], found[1::2], strict=True):
        assert len(endings[0]) > 1, kind
        for ending in itertools.chain(*endings):
            assert ending[1:] == [status, words], (kind, first, second)
