"""The file in which a site keeps its own copy of the run between two starts.

Written after every opened sum, without waiting for the disk, but at the end of the run. The file has two places of
equal length, and the older state is overwritten: a process that is killed while it writes leaves the other one
whole. After a power failure both may be damaged; then the site begins where the plan says, and gets the present
state from the others, who vouch for it. What a site has answered is never in this file, but in files that wait for
the disk.

A vector that is the same in both states of one place, such as the best model, is not written again: the words
before the vectors have a length that changes rarely, so it is at the same offset.

The history of evaluations grows, so a state is kept without the older ones: they are written once, to a file of
their own beside it. A round costs the same late in a run as early.

    <name>-<plan>.run.history-0, .history-1    one of them is in use; a line for each evaluation, in blocks

A block is on the disk before a state refers to it. If the history changed (another run, a state from others, or a
long history that was shortened), it is written to the other file; the previous state still refers to the first.
Evaluations that do not fill a block yet are in the state itself.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import ClassVar

from fedfair.aggregation.evaluator import Evaluation
from fedfair.errors import LocalProtocolError, StateError
from fedfair.news.site import StateUnread
from fedfair.run.history import from_line, to_line
from fedfair.run.history_digest import history_digest
from fedfair.run.packed_state import PackedParts, StatePacker, unpack_state
from fedfair.run.state import RunState
from fedfair.store.atomic_file import OWNER_ONLY, replace_file, sync_folder
from fedfair.store.disk import unwritable, writing
from fedfair.store.spilled import pieces, write_whole_part

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
        self._newest: tuple[tuple[Evaluation, ...], tuple[Evaluation, ...]] = (), ()

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
        if history is not self._newest[0]:
            self._newest = history, history[whole:]
        return Written(self._file, whole, self._length, self._digest.digest()), self._newest[1]

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
            write_whole_part(target, raw)
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


_HEAD = struct.Struct("<16s32s5Q")
"""Slot header: magic, digest, sequence number, body length, padding, vector offset, vector count.

