"""Carries words and numbers between the processes of one site: Unix sockets in a folder of this user's alone.

Decides where processes that one parent has started find each other, and adds numbers in the order of their ranks.
Nobody else on the machine can reach a socket below a folder of mode 0700, and nothing listens on the network. So
words, which `multiprocessing` pickles, come from the same user, who could as well read this process's memory.

Rank 0 has a connection to every other process, and the others have one to rank 0. A process that ends closes its
connections, so that nobody waits for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfair.errors import FedfairError, StateError

LONGEST_PLACE = 60
"""No path of a socket may have more than 103 characters, and ours ends with 36 of its own."""

SECONDS_BETWEEN_TRIES = 0.05

PARENTS_WORDS = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT")
"""The variables by which torchrun tells the processes of one start from those of another."""


def meeting_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder in which all processes that this one's parent has started together meet.

    Args:
        environment: of this process.
    """
    told = [str(os.getuid()), str(os.getppid()), *(environment.get(name, "") for name in PARENTS_WORDS)]
    place = tempfile.gettempdir()
    name = "fedfair-site-" + hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]
    return Path(place if len(place) <= LONGEST_PLACE else "/tmp") / name  # noqa: S108 - see `_check_own`


class ProcessChannel:
    """One process's connections.

    Args:
        folder: where all processes meet; only rank 0 makes it.
        rank: of this process.
        size: how many there are.

    Raises:
        FedfairError: the folder is somebody else's, or the process that started this one is gone.
    """

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._rank, self._links = rank, list[Connection]()
        self.folder = folder
        if rank:
            self._links = [_joined(folder / "socket", rank)]
            return
        _make_own(folder)
        with Listener(str(folder / "socket"), "AF_UNIX", backlog=size) as door:
            found = [door.accept() for _ in range(size - 1)]
        # Sums are the same whoever came first.
        by_rank = {link.recv(): link for link in found}
        self._links = [by_rank[number] for number in sorted(by_rank)]

    def broadcast(self, words: object) -> Any:  # noqa: ANN401 - whatever rank 0 says
        """Return what rank 0 says; what the others give is not read."""
        if self._rank:
            return self._links[0].recv()
        for link in self._links:
            link.send(words)
        return words

    def gathered(self, words: object) -> list[Any]:
        """Return what every process gives, by rank."""
        if self._rank:
            self._links[0].send(words)
            return list(self.broadcast(None))
        return list(self.broadcast([words, *(link.recv() for link in self._links)]))

    def add(self, values: Tensor) -> None:
        """Put the sum over all processes, added in the order of ranks, in the place of the values on the CPU."""
        held = values.contiguous()
        if self._rank:
            self._links[0].send_bytes(_bytes_of(held))
        else:
            part = torch.empty_like(held)
            for link in self._links:
                link.recv_bytes_into(_bytes_of(part))
                held.add_(part)
        self.share(held)
        values.copy_(held)

    def share(self, values: Tensor) -> None:
        """Put what rank 0 has in the place of the values on the CPU."""
        held = values.contiguous()
        if self._rank:
            self._links[0].recv_bytes_into(_bytes_of(held))
            values.copy_(held)
            return
        for link in self._links:
            link.send_bytes(_bytes_of(held))

    def close(self) -> None:
        """End all connections."""
        for link in self._links:
            link.close()

    def leave_folder(self) -> None:
        """Remove the folder, in which nobody needs to be met any more."""
        if not self._rank:
            shutil.rmtree(self.folder, ignore_errors=True)


def _bytes_of(values: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU."""
    return values.view(-1).view(torch.uint8).numpy().data


def _make_own(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        # Of a process that was killed, whose parent's number is in use again; or of somebody who guessed the name.
        _check_own(folder)
        (folder / "socket").unlink(missing_ok=True)
    except OSError as error:
        raise StateError(
            f"{folder}: the processes of this site cannot meet there ({error.strerror})",
            "set TMPDIR to a folder in which this user may write",
        ) from error


def _joined(socket: Path, rank: int) -> Connection:
    """Return the connection to rank 0, which may come later."""
    parent = os.getppid()
    while True:
        try:
            _check_own(socket.parent)
            link = Client(str(socket), "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            if os.getppid() != parent:
                raise FedfairError("what started the processes of this site has ended") from None
            time.sleep(SECONDS_BETWEEN_TRIES)
        else:
            link.send(rank)
            return link


def _check_own(folder: Path) -> None:
    """Refuse a folder into which somebody else could have put a socket.

    Raises:
        StateError: it is not this user's, or others may write in it.
    """
    found = folder.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    if not own:
        raise StateError(
            f"{folder} is not a folder of this user's alone, so others could speak to the processes of this site",
            "remove it, or set TMPDIR to a folder of your own; then start the site again",
        )
