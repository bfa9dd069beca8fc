"""Starts real processes that have already imported the product: each is a fork of one that did it once.

Such a process has its own process number, working directory, environment, arguments, signals and exit status, and
begins at the program's first line. What it cannot show is how a program loads, and how Python takes the modules of
one apart after its end: tests of that start Python itself.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import multiprocessing.resource_tracker
import multiprocessing.spawn
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import pydantic

from tests.imports import REPOSITORY
from tests.patience import PATIENCE

PRELOADED: Final = ("fedfair", "aggregator", "collaborator")
"""Every module of these packages is imported, as far as this installation has what the module needs."""

ENVIRONMENT: Final = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
"""Of the processes that tests start."""

_READ_AT_START: Final = ("LD_", "PYTHON", "OMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GRPC_", "TORCH_")
"""Prefixes of variables that an interpreter or a library reads when it is loaded: a fork would not notice them."""

ALSO: Final = "FORKS_ALSO_IMPORT"
"""Names a module that a server of one's own imports beside them."""

_LENGTH: Final = 8
_MOST_FILES: Final = 250

_SHARED: Final = "FORKS_AT"
"""Names the place of the server that this process shares with others."""

_INTERPRETER: Final = "FORKED_INTERPRETER"
"""Names a stand-in for Python, by which a fork starts processes of its own."""


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


