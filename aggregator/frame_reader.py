"""Reads one stream: records each message, then decodes it frame by frame.

Decides how long a peer may stand still in the middle of an upload. What a frame leads to is for `service.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib

from aggregator.connection import Connection
from aggregator.received_log import ReceivedLog
from aggregator.server_call import ServerCall
from fedfair.audit.items import StreamItems
from fedfair.audit.keeper import AT_CONNECTION
from fedfair.errors import RemoteProtocolError
from fedfair.ids import ParticipantId
from fedfair.wire.codec import decode_collaborator_frame
from fedfair.wire.frames import Chunk, CollaboratorFrame, Witnessed

STALL_SECONDS = 30.0
"""How long an upload may stand still before it gives its place up."""

HASHED_AT_ONCE_BYTES = 1 << 16
"""Handing a chunk to a thread and back costs the event loop more than hashing one as short as this."""


class Stalled(Exception):  # noqa: N818 - not an error of anybody: the network stands still
    """An upload that no longer moves."""


class FrameReader:
    """The receiving half of one authenticated stream.

    Args:
        call: the stream.
        name: who speaks on it, by its certificate.
        mirror: receives every message before it is looked at.

    Attributes:
        connection: what the stream was asked for, once it is let in; None before.
    """

    def __init__(self, call: ServerCall, name: ParticipantId, mirror: ReceivedLog) -> None:
        self._call = call
        self._name = name
        self._mirror = mirror
        self._items = StreamItems()
        self.connection: Connection | None = None

    async def frame(self) -> CollaboratorFrame | None:
        """Return the next frame; None where the stream has ended.

        Raises:
            RemoteProtocolError: what arrived is no frame.
            StreamEnded: the stream is broken.
        """
        raw = await self._call.read()
        if raw is None:
            return None
        try:
            frame = decode_collaborator_frame(raw)
        except RemoteProtocolError:
            self._record(raw, None)
            raise
        if not isinstance(frame, Chunk):
            self._record(raw, frame)
            return frame
        # Hashed once, for the mirror and for the digest of the vector.
        digest = await self._digest(raw, frame)
        self._record(raw, frame, digest)
        return Chunk(frame.data, digest)

    async def _digest(self, raw: bytes, frame: Chunk) -> bytes:
        """Return the SHA-256 of a chunk; nearly all bytes are in long ones, which a thread hashes."""
        if len(raw) <= HASHED_AT_ONCE_BYTES:
            return hashlib.sha256(raw).digest()
        try:
            return await asyncio.to_thread(_sha256, raw)
        except asyncio.CancelledError:
            self._record(raw, frame)
            raise

    async def chunk(self) -> Chunk:
        """Return the next piece of a vector.

        Raises:
            Stalled: nothing arrives.
            RemoteProtocolError: something else arrives.
        """
        frame: CollaboratorFrame | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STALL_SECONDS):
                frame = await self.frame()
                if frame is None:
                    raise Stalled("the stream ended in the middle of an upload")
        if frame is None:
            raise Stalled(f"the upload stood still for {STALL_SECONDS:.0f} s")
        if not isinstance(frame, Chunk):
            raise RemoteProtocolError(f"{type(frame).__name__} interrupts the chunks of an upload")
        return frame

    def _record(self, raw: bytes, frame: CollaboratorFrame | None, sha256: bytes = b"") -> None:
        occasion = AT_CONNECTION
        if self.connection is not None and not isinstance(frame, Witnessed):
            occasion = self.connection.occasion
        self._mirror.received(self._name, raw, self._items.next(frame), occasion, sha256)


def _sha256(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()
