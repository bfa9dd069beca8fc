"""Records made in a test, by the code that makes them in a federation."""

import io
import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import AT_CONNECTION, Clock, Keeper, Occasion, Ownership
from fedfair.audit.reader import RecordReader, bounded_lines
from fedfair.statistics.table import Purpose

PLAN = "sha256:" + "ab" * 32
OTHER_PLAN = "sha256:" + "cd" * 32
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
BEGINNING = datetime(2026, 1, 31, 12, tzinfo=UTC)

Said = tuple[bytes, MessageKind, Occasion]
ROUNDS: tuple[Said, ...] = (
    (b"hello", MessageKind.INTRODUCTION, AT_CONNECTION),
    *(
        (b"%d %s" % (number, part), what, Occasion(Purpose.TRAINING, number, 1))
        for number in (1, 2, 3)
        for part, what in (
            (b"u", MessageKind.SEALED_SHARES),
            (b"v" * 100, MessageKind.MASKED_VECTOR),
            (b"a", MessageKind.MASK_SHARES),
        )
    ),
)
"""What a site says in three rounds."""


def ticking() -> Clock:
    """Return a clock that advances by a second whenever it is looked at."""
    seconds = itertools.count()
    return lambda: BEGINNING + timedelta(seconds=next(seconds))


def ownership(participant: str = "clinic-a", keeper: str | None = None, key: Ed25519PrivateKey = KEY) -> Ownership:
    return Ownership("heart", participant, keeper or participant, key)


def kept(path: Path, said: Iterable[Said] = ROUNDS, owner: Ownership | None = None, plan: str = PLAN) -> bytes:
    """Record messages in a file, close it in order, and return its content."""
    keeper = Keeper(path, owner or ownership(), plan, ticking())
    for raw, what, occasion in said:
        keeper.message(raw, what, occasion)
    keeper.close()
    return path.read_bytes()


def read(content: bytes, checkpoint: tuple[int, bytes] | None = None) -> RecordReader:
    reader = RecordReader(checkpoint)
    reader.read(bounded_lines(io.BytesIO(content)))
    return reader
