"""The digest of a vector: from the digests of the frames that carry it, so that nobody hashes it twice.

A vector travels in pieces of 1 MiB, the last one shorter, each in a frame of its own. The records of both sides
hold the SHA-256 of every frame. The digest that a site signs is made of exactly these, in order. So an upload is
hashed once at the site and once at the aggregator, and a record proves which vector a signature is of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from fedfair.secagg.transcript import root_digest

PIECE_BYTES = 1 << 20
"""Loopback over mutual TLS carries no more with 4 MiB than with 1 MiB (about 1 GB/s); memory is dearer."""

CHUNK_FIELD, _DATA_FIELD = b"\x1a", b"\x0a"
"""The tags of field 3 of a frame and of field 1 of a chunk, both of them bytes with a length."""

_Bytes = bytes | bytearray | memoryview


@lru_cache(maxsize=8)
def frame_prefix(size: int) -> bytes:
    """Return the bytes of a frame that come before its piece.

    Args:
        size: of the piece, in bytes; at least 1.
    """
    inner = _DATA_FIELD + _varint(size)
    return CHUNK_FIELD + _varint(len(inner) + size) + inner


def pieces_of(vector: _Bytes) -> Iterator[memoryview]:
    """Yield a vector in pieces, each of which travels in one frame; views, not copies."""
    view = memoryview(vector).cast("B")
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def frame_sha256(piece: _Bytes) -> bytes:
    """Return the SHA-256 (32 bytes) of the frame that carries a piece."""
    digest = hashlib.sha256(frame_prefix(len(piece)))
    digest.update(piece)
    return digest.digest()


Mapped = Callable[[Callable[[memoryview], bytes], Iterable[memoryview]], Iterable[bytes]]


def frames_sha256(vector: _Bytes, mapped: Mapped = map) -> tuple[bytes, ...]:
    """Return the SHA-256 of each frame that carries a vector, in order.

    Args:
        vector: of any length.
        mapped: `map`, or that of several threads.
    """
    return tuple(mapped(frame_sha256, pieces_of(vector)))


def vector_digest(vector: _Bytes) -> bytes:
    """Return the digest (32 bytes) of a vector."""
    return root_digest(len(vector), frames_sha256(vector))


class ArrivingDigest:
    """The digest of a vector that arrives in parts of any length.

    Args:
        length: of the whole vector, in bytes.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._arrived = 0
        self._frames: list[bytes] = []
        self._piece = hashlib.sha256()

    def add(self, part: memoryview, known: bytes = b"") -> None:
        """Take the next bytes.

        Args:
            part: no more of them than are missing.
            known: the SHA-256 of the frame in which they came alone; empty where it is not known.
        """
        while part:
            begun = self._arrived % PIECE_BYTES
            size = min(PIECE_BYTES, self._length - self._arrived + begun)
            if not begun:
                if known and len(part) == size:
                    self._frames.append(known)
                    self._arrived += size
                    return
                self._piece = hashlib.sha256(frame_prefix(size))
            taken = part[: size - begun]
            self._piece.update(taken)
            self._arrived += len(taken)
            if begun + len(taken) == size:
                self._frames.append(self._piece.digest())
            # What is known is the digest of all that came together, and not of what is left of it.
            part, known = part[len(taken) :], b""

    def digest(self) -> bytes:
        """Return the digest of the whole vector, as `vector_digest`; everything must have arrived."""
        return root_digest(self._length, self._frames)


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes it: 7 bits a byte, the lowest first, and a flag where more follow."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
