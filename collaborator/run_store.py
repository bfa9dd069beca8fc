"""The file in which a site keeps its own copy of the run between two starts.

Written after every opened sum, in one step and without waiting for the disk: a killed process loses nothing. After
a power failure the file may be damaged; then the site begins where the plan says, and gets the present state from
the others, who vouch for it. What a site has answered is never in this file, but in files that wait for the disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from collaborator.disk import unwritable
from fedfair.atomic_file import OWNER_ONLY, replace_file
from fedfair.errors import LocalProtocolError, StateError
from fedfair.run.packed_state import pack_state, unpack_state
from fedfair.run.state import RunState

_MARK = b"fedfair run 1\n"
_RUN_ID_BYTES = 32


class RunStore:
    """The kept state of one site under one plan.

    Args:
        path: the file; its folder exists.
        has_answered: whether this site has answered a request about a state with this digest.
    """

    def __init__(self, path: Path, has_answered: Callable[[bytes], bool]) -> None:
        self._path = path
        self._has_answered = has_answered

    def load(self, initial: RunState) -> tuple[str, RunState] | None:
        """Return the run and its state as they were kept; None where nothing sound is kept.

        Args:
            initial: the state before the first sum, which the plan gives.

        Raises:
            StateError: this user may not read the file, or the disk cannot.
        """
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(
                f"{self._path} cannot be read: {error.strerror or error}",
                "let this user read it, or remove it: the other sites know the state of the run",
            ) from error
        body = memoryview(raw)[len(_MARK) + hashlib.sha256().digest_size :]
        digest = raw[len(_MARK) : len(_MARK) + hashlib.sha256().digest_size]
        if not raw.startswith(_MARK) or hashlib.sha256(body).digest() != digest:
            return None
        try:
            return bytes(body[:_RUN_ID_BYTES]).decode("ascii"), unpack_state(body[_RUN_ID_BYTES:], initial)
        except (LocalProtocolError, UnicodeDecodeError):
            # Another version of fedfair wrote it; the others know the state of the run.
            return None

    def keep(self, run_id: str, state: RunState) -> None:
        """Replace the kept state.

        Raises:
            FedfairError: the file cannot be written.
        """
        if len(run_id) != _RUN_ID_BYTES:
            raise LocalProtocolError(f"a run is named by {_RUN_ID_BYTES} characters, not by {run_id!r}")
        parts = [run_id.encode("ascii"), *pack_state(state)]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        try:
            replace_file(self._path, [_MARK, digest.digest(), *parts], OWNER_ONLY, durable=False)
        except OSError as error:
            raise unwritable(self._path, error.strerror or str(error)) from error

    def has_held(self, digest: bytes) -> bool:
        """Return whether this site has answered a request about a state with this digest."""
        return self._has_answered(digest)
