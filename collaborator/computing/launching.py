"""Starts a computing process through the site's own template, and ends it: its folder, its secret and its output.

Each start has a folder of its own below the site's, which holds a copy of the plan's code and whatever the process
writes. It is removed with the process; what a start left that ended without that is removed by the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collaborator.computing.carrier import (
    SERVICE,
    Blocks,
    Channel,
    EndedError,
    FolderBlocks,
    SealedBlocks,
    SocketBlocks,
    new_secret,
)
from fedfair.errors import FedfairError, RemoteProtocolError
from fedfair.policy.site_worker import COMMAND, WorkerSection
from fedfair.store.rotated_log import RotatedLog

PREFIX = "start-"
HANDSHAKE_SECONDS = 20.0
"""How long whoever connects may take to prove that it knows the secret of the start."""

END_SECONDS = 3.0
"""How long a process may take to end before it is killed; a starter may have to tell another machine."""

LOG_BYTES = 1 << 20
LOG_FILES = 3
LINE_CHARACTERS = 1000
BYTES_PER_SECOND = 1 << 18
"""Of what a process says, so much is read in a second: more makes it wait, and nobody else."""

KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM", "PYTHONPATH", "VIRTUAL_ENV")
KEPT_PREFIXES = (
    "LC_", "LD_", "OMP_", "MKL_", "OPENBLAS_", "CUDA_", "NVIDIA_", "ROCR_", "HIP_", "CONDA", "SLURM", "SRUN",
    "PBS", "LSB_", "SGE_", "FLUX_", "MODULE", "LMOD", "FORK", "FEDFAIR_DATA",
)  # fmt: skip
"""The variables that a computing process and its starter have; no other one, since it may be a secret."""


_SET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "JOBLIB_MULTIPROCESSING": "0"}
"""Nothing is written beside sources; what is said is there at once; joblib, a part of scikit-learn, does without
shared memory."""


class Closing(Protocol):
    """Something that can be closed."""

    def close(self) -> None:
        """Close it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What every start of a site's computing process has in common.

    Attributes:
        terms: the section `worker` of the site's file.
        folder: below which each start has a folder.
        log: where the output goes.
        variables: names of further variables that it has, such as that of a database's password.
        reads: files and folders that it may read.
        hidden: files and folders that it may not.
        network: whether its records come over the network.
        prepare: puts the plan's code into a folder of the start; raises FedfairError.
    """

    terms: WorkerSection
    folder: Path
    log: Path
    variables: tuple[str, ...]
    reads: tuple[Path, ...]
    hidden: tuple[Path, ...]
    network: bool
    prepare: Callable[[Path], None]


class ProcessStart:
    """One start of a computing process; nothing of the plan has run in it yet.

    Args:
        launch: how it is started.

    Attributes:
        channel: to the process.
        code: the folder of the copy of the plan's code.
        scratch: the folder that the process writes to.

    Raises:
        EndedError: it did not begin.
        FedfairError: it cannot be started.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        _make_owned(launch.folder)
        _remove_old(launch.folder)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=launch.folder)).resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        try:
            self.code, self.scratch = self.folder / "scratch" / "code", self.folder / "scratch"
            self.code.mkdir(parents=True)
            self._writes = [self.scratch]
            launch.prepare(self.code)
            self.channel = Channel(self._begun())
            terms = {
                "reads": [str(path) for path in launch.reads],
                "hidden": [str(path) for path in launch.hidden],
                "writes": [str(path) for path in self._writes],
                "network": launch.network,
            }
            self.channel.send([json.dumps(terms).encode()])
        except BaseException:
            self.end()
            raise

    @property
    def is_over(self) -> bool:
        """Return whether somebody has ended it."""
        return self._is_over

    @property
    def how_it_ended(self) -> str:
        """Return in words how the process ended."""
        if self._process is None:
            return "it was never started"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        status = self._process.returncode
        if status is None:
            return "it runs, and its answer was none"
        if status < 0:
            return f"it was ended by {signal.Signals(-status).name}"
        return f"it ended with status {status}"

    def end(self) -> None:
        """End the process and remove its folder; whoever waits for an answer is woken."""
        self._is_over = True
        if hasattr(self, "channel"):
            self.channel.close()
        process = self._process
        if process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
                    break
        shutil.rmtree(self.folder, ignore_errors=True)

    def _begun(self) -> Blocks:
        match self._launch.terms.over:
            case "socket":
                return self._over_socket()
            case "tcp":
                return self._over_tcp()
            case _:
                return self._over_folder()

    def _over_socket(self) -> Blocks:
        ours, theirs = socket.socketpair()
        with theirs:
            self._start(["--at", str(theirs.fileno())], theirs.fileno())
        return SocketBlocks(ours)

    def _over_tcp(self) -> Blocks:
        secret, host = new_secret(self.folder / "secret"), self._launch.terms.listen
        until = time.monotonic() + self._launch.terms.start_seconds
        with socket.create_server((host, 0)) as server:
            server.settimeout(0.2)
            at = f"{host}:{server.getsockname()[1]}"
            self._start(["--at", at, "--secret", str(self.folder / "secret")])
            while True:
                self._still_begins(until)
                with contextlib.suppress(TimeoutError):
                    connected, _ = server.accept()
                    connected.settimeout(HANDSHAKE_SECONDS)
                    try:
                        sealed = SealedBlocks(SocketBlocks(connected), secret, SERVICE)
                    except (EndedError, RemoteProtocolError):
                        # Anybody may connect; who does not know the secret is nobody.
                        connected.close()
                        continue
                    connected.settimeout(None)
                    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return sealed

    def _over_folder(self) -> Blocks:
        secret, until = new_secret(self.folder / "secret"), time.monotonic() + self._launch.terms.start_seconds
        shared = self.folder / "messages"
        shared.mkdir()
        self._writes.append(shared)
        self._start(["--at", str(shared), "--secret", str(self.folder / "secret")])
        begun = [False]

        def is_there() -> bool:
            return self._is_running() and (begun[0] or time.monotonic() < until)

        sealed = SealedBlocks(FolderBlocks(shared, SERVICE, is_there), secret, SERVICE)
        begun[0] = True
        return sealed

    def _start(self, where: list[str], passed: int | None = None) -> None:
        asked = self._launch.terms
        command = [*_interpreter(), "-m", "collaborator.computing", "--over", asked.over, *where]
        words = list(_filled(asked.launch, command))
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the site's own template, of its own file
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.scratch,
                env=environment(os.environ, self._launch.variables, self.scratch),
                pass_fds=() if passed is None else (passed,),
                start_new_session=True,
            )
        except OSError as fault:
            raise FedfairError(
                f"worker.launch: {words[0]} cannot be started: {fault.strerror}",
                "name a program of this machine, such as srun, or leave launch out",
            ) from fault
        said = self._process.stdout
        if said is not None:
            kept = (said.fileno(), said, self._launch.log)
            threading.Thread(target=keep_output, args=kept, daemon=True).start()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _still_begins(self, until: float) -> None:
        if not self._is_running():
            raise EndedError("the computing process has ended before it connected")
        if time.monotonic() > until:
            raise EndedError("the computing process has not connected within worker.start_seconds")


