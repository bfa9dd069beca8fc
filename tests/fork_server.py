"""Starts real processes that have already imported the product: each is a fork of one that did it once.

Such a process has its own process number, working directory, environment, arguments, signals and exit status, and
begins at the program's first line. What it cannot show is how a program loads: tests of that start Python itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from tests.imports import REPOSITORY

PRELOADED: Final = ("fedfair", "aggregator", "collaborator")
"""Every module of these packages is imported, as far as this installation has what the module needs."""

ENVIRONMENT: Final = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
"""Of the processes that tests start."""

_READ_AT_START: Final = ("LD_", "PYTHON", "OMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GRPC_", "TORCH_")
"""Prefixes of variables that an interpreter or a library reads when it is loaded: a fork would not notice them."""

_LENGTH: Final = 8


class Forked:
    """A running process with the methods of a `subprocess.Popen` of texts; standard error goes to its output."""

    def __init__(self, args: Sequence[str], pid: int, ends: socket.socket, stdout: TextIO) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: TextIO | None = None
        self.stdout: TextIO | None = stdout
        self._ends = ends

    def poll(self) -> int | None:
        """Return the exit status, below 0 for a signal; None while it runs."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raises TimeoutExpired after `timeout` seconds."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return status

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Read everything up to the end, and wait for it; raises TimeoutExpired after `timeout` seconds."""
        read: list[str] = []
        if self.stdout is not None and not self.stdout.closed:
            # A thread: what the process has forked may hold its output open for ever.
            reader = threading.Thread(
                target=lambda pipe: read.append(pipe.read()), args=[self.stdout], daemon=True
            )
            reader.start()
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            self.stdout.close()
        self.wait(timeout)
        return "".join(read), None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._ends.settimeout(timeout)
            try:
                message = self._ends.recv(_LENGTH)
            except (BlockingIOError, TimeoutError):
                return None
            if not message:
                raise ConnectionError("the fork server has ended before its process")
            self.returncode = int(message)
            self._ends.close()
        return self.returncode


def _read_into(read: list[str], pipe: TextIO) -> None:
    read.append(pipe.read())


Process = subprocess.Popen[str] | Forked


def started(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Process:
    """Start Python with these words: a fork where it would notice everything, otherwise a new interpreter.

    Args:
        words: `-m`, a module and its arguments; or a script and its arguments.
        folder: the working directory.
        environment: of the process.
    """
    if words[0] == "-c" or _read_at_start(environment) != _read_at_start(_server().environment):
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    return _server().fork(words, folder, environment)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


class _Server:
    """The other side of `_serve`, in the process that tests."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._requests, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with served:
            # It ends as soon as this process does.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(served.fileno())],
                cwd=REPOSITORY,
                env=self.environment,
                pass_fds=[served.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def end(self) -> None:
        """End the server, and everything that it has forked."""
        self._requests.close()
        self._process.wait()

    def fork(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Forked:
        """Ask for a process, and return as soon as it exists."""
        request = _Request(list(words), str(folder), dict(environment))
        ends, told = socket.socketpair()
        reading, writing = os.pipe()
        message = json.dumps(request._asdict()).encode()
        with told:
            socket.send_fds(self._requests, [len(message).to_bytes(_LENGTH)], [writing, told.fileno()])
        os.close(writing)
        self._requests.sendall(message)
        pid = int.from_bytes(_exactly(ends, _LENGTH))
        return Forked([sys.executable, *words], pid, ends, os.fdopen(reading, encoding="utf-8"))


class _Request(NamedTuple):
    """A process that is asked for."""

    words: list[str]
    folder: str
    environment: dict[str, str]


@functools.cache
def _server() -> _Server:
    server = _Server(ENVIRONMENT)
    atexit.register(server.end)
    return server


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise ConnectionError("the other side has ended")
        found += more
    return found


def _serve(requests: socket.socket) -> _Request:
    """Fork a process for each request, and tell how each ends; return in each of them, with what it was asked for.

    The server itself ends, with everything that it has forked, as soon as nobody can ask any more.
    """
    running: dict[int, socket.socket] = {}
    woken, waking = socket.socketpair()
    for end in (woken, waking):
        end.setblocking(False)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # A terminal sends Ctrl-C to the tests and to this process alike; the tests decide what it means.
    signal.signal(signal.SIGINT, lambda *_: None)
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                while woken.recv(1 << 12):
                    pass
            _reap(running)
        if requests not in ready:
            continue
        head, files, _, _ = socket.recv_fds(requests, _LENGTH, 2)
        if not head:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        head += _exactly(requests, _LENGTH - len(head)) if len(head) < _LENGTH else b""
        request = _Request(**json.loads(_exactly(requests, int.from_bytes(head))))
        output, ends = files[0], socket.socket(fileno=files[1])
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for other in (requests, woken, waking, ends, *running.values()):
                other.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            return request
        os.close(output)
        running[pid] = ends
        ends.sendall(pid.to_bytes(_LENGTH))


def _reap(running: dict[int, socket.socket]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with running.pop(pid) as ends, contextlib.suppress(BrokenPipeError):
                ends.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: _Request) -> None:
    """Run a request's program in this process, which then ends as that program does."""
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        stream = os.fdopen(number, "w", encoding="utf-8", errors=errors, closefd=False)
        stream.reconfigure(line_buffering=True, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if request.words[0] == "-m":
        sys.argv = request.words[1:]
        sys.path[0] = request.folder
        runpy.run_module(request.words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = request.words
        sys.path[0] = str(Path(request.words[0]).parent)
        runpy.run_path(request.words[0], run_name="__main__")


def _preload() -> None:
    for package in PRELOADED:
        for module in pkgutil.walk_packages([str(REPOSITORY / package)], f"{package}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # an optional library that is not installed here
                    importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _preload()
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
