"""A terminal that closes ends no service."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedfair.process.hangup import terminal_outlived
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

SERVICE = """
import signal, sys, time, traceback
from pathlib import Path
from fedfair.process.stopping import as_service

# Tests that run under nohup inherit that it is ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

@as_service("this program")
def serve():
    gone = []
    signals = signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, lambda *about: (signals(*about), gone.append("gone")))
    print("serving", flush=True)
    while not gone:
        time.sleep(0.05)
    print("on standard output", flush=True)
    print("on standard error", file=sys.stderr, flush=True)
    Path("alive").write_text("still")

try:
    serve()
except BaseException:
    # Nobody reads the terminal any more.
    Path("fault").write_text(traceback.format_exc())
    raise
"""


def test_a_service_whose_terminal_closes_goes_on_and_may_still_write(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{SERVICE}"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, start_new_session=True,
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    # The terminal may show the word before the end of its line, whose write would still fail after a hang-up.
    while b"serving\r\n" not in said:
        said += os.read(ours, 1024)
    os.close(ours)
    status, fault = running.wait(timeout=PATIENCE), tmp_path / "fault"
    assert status == 0, fault.read_text() if fault.exists() else status
    assert (tmp_path / "alive").read_text() == "still"


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_was_set_for_the_signal_before_is_set_again_and_ignoring_it_stays(before: signal.Handlers) -> None:
    kept = signal.signal(signal.SIGHUP, before)
    try:
        with terminal_outlived():
            assert (signal.getsignal(signal.SIGHUP) == signal.SIG_IGN) == (before == signal.SIG_IGN)
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, kept)