def forked(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Forked:
    """Start a fork, as `started` does, whatever of its variables only a new interpreter would notice."""
    return _server().fork(words, folder, environment)


def played(
    words: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these words to its end, as `started` does; what it says to its errors is in its output.

    Args:
        words: `-m`, a module and its arguments; or a script and its arguments.
        folder: the working directory.
        variables: of the environment, beside those of all such processes.
    """
    process = started(words, folder, {**ENVIRONMENT, **(variables or {})})
    output, _ = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.wait(), output)


def commands(folder: Path, server: Forks | None = None) -> dict[str, str]:
    """Return the variables with which a page's commands find a `fedfair` that is a fork.

    Args:
        folder: in which `by_the_readme.run` plays the page, and keeps its other commands.
        server: which forks; None for that of all tests.
    """
    place = (server or _server()).place
    shims = Path(tempfile.mkdtemp(prefix="commands-", dir=folder.parent))
    shim = shims / "fedfair"
    client = REPOSITORY / "tests" / "forked_command.py"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S {client} {place} -m fedfair.cli "$@"\n')
    shim.chmod(0o755)
    return {"PATH": f"{shims}:{folder / 'bin'}:{os.environ['PATH']}"}


def interpreter(folder: Path) -> dict[str, str]:
    """Return the variables with which a fork's own processes are forks too.

    Args:
        folder: in which the stand-in for Python is kept.
    """
    return {_INTERPRETER: str(stand_in(folder))}


@contextlib.contextmanager
def forked_workers(folder: Path) -> Iterator[None]:
    """Let the processes that `multiprocessing` spawns in this one be forks.

    Args:
        folder: in which the stand-in for Python is kept.
    """
    before = multiprocessing.spawn.get_executable()
    multiprocessing.resource_tracker.ensure_running()  # by Python itself, for all the time of this process
    multiprocessing.set_executable(str(stand_in(folder)))
    try:
        yield
    finally:
        multiprocessing.set_executable(before)


def stand_in(folder: Path) -> Path:
    """Return a program of this folder that does what Python does with `-m`, `-c` or a script, by a fork."""
    program = folder / "python"
    client = REPOSITORY / "tests" / "forked_command.py"
    program.write_text(
        f'#!/bin/sh\n[ "$1" != -u ] || shift\nexec "{sys.executable}" -I -S {client} {_server().place} "$@"\n'
    )
    program.chmod(0o755)
    return program


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


class Forks:
    """The other side of `_serve`, in a process that tests.

    Args:
        place: where the server is asked: the path of a socket, which has to be short.
        environment: in which the product is imported there, and all that is forked begins.
    """

    def __init__(self, place: str, environment: Mapping[str, str]) -> None:
        self.place, self.environment = place, dict(environment)

    def fork(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Forked:
        """Ask for a process, and return as soon as it exists."""
        request = _Request(list(words), str(folder), dict(environment))
        message = json.dumps(request._asdict()).encode()
        ends = socket.socket(socket.AF_UNIX)
        ends.connect(self.place)
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        socket.send_fds(ends, [len(message).to_bytes(_LENGTH)], [nothing, writing, writing])
        for file in (nothing, writing):
            os.close(file)
        ends.sendall(message)
        pid = int.from_bytes(_exactly(ends, _LENGTH))
        return Forked([sys.executable, *words], pid, ends, os.fdopen(reading, encoding="utf-8"))


class Server(Forks):
    """A server of this process's own.

    Args:
        environment: as above.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        super().__init__(f"{self._folder.name}/s", environment)
        self._held, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with served, socket.socket(socket.AF_UNIX) as shells:
            shells.bind(self.place)
            shells.listen(64)
            # It ends as soon as this process does.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(served.fileno()), str(shells.fileno())],
                cwd=REPOSITORY,
                env=self.environment,
                pass_fds=[served.fileno(), shells.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def end(self) -> None:
        """End the server, and everything that it has forked."""
        self._held.close()
        self._process.wait()
        self._folder.cleanup()


class _Request(NamedTuple):
    """A process that is asked for."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    passed: Sequence[int] = ()
    """Numbers under which it has files beside its three streams."""


def share() -> None:
    """Start a server, which the processes ask that this one starts: each would import the product once more."""
    os.environ[_SHARED] = _server().place


@functools.cache
def _server() -> Forks:
    if place := os.environ.get(_SHARED):
        return Forks(place, ENVIRONMENT)
    server = Server(ENVIRONMENT)
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


def _serve(held: socket.socket, asked: socket.socket) -> _Request:
    """Fork a process for each request, and tell how each ends; return in each of them, with what it was asked for.

    The server itself ends, with everything that it has forked, as soon as the process does that started it.
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
        ready, _, _ = select.select([held, asked, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                while woken.recv(1 << 12):
                    pass
            _reap(running)
        if held in ready:
            break
        if asked not in ready:
            continue
        asking, _ = asked.accept()
        try:
            request, files = _read(asking)
        except ConnectionError:
            asking.close()  # who asked was killed before it had done so
            continue
        pid = _forked(files, request.passed, (held, asked, woken, waking, asking, *running.values()))
        if not pid:
            return request
        running[pid] = asking
        with contextlib.suppress(BrokenPipeError):
            asking.sendall(pid.to_bytes(_LENGTH))
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _read(asking: socket.socket) -> tuple[_Request, list[int]]:
    """Return a request and the files that came with it.

    Raises:
        ConnectionError: the other side has ended before.
    """
    head, files, _, _ = socket.recv_fds(asking, _LENGTH, _MOST_FILES)
    head += _exactly(asking, _LENGTH - len(head))
    return _Request(**json.loads(_exactly(asking, int.from_bytes(head)))), list(files)


def _forked(files: list[int], passed: Sequence[int], ours: Iterable[socket.socket]) -> int:
    """Fork; return 0 in the new process, which has these streams and files and none of the server's own."""
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for each in ours:
            each.close()
        # Out of the way first: a file may have come under the number of another.
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD, _MOST_FILES) for file in files]
        for file in files:
            os.close(file)
        for number, file in zip((0, 1, 2, *passed), moved, strict=True):
            os.dup2(file, number)
        files = moved
    for file in files:
        os.close(file)
    return pid


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
    sys.executable = os.environ.pop(_INTERPRETER, sys.executable)
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        stream = os.fdopen(number, "w", encoding="utf-8", errors=errors, closefd=False)
        stream.reconfigure(line_buffering=True, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if request.words[0] == "-m":
        sys.argv = request.words[1:]
        sys.path[0] = request.folder
        runpy.run_module(request.words[1], run_name="__main__", alter_sys=True)
    elif request.words[0] == "-c":
        _, code, *words = request.words
        sys.argv = ["-c", *words]
        sys.path[0] = ""
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as Python does
    else:
        sys.argv = request.words
        sys.path[0] = str(Path(request.words[0]).parent)
        runpy.run_path(request.words[0], run_name="__main__")


def _played_to_its_end(request: _Request) -> None:
    """Run a request's program, and end as Python does, but for taking apart the modules that were imported before.

    That would copy all their memory, which takes longer than most programs. What a program has left is collected.
    """
    status: int | None = None
    try:
        _become(request)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code
    threading._shutdown()  # type: ignore[attr-defined]  # as Python does before functions of atexit
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # which says what Python says of a stream that is gone or closed
    os._exit(status or 0)


def _models(above: type[pydantic.BaseModel]) -> Iterator[type[pydantic.BaseModel]]:
    for model in above.__subclasses__():
        if model.__module__.startswith(PRELOADED):
            yield model
        yield from _models(model)


def _preload() -> None:
    for package in PRELOADED:
        for module in pkgutil.walk_packages([str(REPOSITORY / package)], f"{package}."):
            # Starlette brings a plugin of pytest; pytest, started here too, must be the first to load it.
            if not module.name.endswith("__main__") and "consent_page" not in module.name:
                with contextlib.suppress(ImportError):  # an optional library that is not installed here
                    importlib.import_module(module.name)
    for model in _models(pydantic.BaseModel):
        model.model_rebuild()  # which the first use of it would do, in each fork
    with contextlib.suppress(ImportError):
        importlib.import_module("fedfair.tables.sources.built_in").load_built_in("breast-cancer")
    if also := os.environ.get(ALSO):
        importlib.import_module(also)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _preload()
    _played_to_its_end(_serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:])))