def environment(whole: Mapping[str, str], variables: tuple[str, ...], scratch: Path) -> dict[str, str]:
    """Return the variables of a computing process.

    Args:
        whole: those of the service.
        variables: names of further ones that it has.
        scratch: its folder, for temporary files.
    """
    kept = {
        name: value
        for name, value in whole.items()
        if name in KEPT_VARIABLES or name in variables or name.startswith(KEPT_PREFIXES)
    }
    return {**kept, "TMPDIR": str(scratch), **_SET}


def _interpreter() -> list[str]:
    """Return how Python is started so that it finds this very product, whatever starts it and wherever."""
    root = Path(__file__).resolve().parents[2]
    if root == Path(sysconfig.get_paths()["purelib"]).resolve():
        return [sys.executable]
    return ["/usr/bin/env", f"PYTHONPATH={root}", sys.executable]


def _filled(template: str, command: list[str]) -> Iterator[str]:
    for word in shlex.split(template):
        if word == COMMAND:
            yield from command
        else:
            yield word.replace(COMMAND, shlex.join(command))


def _make_owned(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def _remove_old(folder: Path) -> None:
    """Remove what starts of processes have left that are not there any more."""
    for left in folder.glob(f"{PREFIX}*"):
        number = left.name.removeprefix(PREFIX).partition("-")[0]
        if not number.isdecimal() or not _is_there(int(number)):
            shutil.rmtree(left, ignore_errors=True)


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def keep_output(descriptor: int, pipe: Closing, log: Path, pause: Callable[[float], object] = time.sleep) -> None:
    """Keep what a process says in a log of bounded length, and read no more of it than so much in a second.

    Args:
        descriptor: of the end that is read.
        pipe: the same, to be closed at the end.
        log: the file.
        pause: waits for so many seconds.
    """
    kept = RotatedLog(log, max_bytes=LOG_BYTES, kept=LOG_FILES, owner_only=True)
    begun, read = time.monotonic(), 0
    with contextlib.suppress(OSError), contextlib.closing(kept), contextlib.closing(pipe):
        log.parent.mkdir(parents=True, exist_ok=True)
        while part := os.read(descriptor, 1 << 16):
            for line in part.decode("utf-8", "replace").splitlines():
                kept.append("".join(one if one.isprintable() else " " for one in line[:LINE_CHARACTERS]))
            read += len(part)
            if read > BYTES_PER_SECOND:
                pause(max(0.0, 1.0 - (time.monotonic() - begun)))
                begun, read = time.monotonic(), 0
