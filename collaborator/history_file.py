"""The older evaluations of a site's own copy of the run, each written once: a line for each, in blocks.

    <name>-<plan>.run.history-0, .history-1    one of them is in use

A block is on the disk before a state refers to it. If the history changed (another run, a state from others, or a
long history that was shortened), it is written to the other file; the previous state still refers to the first.
Evaluations that do not fill a block yet are in the state itself.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from fedfair.aggregation.evaluator import Evaluation
from fedfair.errors import LocalProtocolError
from fedfair.run.history import from_line, to_line
from fedfair.run.history_digest import history_digest
from fedfair.run.state import RunState
from fedfair.store.atomic_file import OWNER_ONLY, replace_file

BLOCK = 16
"""Evaluations that are written at once."""

_FORM = struct.Struct("<BQQ32s")


@dataclass(frozen=True, slots=True)
class Written:
    """The part of a history that is in a file.

    Attributes:
        file: which of the two.
        count: how many evaluations, from the first.
        length: bytes of them.
        sha256: of these bytes, 32 bytes.
    """

    BYTES: ClassVar[int] = _FORM.size

    file: int
    count: int
    length: int
    sha256: bytes

    def pack(self) -> bytes:
        """Return the bytes of it."""
        return _FORM.pack(self.file, self.count, self.length, self.sha256)

    @classmethod
    def unpack(cls, raw: bytes | memoryview) -> Written:
        """Return it from `pack`'s bytes.

        Raises:
            LocalProtocolError: they are too few.
        """
        try:
            return cls(*_FORM.unpack(raw))
        except struct.error as error:
            raise LocalProtocolError(f"the kept history of a run cannot be read: {error}") from error


class HistoryFile:
    """The files of one history; one thread uses them at a time.

    Args:
        path: of the state that refers to them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = 0
        self._digest = hashlib.sha256()
        self._written: tuple[Evaluation, ...] = ()
        self._length = 0
        # Nobody has said yet which of the files is in use.
        self._is_known = False

    @property
    def path(self) -> Path:
        """Return the file that is in use."""
        return self._path.with_name(f"{self._path.name}.history-{self._file}")

    def write(self, history: tuple[Evaluation, ...]) -> tuple[Written, tuple[Evaluation, ...]]:
        """Write every whole block that is not written yet.

        Args:
            history: of the state that is kept next.

        Returns:
            What is in the file, and the evaluations that are not, which belong into the state.

        Raises:
            OSError: it cannot be written.
        """
        known, whole = len(self._written), len(history) // BLOCK * BLOCK
        # Evaluations are values that a run hands on as they are, so one look at the last of them is enough.
        continues = known <= whole and (not known or history[known - 1] is self._written[-1])
        if whole and not (continues and self._is_known):
            self._begin_anew(history[:whole])
        elif continues and whole > known:
            self._append(history[known:whole])
            self._written = history[:whole]
        elif not whole:
            self._forget()
        return Written(self._file, whole, self._length, self._digest.digest()), history[whole:]

    def completed(self, state: RunState, written: Written) -> RunState:
        """Return a state with its whole history.

        Args:
            state: with the evaluations that are not in a file.
            written: what is in one.

        Raises:
            LocalProtocolError: the file does not have it.
        """
        if not written.count:
            return state
        file, self._file = self._file, written.file
        try:
            raw = self.path.read_bytes()[: written.length]
        except OSError as error:
            self._file = file
            raise LocalProtocolError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(raw).digest() != written.sha256:
            self._file = file
            raise LocalProtocolError(f"{self.path} is damaged")
        self._written = tuple(map(from_line, raw.splitlines()))
        self._digest, self._length, self._is_known = hashlib.sha256(raw), len(raw), True
        # A process that was killed may have written a block that no state refers to.
        os.truncate(self.path, self._length)
        history = (*self._written, *state.history)
        return replace(state, history=history, history_digest=history_digest(history))

    def _append(self, evaluations: tuple[Evaluation, ...]) -> None:
        raw = _lines(evaluations)
        with self.path.open("r+b", buffering=0) as target:
            target.seek(self._length)
            view = memoryview(raw)
            while view:
                view = view[target.write(view) :]
            os.fsync(target.fileno())
        self._digest.update(raw)
        self._length += len(raw)

    def _begin_anew(self, evaluations: tuple[Evaluation, ...]) -> None:
        self._file = 1 - self._file
        raw = _lines(evaluations)
        replace_file(self.path, [raw], OWNER_ONLY)
        self._digest, self._length = hashlib.sha256(raw), len(raw)
        self._written, self._is_known = evaluations, True

    def _forget(self) -> None:
        """Begin with a history that has no whole block yet; a file is made when it has one."""
        self._written, self._length, self._digest = (), 0, hashlib.sha256()
        self._is_known = False


def _lines(evaluations: tuple[Evaluation, ...]) -> bytes:
    return "".join(f"{to_line(evaluation)}\n" for evaluation in evaluations).encode()
