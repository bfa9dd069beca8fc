"""A fork ends as the same program does that Python itself starts: its status, its last words, and their order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import ENVIRONMENT, played, stand_in
from tests.patience import PATIENCE

PROGRAMS = {
    "returns": "print('done')",
    "a number": "import sys; sys.exit(300)",
    "words": "import sys; sys.exit('why')",
    "a fault": "raise ValueError('why')",
    "Ctrl-C": "raise KeyboardInterrupt",
    "functions of the end": "import atexit; atexit.register(print, 'last'); atexit.register(print, 'first')",
    "a fault at the end": "import atexit; atexit.register(int, 'x')",
    "a thread": "import threading; threading.Timer(0.2, print, ['late']).start(); print('early')",
    "a thread of no weight": "import threading; threading.Thread(target=input, daemon=True); print('early')",
    "nobody awaits": "async def never(): pass\nkept = [never()]; kept.append(kept)\ndel kept",
    "a closed stream": "import sys; sys.stdout.close()",
    "a file": "kept = open('file', 'w'); kept.write('words'); kept.flush()",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_fork_ends_as_python_does(tmp_path: Path, program: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(program)
    python = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=ENVIRONMENT, text=True, check=False, timeout=PATIENCE,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    fork = played([str(script)], tmp_path)
    assert fork.returncode == python.returncode
    assert _words(fork.stdout) == _words(python.stdout)


def _words(output: str) -> list[str]:
    """Return the lines of an output, but for the frames of a fault and the place of a warning."""
    lines = (line for line in output.splitlines() if not line.startswith((" ", "Traceback")))
    return [re.sub(r"^\S+:\d+: ", "", line) for line in lines]


def test_a_file_of_any_number_is_open_in_the_fork_of_a_command(tmp_path: Path) -> None:
    # Some of these are numbers of sockets of the server, which are closed in a fork.
    code = "import os, sys; os.write(int(sys.argv[1]), b'here')"
    for number in map(str, range(3, 10)):
        command = ["sh", "-c", f'exec "$@" {number}>&1', "sh", stand_in(tmp_path), "-c", code, number]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE)
        assert (done.returncode, done.stdout) == (0, "here"), number
