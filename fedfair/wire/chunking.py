"""Long vectors in short frames: cutting without copying, and putting together without trust.

The length of a vector is announced, but it is the plan that says what the length must be: `expect_upload` and
`expect_broadcast` compare the two before a single byte is allocated. An `Assembler` then holds exactly that many
bytes, whatever arrives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.wire.frames import BroadcastKind, BroadcastStart, Chunk, SecaggMessage, UploadStart
from fedfair.wire.limits import MAX_CHUNK_BYTES

if TYPE_CHECKING:
    from fedfair.aggregation.spec import SumSpec
    from fedfair.ids import SumNumber


def chunks(payload: bytes | bytearray | memoryview, size: int = MAX_CHUNK_BYTES) -> Iterator[memoryview]:
    """Yield `payload` in pieces of `size` bytes, the last one shorter; views, not copies."""
    view = memoryview(payload).cast("B")
    for start in range(0, len(view), size):
        yield view[start : start + size]


def upload_frames(sum_number: SumNumber, payload: bytes | bytearray | memoryview) -> Iterator[UploadStart | Chunk]:
    """Yield every frame of one upload: its announcement, then its chunks."""
    yield UploadStart(sum_number, memoryview(payload).nbytes, hashlib.sha256(payload).digest())
    yield from (Chunk(piece) for piece in chunks(payload))


def masked_frames(
    message: bytes, vector: bytes | bytearray | memoryview, hashed: Sequence[bytes] = ()
) -> Iterator[SecaggMessage | Chunk]:
    """Yield every frame of one message of secure aggregation: the message, then its vector's chunks, if any.

    Args:
        message: of secure aggregation.
        vector: what travels beside it.
        hashed: the SHA-256 of each frame of a chunk, in order; empty where they are not known.
    """
    yield SecaggMessage(message, memoryview(vector).nbytes)
    yield from (Chunk(*both) for both in zip_longest(chunks(vector), hashed, fillvalue=b""))


def broadcast_frames(
    kind: BroadcastKind, payload: bytes | bytearray | memoryview, sha256: bytes
) -> Iterator[BroadcastStart | Chunk]:
    """Yield every frame of one broadcast; the digest is an argument because many receive the same vector."""
    yield BroadcastStart(kind, memoryview(payload).nbytes, sha256)
    yield from (Chunk(piece) for piece in chunks(payload))


def expect_upload(start: UploadStart, spec: SumSpec) -> Assembler:
    """Return an assembler for an announced upload.

    Raises:
        RemoteProtocolError: the announced length is not that of the sum; nothing was allocated.
    """
    return Assembler(_agreed(start.length, spec.upload_bytes, f"{spec.purpose.value} upload"), start.sha256)


def expect_broadcast(start: BroadcastStart, greatest_bytes: int) -> Assembler:
    """Return an assembler for an announced broadcast, whose length the plan limits.

    Raises:
        RemoteProtocolError: the announced length is greater; nothing was allocated.
    """
    if start.length > greatest_bytes:
        raise RemoteProtocolError(
            f"the {start.kind.value} is announced with {start.length} bytes, the plan allows {greatest_bytes}",
            "compare the plan digests and the versions of fedfair on both sides",
        )
    return Assembler(start.length, start.sha256)


def agreed_vector_length(start: SecaggMessage, lengths: frozenset[int]) -> int:
    """Return the length of the vector that follows a message: a masked one, or the body of an opened sum.

    Neither needs a digest here: an upload carries that of its vector, and a site checks the sum itself.

    Args:
        start: what was announced.
        lengths: the lengths that such vectors of this plan have.

    Raises:
        RemoteProtocolError: the announced length is none of them; nothing was allocated.
    """
    if start.vector_length not in lengths:
        expected = " or ".join(str(length) for length in sorted(lengths)) or "plain, without any"
        raise RemoteProtocolError(
            f"a vector of secure aggregation is announced with {start.vector_length} bytes, "
            f"the plan makes it {expected}",
            "compare the plan digests and the versions of fedfair on both sides",
        )
    return start.vector_length


def _agreed(announced: int, expected: int, what: str) -> int:
    if announced != expected:
        raise RemoteProtocolError(
            f"{what} is announced with {announced} bytes, the plan makes it {expected}",
            "compare the plan digests and the versions of fedfair on both sides",
        )
    return expected


class Assembler:
    """One vector that is arriving; holds exactly `expected_length` bytes from the start.

    The length must have been checked against the plan (`expect_upload`, `expect_broadcast`,
    `agreed_vector_length`). Without a digest, the receiver of the vector checks it.
    """

    def __init__(self, expected_length: int, sha256: bytes | None) -> None:
        # Not filled with zeros: `take` gives out nothing but what has arrived, and whole.
        self._buffer = np.empty(expected_length, np.uint8).data
        self._arrived = 0
        self._hash = hashlib.sha256()
        self._expected_digest = sha256
        self._taken = False

    @property
    def missing(self) -> int:
        """Return how many bytes have not arrived yet."""
        return len(self._buffer) - self._arrived

    @property
    def complete(self) -> bool:
        """Return whether every byte has arrived; the digest is checked by `take`."""
        return not self.missing

    def add(self, chunk: Chunk) -> None:
        """Append a chunk.

        Raises:
            RemoteProtocolError: it reaches beyond the announced length; nothing was appended.
        """
        size = len(chunk.data)
        if size > self.missing:
            raise RemoteProtocolError(
                f"a chunk of {size} bytes arrived where {self.missing} of {len(self._buffer)} were missing"
            )
        self._buffer[self._arrived : self._arrived + size] = chunk.data
        if self._expected_digest is not None:
            self._hash.update(chunk.data)
        self._arrived += size

    def take(self, *, writable: bool = False) -> memoryview:
        """Return the whole vector without a copy; only once, so that no caller keeps it by habit.

        Args:
            writable: whether the receiver may use its memory for something else.

        Raises:
            LocalProtocolError: it is not complete, or was taken before.
            RemoteProtocolError: the digest is not the announced one.
        """
        if self._taken or not self.complete:
            state = "was taken already" if self._taken else f"lacks {self.missing} bytes"
            raise LocalProtocolError(f"a vector of {len(self._buffer)} bytes {state}")
        if self._expected_digest is not None and self._hash.digest() != self._expected_digest:
            raise RemoteProtocolError(
                f"a vector of {len(self._buffer)} bytes has SHA-256 {self._hash.hexdigest()}, "
                f"announced was {self._expected_digest.hex()}",
                "it was damaged on its way or changed while it was sent; send it again",
            )
        self._taken = True
        view, self._buffer = self._buffer, memoryview(b"")
        return view if writable else view.toreadonly()
