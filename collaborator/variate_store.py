"""The folder in which a site keeps its control variates between two starts: `state/<name>-<plan>.variates/`.

One file for each round whose variate may still be counted: the last round that counted this site, the one before
it, and the round under way. A file is on the disk before what it belongs to is sent. Which of them counts is told
by the state of the run, so nothing is ever moved or marked. A file of another run is none.

    16 bytes of a mark, SHA-256 of the rest (32), run id (32), round and weight (8 each), threshold (8),
    vector (8 for each entry); little-endian
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fedfair.errors import StateError
from fedfair.ids import RoundNumber
from fedfair.store.atomic_file import OWNER_ONLY, replace_file
from fedfair.store.disk import writing
from fedfair.terms.kept import KeptVariate, Variate, staying_rounds

_MARK = b"fedfair variate\n"
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<32sQQd")
"""Run id, round, weight, threshold."""

_VECTOR = np.dtype("<f8")


class VariateStore:
    """The kept variates of one site under one plan; one process uses the folder at a time.

    Args:
        folder: where they are; made with the first of them.
        dimension: of the model.
        run_id: returns the run that this site takes part in, as 32 characters.
    """

    def __init__(self, folder: Path, dimension: int, run_id: Callable[[], str]) -> None:
        self._folder, self._dimension, self._run_id = folder, dimension, run_id

    def found(self, number: RoundNumber) -> KeptVariate | None:
        """Return what was kept for a round of this run; None where nothing sound is.

        Raises:
            StateError: this user may not read the file, or the disk cannot.
        """
        path = self._path(number)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(
                f"{path} cannot be read: {error.strerror or error}", "let this user read it, and start again"
            ) from error
        body = raw[len(_MARK) + _DIGEST_BYTES :]
        if raw != _whole(body) or len(body) != _HEAD.size + _VECTOR.itemsize * self._dimension:
            return None
        run_id, kept_for, weight, threshold = _HEAD.unpack_from(body)
        if (run_id, kept_for) != (self._run_id().encode("ascii"), number):
            return None
        vector = np.frombuffer(body, _VECTOR, offset=_HEAD.size).astype(np.float64)
        return KeptVariate(Variate(vector, threshold), weight)

    def keep(self, number: RoundNumber, kept: KeptVariate, counted: RoundNumber) -> None:
        """Keep a variate for a round; it is on the disk when this returns.

        Args:
            number: the round.
            kept: the variate that follows from what the site is about to add.
            counted: the round whose variate the run counts now.

        Raises:
            FedfairError: it cannot be written; what was there is as it was.
        """
        head = _HEAD.pack(self._run_id().encode("ascii"), number, kept.weight, kept.variate.threshold)
        body = head + kept.variate.vector.astype(_VECTOR).tobytes()
        with writing(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path(number), [_whole(body)], OWNER_ONLY)
            rounds = list(self._rounds())
            staying = {number, *staying_rounds(rounds, number, counted)}
            for past in set(rounds) - staying:
                self._path(past).unlink(missing_ok=True)

    def _path(self, number: RoundNumber) -> Path:
        return self._folder / f"{int(number):010d}"

    def _rounds(self) -> Iterator[RoundNumber]:
        return (RoundNumber(int(path.name)) for path in self._folder.iterdir() if path.name.isdigit())


def _whole(body: bytes) -> bytes:
    return _MARK + hashlib.sha256(body).digest() + body
