"""One masked vector that is added to a running sum while it arrives, block by block.

An upload counts only when it is whole, has the digest that its author has signed, and comes once. Until then it
may break off or be refused. What was added of it must then be out again, exactly, and nothing that was dropped can
be subtracted. So the sum with the upload is written to a second body, and the sum itself stays as it is. When the
upload counts, the two bodies change places. When it does not, the second one is memory to be written over.

Of the upload itself at most one block is held. The difference of the two bodies is what has arrived of it, and a
sum that a broken upload can be taken out of cannot hold less. That difference is as masked as it was on the wire.

Other uploads may be added meanwhile: they are added to what is written of the second body, too. Its owner lets
only one thread at a time add to a sum; `close` may come from another at any time. Decides nothing about who may
upload, which is `server`'s business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.secagg.fixedpoint import BLOCK_VALUES, RING_OF_WHOLE_WORDS, unpack
from fedfair.secagg.shape import SumShape, packed_bytes
from fedfair.secagg.vector_digest import ArrivingDigest

if TYPE_CHECKING:
    from collections.abc import Callable


class ArrivingVector:
    """A vector on its way into a running sum.

    Args:
        shape: of the sum.
        ring_bits: width of a body value on its way.
        body: uint32 (body_length,), the words of the sum without it.
        spare: uint32 (body_length,), where the words of the sum with it are written.
        closed: called once, when nothing more will be written.
    """

    def __init__(
        self,
        shape: SumShape,
        ring_bits: int,
        body: NDArray[np.uint32],
        spare: NDArray[np.uint32],
        closed: Callable[[], None],
    ) -> None:
        self._header_bytes = shape.header_bytes()
        self._length = shape.vector_bytes(ring_bits)
        self._ring_bits = ring_bits
        self._block_bytes = packed_bytes(BLOCK_VALUES, ring_bits)
        self._whole_bytes = 0  # of the body, in whole blocks
        self._body, self._spare = body, spare
        self._closed = closed
        self._arrived = 0
        self._part = bytearray()  # what has arrived of the header, or of a block that is not whole yet
        self._header: NDArray[np.uint64] | None = None
        self._digest = ArrivingDigest(self._length)
        self._words = np.empty(BLOCK_VALUES, np.uint32)
        self._written = 0
        self._is_live = True

    def __len__(self) -> int:
        """Return how many bytes have arrived."""
        return self._arrived

    @property
    def missing(self) -> int:
        """Return how many bytes have not arrived yet."""
        return self._length - self._arrived

    def add(self, data: bytes | memoryview, frame_sha256: bytes = b"") -> None:
        """Add the next bytes; what comes after the sum is over is counted and dropped.

        Args:
            data: at least one byte.
            frame_sha256: of the frame in which they came alone, where it is known: then they are not hashed again.

        Raises:
            LocalProtocolError: they reach beyond the vector; nothing was added.
        """
        view = memoryview(data).cast("B")
        if len(view) > self.missing:
            raise LocalProtocolError(f"{len(view)} bytes where {self.missing} of a masked vector are missing")
        if not self._is_live:
            self._arrived += len(view)
            return
        self._digest.add(view, frame_sha256)
        while view:
            view = self._add_some(view)

    def digest(self) -> bytes:
        """Return the digest of the whole vector, as `vector_digest.vector_digest`.

        Raises:
            LocalProtocolError: some of it is missing.
        """
        if self.missing:
            raise LocalProtocolError(f"{self.missing} bytes of a masked vector are missing")
        return self._digest.digest()

    def close(self) -> None:
        """Take no part in the sum any more: nothing is written to either body, and the memory is given back."""
        if self._is_live:
            self._is_live = False
            self._body = self._spare = self._words[:0]
            self._part.clear()
            self._closed()

    # -------------------------------------------------------------- what the running sum calls

    def include(self, words: NDArray[np.uint32], start: int) -> None:
        """Add words of another vector to what is written of the sum with this one.

        Args:
            words: uint32, of the body of another vector.
            start: where in the body they begin.
        """
        spare = self._spare  # Once it is closed, an empty one.
        stop = min(start + words.size, self._written, spare.size)
        if start < stop:
            spare[start:stop] += words[: stop - start]

    def take(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Return the header of the vector, and the body of the sum with it; afterwards it is closed.

        Raises:
            LocalProtocolError: some of it is missing, or it is closed.
        """
        header, body = self._header, self._spare  # Before the look at whether it is closed, which may come now.
        if self.missing or header is None or not self._is_live:
            raise LocalProtocolError(f"a masked vector of which {self.missing} bytes are missing is not added")
        self.close()
        return header, body

    # -------------------------------------------------------------- one block

    def _add_some(self, view: memoryview) -> memoryview:
        """Take the next bytes up to the end of the header or of a block; return the rest."""
        if self._header is None:
            due = self._header_bytes
        else:
            due = min(self._block_bytes, self._length - self._header_bytes - self._whole_bytes)
        if not self._part and len(view) >= due:
            self._arrived += due
            self._take_whole(view[:due])
            return view[due:]
        size = min(due - len(self._part), len(view))
        self._part += view[:size]
        self._arrived += size
        if len(self._part) == due:
            whole, self._part = self._part, bytearray()
            self._take_whole(memoryview(whole))
        return view[size:]

    def _take_whole(self, part: memoryview) -> None:
        if self._header is None:
            self._header = np.frombuffer(bytes(part), "<u8").astype(np.uint64)
            return
        start = self._written
        stop = min(start + BLOCK_VALUES, self._body.size)
        np.add(self._body[start:stop], self._block(part, stop - start), out=self._spare[start:stop])
        self._written = stop
        self._whole_bytes += len(part)

    def _block(self, part: memoryview, size: int) -> NDArray[np.uint32]:
        if self._ring_bits == RING_OF_WHOLE_WORDS:
            return np.frombuffer(part, np.uint32, size)
        words = self._words[:size]
        unpack(np.frombuffer(part, np.uint8), self._ring_bits, words)
        return words
