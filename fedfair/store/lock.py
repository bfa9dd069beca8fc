"""A file that one process alone may hold, and in which it writes its number for the process that is started next.

Decides how it is held and how the holder is named; what the file guards, and the words about it, are the caller's.
The lock ends with the process, however it ends; the number in a file that nobody holds means nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

OWNER_ONLY = 0o600
PID_BYTES = 20
"""More than the number of any process has."""


class HeldError(Exception):
    """Another process holds the file.

    Attributes:
        process: its number, or "unknown".
    """

    def __init__(self, process: str) -> None:
        super().__init__(f"held by process {process}")
        self.process = process


class ProcessLock:
    """One held file; made if there is none. Call `close` at the end.

    Args:
        path: the file; its folder exists. It holds nothing but the number.

    Raises:
        HeldError: another process holds it, or this one in another place.
        OSError: it cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        try:
            _hold(self._handle)
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, str(os.getpid()).encode("ascii"), 0)
        except BlockingIOError as error:
            process = os.pread(self._handle, PID_BYTES, 0).decode("ascii", "replace") or "unknown"
            os.close(self._handle)
            raise HeldError(process) from error
        except OSError:
            os.close(self._handle)
            raise

    def close(self) -> None:
        """Let the file go."""
        os.close(self._handle)


def holder_of(path: Path) -> str | None:
    """Return the number of the process that holds a file, or "unknown"; None where none does.

    Raises:
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _hold(handle)
    except BlockingIOError:
        return os.pread(handle, PID_BYTES, 0).decode("ascii", "replace") or "unknown"
    finally:
        os.close(handle)
    return None


def _hold(handle: int) -> None:
    """Hold an open file for this process alone.

    Raises:
        BlockingIOError: another process holds it.
    """
    # Imported here, because no system but Unix has it, and a simulation runs on others too.
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def runs_already(who: str, process: str, path: Path) -> tuple[str, str]:
    """Return the message and the remedy for a second start of one participant in one folder.

    Args:
        who: which participant, such as "an aggregator".
        process: the number of the process that holds `path`.
        path: what both would write.
    """
    return f"{path} is in use by process {process}: {who} already runs here", "stop it first, or let it finish"