The body is the lengths of the vectors (8 bytes each), the padding, the run, how far its file of evaluations is
written, the words of the state, and the vectors. The digest is the SHA-256 of these five numbers and of the body,
with the SHA-256 of each vector in its place: those are known already.
"""

_MARK = b"fedfair run 4\n\0\0"
_FAMILY = b"fedfair run "
"""With what every mark begins, those of versions to come included."""

_RUN_ID_BYTES = 32
_MIN_PLACE_BYTES = 1 << 14
_ALIGNED_BYTES = 1 << 12
"""The vectors of a state begin at a multiple of this, and so at the same offset for many rounds."""


class RunStore:
    """The kept state of one site under one plan; one process uses the file at a time.

    Args:
        path: the file; its folder exists.
        has_answered: whether this site has answered a request about a state with this digest.

    Attributes:
        has_held: the same: a state that was answered about was held.
        unread: why the last `load` gave nothing although there is a file; None where it did, or there is none.
    """

    def __init__(self, path: Path, has_answered: Callable[[bytes], bool]) -> None:
        self._path = path
        self.has_held = has_answered
        self._kept: int | None = None
        self._written = dict[int, _WrittenVectors]()
        self._stamp = (0, 0)
        self._history = HistoryFile(path)
        self._packer = StatePacker()
        self.unread: StateUnread | None = None

    def load(self, initial: RunState) -> tuple[str, RunState] | None:
        """Return the run and its state as they were kept last; None where nothing sound is kept.

        Args:
            initial: the state before the first sum, which the plan gives.

        Raises:
            StateError: this user may not read the file, or the disk cannot.
        """
        self.unread = None
        for place in sorted(self._places(), key=lambda place: place.number, reverse=True):
            try:
                found = self._unpacked(place, initial)
            except (LocalProtocolError, UnicodeDecodeError) as error:
                # Another version of fedfair wrote it, or its history is damaged; the others know the state.
                self.unread = StateUnread(self._path, str(error))
            else:
                self.unread = None
                return found
        self.unread = self.unread or self._why_unread()
        return None

    def _unpacked(self, place: _Place, initial: RunState) -> tuple[str, RunState]:
        run_id = bytes(place.body[:_RUN_ID_BYTES]).decode("ascii")
        start = _RUN_ID_BYTES + Written.BYTES
        written = Written.unpack(place.body[_RUN_ID_BYTES:start])
        return run_id, self._history.completed(unpack_state(place.body[start:], initial), written)

    def _why_unread(self) -> StateUnread | None:
        """Return why a file that is there gives no state."""
        if not self._path.exists():
            return None
        with self._path.open("rb") as file:
            marks = [file.read(len(_MARK))]
            file.seek(self._path.stat().st_size // 2)
            marks.append(file.read(len(_MARK)))
        is_other = any(mark.startswith(_FAMILY) and mark != _MARK for mark in marks)
        return StateUnread(self._path, "another version of fedfair wrote it" if is_other else "it is damaged")

    def keep(self, run_id: str, state: RunState) -> None:
        """Replace the older of the two kept states.

        Raises:
            FedfairError: the file cannot be written.
        """
        if len(run_id) != _RUN_ID_BYTES:
            raise LocalProtocolError(f"a run is named by {_RUN_ID_BYTES} characters, not by {run_id!r}")
        if self._kept is None:
            self._kept = max((place.number + 1 for place in self._places()), default=0)
        try:
            written, newest = self._history.write(state.history)
        except OSError as error:
            raise unwritable(self._history.path, error.strerror or str(error)) from error
        brief = self._packer.parts(state if newest is state.history else replace(state, history=newest))
        head, words, offset = self._head(run_id, written, brief)
        try:
            self._write(self._kept % 2, [head, words], offset, brief)
        except OSError as error:
            raise unwritable(self._path, error.strerror or str(error)) from error
        self._kept += 1

    def _head(self, run_id: str, written: Written, brief: PackedParts) -> tuple[bytes, bytes, int]:
        """Return the head of a state, what comes between it and the vectors, and where in a place these begin."""
        sizes = [len(vector) for vector in brief.vectors]
        words = run_id.encode("ascii") + written.pack() + brief.words
        table = struct.pack(f"<{len(sizes)}Q", *sizes)
        padding = -(_HEAD.size + len(table) + len(words)) % _ALIGNED_BYTES
        body = table + bytes(padding) + words
        counts = (self._kept or 0, len(body) + sum(sizes), padding, len(body), len(sizes))
        digest = hashlib.sha256(struct.pack("<5Q", *counts) + body)
        for known in brief.digests:
            digest.update(known)
        return _HEAD.pack(_MARK, digest.digest(), *counts), body, _HEAD.size + len(body)

    def settle(self) -> None:
        """Wait until the kept states are on the disk.

        Raises:
            FedfairError: the disk fails.
        """
        if not self._path.exists():
            return
        with writing(self._path):
            with self._path.open("r+b") as file:
                os.fsync(file.fileno())
            sync_folder(self._path.parent)

    def _write(self, place: int, words: Sequence[bytes], offset: int, brief: PackedParts) -> None:
        """Write a state to one of the two places.

        Args:
            place: 0 or 1.
            words: the bytes before the vectors.
            offset: how many these are.
            brief: the vectors.
        """
        try:
            size = self._path.stat().st_size // 2
        except FileNotFoundError:
            size = 0
        length = offset + sum(len(vector) for vector in brief.vectors)
        now = _WrittenVectors(offset, tuple(map(len, brief.vectors)), tuple(brief.digests))
        if length > size:
            # Once for every doubling: the new state alone, in places that have room to grow.
            longer = max(_MIN_PLACE_BYTES, 2 * length)
            after, whole_place = bytes(longer - length), bytes(longer)
            before: list[bytes | memoryview] = [whole_place] if place else []
            content = [*before, *words, *brief.vectors, after, *([] if place else [whole_place])]
            self._written.clear()
            replace_file(self._path, itertools.chain.from_iterable(map(pieces, content)), OWNER_ONLY)
            return
        # Opened each time: a file that was put in its place meanwhile is the one that counts.
        with self._path.open("r+b", buffering=0) as target:
            if self._stamp != _stamp_of(target):
                self._written.clear()
            known = self._written.pop(place, None)
            target.seek(place * size)
            for part in words:
                write_whole_part(target, part)
            for number, vector in enumerate(brief.vectors):
                if known is not None and known.has(number, now):
                    target.seek(len(vector), os.SEEK_CUR)
                else:
                    write_whole_part(target, vector)
            self._stamp = _stamp_of(target)
        self._written[place] = now

    def _places(self) -> Iterator[_Place]:
        """Yield each sound state in the file."""
        try:
            raw = memoryview(self._path.read_bytes())
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(
                f"{self._path} cannot be read: {error.strerror or error}",
                "let this user read it, or remove it: the other sites know the state of the run",
            ) from error
        size = len(raw) // 2
        for half in (raw[:size], raw[size : 2 * size]):
            place = _sound_place(half)
            if place is not None:
                yield place


@dataclass(frozen=True, slots=True)
class _WrittenVectors:
    """The vectors that this process has written to one place.

    Attributes:
        offset: where in the place the vectors begin.
        sizes: the length of each vector, in order.
        digests: the SHA-256 of each.
    """

    offset: int
    sizes: tuple[int, ...]
    digests: tuple[bytes, ...]

    def has(self, number: int, now: _WrittenVectors) -> bool:
        """Return whether a vector of `now` is there already, at the same offset."""
        same = (self.offset, self.sizes) == (now.offset, now.sizes)
        return same and self.digests[number] == now.digests[number]


def _stamp_of(file: FileIO) -> tuple[int, int]:
    """Return what changes when somebody else puts another file there, or writes to this one."""
    found = os.fstat(file.fileno())
    return found.st_ino, found.st_mtime_ns


@dataclass(frozen=True, slots=True)
class _Place:
    """One sound state in the file.

    Attributes:
        number: how many states were kept before it.
        body: its bytes.
    """

    number: int
    body: memoryview


def _sound_place(raw: memoryview) -> _Place | None:
    """Return what half of the file holds; None where it holds nothing whole."""
    if len(raw) < _HEAD.size:
        return None
    mark, digest, number, length, padding, start, count = _HEAD.unpack_from(raw)
    if mark != _MARK or start > len(raw) or 8 * count + padding > start:
        return None
    sizes = struct.unpack_from(f"<{count}Q", raw, _HEAD.size)
    body = raw[_HEAD.size : _HEAD.size + length]
    if len(body) != length or start + sum(sizes) > length:
        return None
    found = hashlib.sha256(struct.pack("<5Q", number, length, padding, start, count))
    found.update(body[:start])
    for size in sizes:
        found.update(hashlib.sha256(body[start : start + size]).digest())
        start += size
    found.update(body[start:])
    return _Place(number, body[8 * count + padding :]) if found.digest() == digest else None
