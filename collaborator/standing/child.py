"""The process of one running study: `collaborator start --study NAME`, which the service starts and watches.

The process takes the passphrase of the site's keys from a pipe, and ends in order when the pipe is closed: so it
never outlives the service, however that ends. What it prints goes to `logs/process.log` of the study.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fedfair.consent.inbox import StudyFolder
from fedfair.errors import FedfairError
from fedfair.process.exit_status import ExitStatus
from fedfair.store.disk import writing

MAX_LOG_BYTES: Final = 16 << 20
"""A log that is longer at a start of its study is put aside, in place of the one before."""
TAIL_BYTES: Final = 4096

_GIB: Final = 1 << 30
_HOPELESS = frozenset({ExitStatus.REFUSED})
"""Endings after which the same start would end in the same way."""


@dataclass(frozen=True, slots=True)
class StudyProcess:
    """How the process of a study is started.

    Attributes:
        site_folder: the folder of the site's own files.
        site_file: name of the file that says where its records are.
        name: the site's.
        study: its folder.
        aggregator: HOST:PORT of the hub.
        gpu: the number of the GPU that it sees; None for all.
        memory_gib: the most memory for data, in GiB; None for any.
        passphrase: of the site's keys; empty where they are not encrypted.
        interpreter: the Python that runs it.
    """

    site_folder: Path
    site_file: str
    name: str
    study: StudyFolder
    aggregator: str
    gpu: int | None
    memory_gib: float | None
    passphrase: bytes = field(repr=False)
    interpreter: str

    def words(self, pipe: int) -> tuple[str, ...]:
        """Return the command.

        Args:
            pipe: number of the inherited pipe.
        """
        options = ("-n", self.name, "-c", self.site_file, "--study", self.study.name, "-a", self.aggregator)
        # The hub says when a study is over; until then its process waits for it.
        return ("-m", "collaborator", "start", *options, "--service-pipe", str(pipe))

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the process."""
        return {**own, **({} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": str(self.gpu)})}


class StudyChild:
    """One running process. `stop` asks it to end; `ended` is called once, with what that means.

    Args:
        process: of the operating system.
        pipe: the writing end of its pipe.
        log: where it prints.

    Attributes:
        started: when.
    """

    def __init__(self, process: asyncio.subprocess.Process, pipe: int, log: Path) -> None:
        self._process, self._pipe, self._log = process, pipe, log
        self.started = datetime.now(UTC)
        self.is_stopping = False

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def stop(self) -> None:
        """Ask the process to end in order."""
        self.is_stopping = True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> ChildEnd:
        """Wait for the end of the process, and return what it means."""
        status = await self.gone()
        return ChildEnd(status, last_words(self._log))

    async def gone(self) -> int:
        """Wait for the end of the process, and return its exit status."""
        status = await self._process.wait()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        return status


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a process ended.

    Attributes:
        status: its exit status; below 0 for a signal.
        words: its last line.
    """

    status: int
    words: str

    @property
    def is_done(self) -> bool:
        """Whether its work is done."""
        return self.status == ExitStatus.DONE

    @property
    def needs_hands(self) -> bool:
        """Whether a person has to change something before another start can help."""
        return self.status in _HOPELESS


async def start_child(start: StudyProcess, limit: Callable[[int, float], None] | None = None) -> StudyChild:
    """Start the process of a study.

    Args:
        start: how.
        limit: sets the memory of a process, by its number and in GiB; None for the system's own way.

    Raises:
        FedfairError: it cannot be started.
    """
    log = start.study.logs / "process.log"
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
            log.replace(log.with_name("process.log.1"))
        output = log.open("ab")
    reading, writing_end = os.pipe()
    try:
        with output:
            process = await asyncio.create_subprocess_exec(
                start.interpreter,
                *start.words(reading),
                cwd=start.site_folder,
                env=start.environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(reading,),
                # Ctrl-C reaches the service alone, which then stops what it has started.
                start_new_session=True,
            )
    except OSError as error:
        os.close(writing_end)
        raise FedfairError(f"the process of {start.study.name} cannot be started: {error.strerror}") from error
    finally:
        os.close(reading)
    with contextlib.suppress(BrokenPipeError):  # it has ended already, which its status says
        os.write(writing_end, start.passphrase.hex().encode("ascii") + b"\n")
    if start.memory_gib is not None:
        (limit or limit_memory)(process.pid, start.memory_gib)
    return StudyChild(process, writing_end, log)


def limit_memory(pid: int, gib: float) -> None:
    """Limit what a process may take for its data, where the system can; its children inherit the limit.

    Args:
        pid: its number.
        gib: GiB, above 0.
    """
    import resource

    if hasattr(resource, "prlimit"):
        most = int(gib * _GIB)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))


def last_words(log: Path) -> str:
    """Return the last line of a log that says something, at most 500 characters; empty where there is none."""
    try:
        with log.open("rb") as source:
            source.seek(max(log.stat().st_size - TAIL_BYTES, 0))
            lines = source.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")
