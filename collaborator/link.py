"""One stream to the aggregator: opened, introduced, read and written.

What the frames mean is `receiving.py`'s business, and how a call can end `fedfair.wire.calling`'s. No other module
hands anything of a run to gRPC, and here nothing is handed over that was not recorded before (`egress.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Protocol

import grpc

from fedfair.audit.items import MessageKind, StreamItems
from fedfair.audit.keeper import AT_CONNECTION, Occasion
from fedfair.wire import frames
from fedfair.wire.calling import Address, carried_out, open_channel
from fedfair.wire.codec import (
    decode_aggregator_frame,
    decode_check_reply,
    encode_check_request,
    encode_collaborator_frame,
)
from fedfair.wire.hub import PLAN_KEY
from fedfair.wire.service import CHECK, KEEPALIVE, PARTICIPATE, KeepAlive

CHECK_SECONDS = 30.0
"""How long the aggregator may take to answer a preflight question."""


class Egress(Protocol):
    """The record that receives everything before it is sent: `egress.EgressRecord`."""

    def sending(self, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b"") -> None:
        """Record one message, or raise so that it is not sent; its SHA-256 is given where it is known."""


class Link:
    """One open stream; at most one task writes and one reads.

    Args:
        call: the stream.
        address: where it leads, for messages.
        egress: receives every frame before it is sent.

    Attributes:
        bytes_sent: bytes of frames so far.
        bytes_received: bytes of frames so far.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[bytes, bytes], address: Address, egress: Egress) -> None:
        self._call = call
        self._address = address
        self._egress = egress
        self._items = StreamItems()
        self._occasion = AT_CONNECTION
        self.bytes_sent = 0
        self.bytes_received = 0

    def answer(self, start: frames.SumStart) -> None:
        """Note that what is sent from now on belongs to this sum."""
        self._occasion = Occasion(start.purpose, start.round, start.attempt)

    async def send(self, frame: frames.CollaboratorFrame) -> None:
        """Record one frame and send it; waits while the aggregator does not read.

        Raises:
            AuditError: it cannot be recorded, so it was not sent.
            UnreachableError: the stream is broken.
            ConnectionRefusedByPeerError: the aggregator does not want it.
        """
        raw = encode_collaborator_frame(frame)
        known = frame.sha256 if isinstance(frame, frames.Chunk) else b""
        # A checkpoint belongs to no sum: it may overtake the next request, or be overtaken.
        occasion = AT_CONNECTION if isinstance(frame, frames.Witnessed) else self._occasion
        self._egress.sending(raw, self._items.next(frame), occasion, known)
        writing = self._call.write(raw)
        if not self.bytes_sent:
            writing = unless_cancelled(writing, self._call)
        await carried_out(writing, self._call, self._address)
        self.bytes_sent += len(raw)

    async def finish(self) -> None:
        """Say that nothing more will be sent; the aggregator closes the stream when it has read everything.

        Raises:
            UnreachableError: the stream is broken.
            ConnectionRefusedByPeerError: the aggregator does not want it.
        """
        await carried_out(self._call.done_writing(), self._call, self._address)

    async def frames(self) -> AsyncIterator[frames.AggregatorFrame]:
        """Yield every frame until the aggregator closes the stream.

        Raises:
            UnreachableError: the stream is broken.
            ConnectionRefusedByPeerError: the aggregator does not want it.
            RemoteProtocolError: what arrived is not a frame.
        """
        arriving = aiter(self._call)
        while (raw := await carried_out(anext(arriving, None), self._call, self._address)) is not None:
            self.bytes_received += len(raw)
            yield decode_aggregator_frame(raw)


@asynccontextmanager
async def open_link(
    address: Address,
    credentials: grpc.ChannelCredentials,
    egress: Egress,
    plan_digest: bytes,
    keepalive: KeepAlive = KEEPALIVE,
) -> AsyncIterator[Link]:
    """Open a stream about a plan for as long as the block runs; leaving the block ends it.

    A firewall that drops idle connections, or an aggregator that has vanished, is noticed as `keepalive` says. So
    it is in the middle of long local training.
    """
    async with open_channel(address, credentials, keepalive) as channel:
        # Frames are bytes already; `bytes` hands them through as they are.
        call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None, metadata=naming(plan_digest))
        try:
            yield Link(call, address, egress)
        finally:
            call.cancel()


async def ask(
    address: Address, credentials: grpc.ChannelCredentials, request: frames.CheckRequest, egress: Egress
) -> frames.CheckReply:
    """Record a preflight question, ask it, and return the answer.

    Raises:
        AuditError: it cannot be recorded, so it was not asked.
        UnreachableError: nothing answers.
        ConnectionRefusedByPeerError: the aggregator does not want to answer.
        RemoteProtocolError: what arrived is no answer.
    """
    raw = encode_check_request(request)
    async with open_channel(address, credentials) as channel:
        egress.sending(raw, MessageKind.PREFLIGHT, AT_CONNECTION)
        call = channel.unary_unary(CHECK, bytes, bytes)(
            raw, timeout=CHECK_SECONDS, metadata=naming(request.plan_digest)
        )
        reply = await carried_out(call, call, address)
    return decode_check_reply(reply)


def naming(plan_digest: bytes) -> grpc.aio.Metadata:
    """Return the metadata by which a hub of several plans knows which one a call is about.

    Args:
        plan_digest: 32 bytes.
    """
    return grpc.aio.Metadata((PLAN_KEY, plan_digest.hex()))


async def unless_cancelled(
    writing: Coroutine[object, None, None], call: grpc.aio.StreamStreamCall[bytes, bytes]
) -> None:
    """Await the write of a call's first message; end also where this side cancels the call before it is connected.

    gRPC's own write would wait for ever then: what it waits for is set only once the call was sent, or once the
    core says how it failed (`_metadata_sent` in `grpc/aio/_call.py` of grpcio 1.80 to 1.85).

    Raises:
        CancelledError: the call was cancelled, although nobody cancelled this task.
        Exception: whatever the write raises.
    """
    task = asyncio.ensure_future(writing)

    def end(ended: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        if ended.cancelled():
            task.cancel()

    call.add_done_callback(end)
    await task
