"""Plays one program in children of a process, each time to another instant or with other words."""

import json
import subprocess
import sys
from collections.abc import Sequence

from tests.patience import PATIENCE

FORKED = """
import mmap, os, sys, tempfile

reached = mmap.mmap(-1, 1)  # shared with the children

def play(wanted, *arguments):
    '''Fork, and return what became of the child; the child gets None, and these words as its command line.'''
    reached[0] = 0
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
            sys.argv[1:] = arguments
            return None
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return wanted, status, output.read().decode()
"""
"""Defines `play`, and `reached`, whose first byte a child sets when it has come to the instant that is wanted."""

_EACH = """
import json, typer
import fedfair.process.launch, fedfair.process.stopping, fedfair.process.terminal

program, *cases = json.loads(sys.argv.pop())
endings = []
for words in cases:
    ending = play(0, *words)
    if ending is None:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        sys.exit()
    endings.append(ending[1:])
print(json.dumps(endings))
"""


def endings(program: str, cases: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Return the exit status of a program and all that it prints, for each command line in a fork."""
    command = [sys.executable, "-c", FORKED + _EACH, json.dumps([program, *cases])]
    played = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE)
    return [(status, told) for status, told in json.loads(played.stdout)]
