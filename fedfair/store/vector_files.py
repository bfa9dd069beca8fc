"""Long vectors on the disk, one file each, named by its SHA-256: `<64 hexadecimal digits>.vector` in one folder.

A file appears whole or not at all, because it is renamed into its place, and it never changes afterwards: other
content has another name. So whoever keeps the names in a record of its own moves from one set of vectors to the
next with that record: it keeps the new files, replaces the record, and then drops the files that no record names.
After a crash at any of these steps the record still names files that are there; `drop_all_but` removes the rest at
the next start. A file that was changed, cut or lost is found when it is read, because its name says what it holds.

Only one process uses a folder at a time; its owner holds the lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import StateError
from fedfair.store.atomic_file import OWNER_ONLY, replace_file
from fedfair.store.spilled import PIECE_BYTES, mapped, pieces

SUFFIX = ".vector"
OWNER_ONLY_FOLDER = 0o700


def no_step(_step: str) -> None:
    """Do nothing between two steps."""


class VectorFiles:
    """The files of one folder; they and the folder are made when the first vector is kept.

    Args:
        folder: where they are; only its owner can read it.
        remedy: what to do about a file that is damaged or lost.
        durable: whether `keep` waits for the disk. Without, a power failure may leave a file that is refused.
        reached: called with the name of each step before it is taken, so that a test can stop there.
    """

    def __init__(
        self, folder: Path, remedy: str, *, durable: bool = True, reached: Callable[[str], None] = no_step
    ) -> None:
        self._folder = folder
        self._remedy = remedy
        self._durable = durable
        self._reached = reached
        self._sound: set[str] = set()  # files that this process has written or read

    def path(self, sha256: str) -> Path:
        """Return where the vector with a digest is, if it is kept."""
        return self._folder / f"{sha256}{SUFFIX}"

    def keep(self, content: memoryview, sha256: str = "") -> str:
        """Write a vector, unless this process knows that it is there.

        Args:
            content: its bytes.
            sha256: their SHA-256 in hexadecimal digits, where the caller knows it; empty to have it computed.

        Returns:
            The SHA-256.

        Raises:
            OSError: the file cannot be written; nothing has changed.
        """
        name = sha256 or _sha256_of(content)
        path = self.path(name)
        if name not in self._sound or not path.exists():
            self._folder.mkdir(OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
            self._reached("write a vector")
            replace_file(path, pieces(content), OWNER_ONLY, durable=self._durable)
            self._sound.add(name)
        return name

    def load(self, sha256: str, length: int) -> NDArray[np.uint8]:
        """Return the bytes of a vector, read-only, checked and mapped: a file here never changes.

        Args:
            sha256: its digest.
            length: how many bytes it has, at least one.

        Raises:
            StateError: the file is gone, cannot be read, or is another one than was written.
        """
        path = self.path(sha256)
        try:
            with path.open("rb", buffering=0) as source:
                is_sound = _is_sound(source, sha256, length)
                content = mapped(source) if is_sound else memoryview(b"")
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror or error}", self._remedy) from error
        if not is_sound:
            raise StateError(f"{path} is damaged: it is not the vector that was written there", self._remedy)
        self._sound.add(sha256)
        return np.frombuffer(content, np.uint8)

    def drop_all_but(self, kept: Collection[str]) -> None:
        """Remove every vector that is not named, and whatever a crash has left of a file that was being written.

        Args:
            kept: digests of the vectors that stay.

        Raises:
            OSError: a file cannot be removed.
        """
        stay = {self.path(name).name for name in kept}
        found = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        for file in found:
            # Of files that somebody else has put here, nothing is known.
            if file.name not in stay and SUFFIX in file.name:
                self._reached("remove a vector")
                file.unlink(missing_ok=True)
        self._sound &= set(kept)


def _sha256_of(content: memoryview) -> str:
    digest = hashlib.sha256()
    for piece in pieces(content):
        digest.update(piece)
    return digest.hexdigest()


def _is_sound(source: FileIO, sha256: str, length: int) -> bool:
    """Read a whole file; return whether it has this digest and this length."""
    digest, found, piece = hashlib.sha256(), 0, bytearray(PIECE_BYTES)
    while found <= length and (size := source.readinto(piece)):
        digest.update(memoryview(piece)[:size])
        found += size
    return found == length and digest.hexdigest() == sha256
