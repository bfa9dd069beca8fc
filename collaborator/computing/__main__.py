"""The computing process of a site: `python -m collaborator.computing`, which a service starts and nobody else.

It connects, gives up whatever it does not need, and only then loads what computes: see `confinement.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path

from collaborator.computing.carrier import (
    WORKER,
    Blocks,
    Channel,
    EndedError,
    FolderBlocks,
    SealedBlocks,
    SocketBlocks,
    taken_secret,
)
from collaborator.computing.confinement import Allowed, confine, end_with_parent
from fedfair.errors import FedfairError

MAX_TERMS_BYTES = 1 << 20
CONNECT_SECONDS = 60.0


def main() -> int:
    """Compute until the service has gone; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m collaborator.computing", description=__doc__)
    parser.add_argument("--over", choices=("socket", "tcp", "folder"), required=True)
    parser.add_argument("--at", required=True, help="number of a file, HOST:PORT, or a folder")
    parser.add_argument("--secret", type=Path, help="file of the secret of this start")
    asked = parser.parse_args()
    # The service is told by Ctrl-C too, and ends this process when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if asked.over == "socket":
        end_with_parent(signal.SIGKILL)
    try:
        channel = Channel(_blocks(asked.over, asked.at, asked.secret))
        unprotected = _confined(json.loads(bytes(channel.receive(MAX_TERMS_BYTES))))
    except EndedError:
        return 0
    except FedfairError as fault:
        sys.stderr.write(fault.diagnostics() + "\n")
        return 1
    # Only now: with it come threads, which would keep what this process may do no longer.
    from collaborator.computing.serving import serve

    serve(channel, unprotected)
    return 0


def _blocks(over: str, at: str, secret: Path | None) -> Blocks:
    if over == "socket":
        return SocketBlocks(socket.socket(fileno=int(at)))
    if secret is None:
        raise FedfairError("there is no secret of this start")
    shared = taken_secret(secret)
    if over == "folder":
        return SealedBlocks(FolderBlocks(Path(at), WORKER), shared, WORKER)
    host, _, port = at.rpartition(":")
    try:
        connected = socket.create_connection((host, int(port)), CONNECT_SECONDS)
    except OSError as fault:
        raise FedfairError(f"{at} cannot be reached: {fault}") from fault
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SealedBlocks(SocketBlocks(connected), shared, WORKER)


def _confined(terms: dict[str, object]) -> tuple[str, ...]:
    """Keep to the terms of the service from now on; return what this system cannot take away, in words."""
    paths = {name: tuple(map(Path, terms[name])) for name in ("reads", "writes", "hidden")}  # type: ignore[call-overload]
    scratch = paths["writes"][0]
    os.environ["TMPDIR"] = str(scratch)
    os.chdir(scratch)
    return confine(Allowed(**paths, network=bool(terms["network"])))


if __name__ == "__main__":
    sys.exit(main())
