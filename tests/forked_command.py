"""Stands for `fedfair` in a shell: asks the fork server for the process, passes signals on, and ends as it ends.

Run by path in an interpreter that loads nothing else: forked_command.py SOCKET WORDS...
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

LENGTH = 8
FIRST, MOST = 3, 250
"""Numbers of the files, beside three streams, that a command may inherit."""


def is_open(number: int) -> bool:
    """Return whether this process has a file under a number."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def main() -> int:
    """Return the exit status of the command."""
    place, *words = sys.argv[1:]
    passed = [number for number in range(FIRST, MOST) if is_open(number)]
    request = {"passed": passed, "words": words, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109 - pathlib takes as long as all else
    message = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        socket.send_fds(server, [len(message).to_bytes(LENGTH, "big")], [0, 1, 2, *passed])
        server.sendall(message)
        pid = int.from_bytes(server.recv(LENGTH, socket.MSG_WAITALL), "big")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _: os.kill(pid, received))
        status = int(server.recv(LENGTH))
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
