"""A vector on its way to everybody, without a copy per collaborator.

The chunks are cut from the one global vector at the moment in which they are written. The vector is changed in
place when a training sum closes, so a publication can be withdrawn: whoever has not received all of it by then is
too late for the sum it belonged to, loses its stream, and gets the next model when it returns. The alternative,
copying the vector for laggards, would make the aggregator's memory depend on how slow its slowest reader is.
A chunk of the changed vector can never leave under the old digest: cutting a chunk and looking at `withdrawn`
happen without an interruption in between, and the receiver checks the digest of the whole.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.wire.chunking import broadcast_frames, masked_frames
from fedfair.wire.codec import encode_aggregator_frame
from fedfair.wire.frames import BroadcastKind
from fedfair.wire.limits import MAX_CHUNK_BYTES


class Broadcast:
    """One vector that is being sent.

    Attributes:
        sha256: of the whole vector, 32 bytes.
        nbytes: its length.
        withdrawn: True from the moment in which the vector can no longer be sent to its end.
    """

    def __init__(self, kind: BroadcastKind, view: memoryview, sha256: bytes, threshold: float = 0.0) -> None:
        self.sha256 = sha256
        self.nbytes = len(view)
        self.withdrawn = False
        self._kind, self._view, self._threshold = kind, view, threshold
        # A vector of one chunk is encoded once for everybody, and so survives the change of the model.
        self._encoded = list(self._encode()) if self.nbytes <= MAX_CHUNK_BYTES else None

    def withdraw(self) -> None:
        """Say that the vector is about to change, or has changed since the last chunk was cut."""
        self.withdrawn = self._encoded is None

    def frames(self) -> Iterator[bytes]:
        """Yield the announcement and the chunks, each encoded when it is asked for."""
        return iter(self._encoded) if self._encoded is not None else self._encode()

    def _encode(self) -> Iterator[bytes]:
        frames = broadcast_frames(self._kind, self._view, self.sha256, self._threshold)
        return (encode_aggregator_frame(frame) for frame in frames)


class VectorMessage:
    """One message of secure aggregation with its vector, which everybody is sent and which never changes.

    Attributes:
        nbytes: length of message and vector.
        withdrawn: never True.
    """

    withdrawn = False

    def __init__(self, message: bytes, vector: bytes) -> None:
        self._message, self._vector = message, vector
        self.nbytes = len(message) + len(vector)

    def frames(self) -> Iterator[bytes]:
        """Yield the message and the chunks, each encoded when it is asked for."""
        return (encode_aggregator_frame(frame) for frame in masked_frames(self._message, self._vector))


async def publish_model(model: GlobalModel) -> Broadcast:
    """Return a publication of the present model; the caller withdraws it before the model changes."""
    view = _little_endian(model.vector)
    return Broadcast(BroadcastKind.MODEL, view, await _digest(view), model.threshold)


async def publish_scaling(scaling: FeatureScaling) -> Broadcast:
    """Return a publication of the feature scaling: all means, then all scales, float64."""
    view = _little_endian(np.concatenate([scaling.mean, scaling.scale]))
    return Broadcast(BroadcastKind.FEATURE_SCALING, view, await _digest(view))


def _little_endian(vector: NDArray[np.floating]) -> memoryview:
    # No copy on any machine that PyTorch supports today: all are little-endian.
    wire = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return wire.data.cast("B").toreadonly()


async def _digest(view: memoryview) -> bytes:
    if len(view) <= MAX_CHUNK_BYTES:
        return hashlib.sha256(view).digest()
    # hashlib lets go of the interpreter lock, so the streams go on while a long vector is hashed.
    return (await asyncio.to_thread(hashlib.sha256, view)).digest()
