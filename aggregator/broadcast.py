"""Sends what several collaborators get as it is: a state of the run, an opened sum.

Each frame is encoded at the moment in which it is written, so that a long vector is not copied for each reader.
Nothing of it changes: a state and an opened sum are values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from fedfair.store.spilled import forget_pages, pieces
from fedfair.wire.chunking import broadcast_frames, masked_frames
from fedfair.wire.codec import encode_aggregator_frame
from fedfair.wire.frames import BroadcastKind


class Broadcast:
    """Bytes for a site that is not in step.

    Args:
        kind: what they are.
        payload: the bytes.

    Attributes:
        nbytes: their length.
    """

    def __init__(self, kind: BroadcastKind, payload: bytes | memoryview) -> None:
        self.nbytes = len(payload)
        self._kind, self._payload = kind, payload
        digest = hashlib.sha256()
        for piece in pieces(payload):
            digest.update(piece)
        self._sha256 = digest.digest()

    def frames(self) -> Iterator[bytes]:
        """Yield the announcement and the chunks, each encoded when it is asked for."""
        frames = broadcast_frames(self._kind, self._payload, self._sha256)
        yield from (encode_aggregator_frame(frame) for frame in frames)
        forget_pages(self._payload)


class VectorMessage:
    """One message of secure aggregation with its vector.

    Attributes:
        nbytes: length of message and vector.
    """

    def __init__(self, message: bytes, vector: bytes | memoryview) -> None:
        self._message, self._vector = message, vector
        self.nbytes = len(message) + len(vector)

    def frames(self) -> Iterator[bytes]:
        """Yield the message and the chunks, each encoded when it is asked for."""
        yield from (encode_aggregator_frame(frame) for frame in masked_frames(self._message, self._vector))
        forget_pages(self._vector)
