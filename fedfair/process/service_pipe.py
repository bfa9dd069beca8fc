"""The pipe between a service and a process that it has started: first a secret, then nothing until its end.

The first line is the passphrase of the keys in hexadecimal digits, empty where they are not encrypted. A process
whose pipe is closed asks itself to stop, so it never outlives its service.
"""

from __future__ import annotations

import os
import signal
import threading

from fedfair.errors import FedfairError

MAX_LINE = 1 << 16


def taken_passphrase(pipe: int) -> bytes | None:
    """Return the passphrase that a service has sent; None where the keys are not encrypted.

    From now on the end of the service stops this process, as SIGTERM does.

    Args:
        pipe: number of the inherited reading end.

    Raises:
        FedfairError: there is no such pipe, or no service at its other end.
    """
    line = b""
    try:
        while not line.endswith(b"\n") and len(line) < MAX_LINE:
            byte = os.read(pipe, 1)
            if not byte:
                raise FedfairError("the service that has started this process is gone", "start the service again")
            line += byte
        secret = bytes.fromhex(line.decode("ascii").strip())
    except (OSError, ValueError) as error:
        raise FedfairError(
            f"--service-pipe {pipe} is no pipe of a service", "start the study with `fedfair collaborator serve`"
        ) from error
    threading.Thread(target=_until_closed, args=[pipe], name="service-pipe", daemon=True).start()
    return secret or None


def _until_closed(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
