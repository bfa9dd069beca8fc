"""One stream to the aggregator: opened, introduced, read and written.

Carries frames and tells two kinds of failure apart: the network's, after which trying again makes sense
(`UnreachableError`), and the other side's, after which it does not. What the frames mean is `inbox.py`'s business.
No other module hands anything to gRPC, and here nothing is handed over that was not recorded before (`egress.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import grpc

from fedfair.audit.items import Item, StreamItems
from fedfair.audit.keeper import AT_CONNECTION, Occasion
from fedfair.errors import ConnectionRefusedByPeerError, FedfairError, UnreachableError
from fedfair.wire.codec import (
    decode_aggregator_frame,
    decode_check_reply,
    encode_check_request,
    encode_collaborator_frame,
)
from fedfair.wire.frames import AggregatorFrame, CheckReply, CheckRequest, CollaboratorFrame, SumStart, showable
from fedfair.wire.limits import MAX_FRAME_BYTES
from fedfair.wire.service import CHECK, PARTICIPATE

CHECK_SECONDS = 30.0
"""How long the aggregator may take to answer a preflight question."""

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    # A firewall that drops idle connections, or a vanished aggregator, is noticed within a minute, also in the
    # middle of long local training.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    # One process has one channel; a shared pool would keep a broken connection for the next attempt.
    ("grpc.use_local_subchannel_pool", 1),
    # Attempts and their waiting times are ours (`backoff.py`).
    ("grpc.enable_retries", 0),
)

_HOPELESS = {
    grpc.StatusCode.UNIMPLEMENTED: "does not offer this service; is it a fedfair aggregator of this version?",
    grpc.StatusCode.PERMISSION_DENIED: "refuses this site",
    grpc.StatusCode.UNAUTHENTICATED: "refuses this site",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the aggregator listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Egress(Protocol):
    """Who is told of everything before it is sent: `egress.EgressRecord`."""

    def sending(self, raw: bytes, what: Item, occasion: Occasion) -> None:
        """Record one message, or raise so that it is not sent."""


class Link:
    """One open stream; at most one task writes and one reads.

    Args:
        call: the stream.
        address: where it leads, for messages.
        egress: is told of every frame before it is sent.

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

    def answer(self, start: SumStart) -> None:
        """Note that what is sent from now on belongs to this sum."""
        self._occasion = Occasion(start.purpose, start.round, start.attempt)

    async def send(self, frame: CollaboratorFrame) -> None:
        """Record one frame and send it; waits while the aggregator does not read.

        Raises:
            AuditError: it cannot be recorded, so it was not sent.
            UnreachableError: the stream is broken.
            ConnectionRefusedByPeerError: the aggregator does not want it.
        """
        raw = encode_collaborator_frame(frame)
        self._egress.sending(raw, self._items.next(frame), self._occasion)
        try:
            await self._call.write(raw)
        except grpc.aio.AioRpcError as error:
            raise explained(error.code(), error.details(), self._address) from error
        except grpc.aio.UsageError as error:
            # The call ended between two writes; its status says how.
            raise explained(await self._call.code(), await self._call.details(), self._address) from error
        self.bytes_sent += len(raw)

    async def finish(self) -> None:
        """Say that nothing more will be sent; the aggregator closes the stream when it has read everything."""
        await self._call.done_writing()

    async def frames(self) -> AsyncIterator[AggregatorFrame]:
        """Yield every frame until the aggregator closes the stream.

        Raises:
            UnreachableError: the stream is broken.
            ConnectionRefusedByPeerError: the aggregator does not want it.
            RemoteProtocolError: what arrived is not a frame.
        """
        try:
            async for raw in self._call:
                self.bytes_received += len(raw)
                yield decode_aggregator_frame(raw)
        except grpc.aio.AioRpcError as error:
            raise explained(error.code(), error.details(), self._address) from error


@asynccontextmanager
async def open_link(address: Address, credentials: grpc.ChannelCredentials, egress: Egress) -> AsyncIterator[Link]:
    """Open a stream for as long as the block runs; leaving the block ends it."""
    async with grpc.aio.secure_channel(str(address), credentials, options=CHANNEL_OPTIONS) as channel:
        # Frames are bytes already; `bytes` hands them through as they are.
        call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
        try:
            yield Link(call, address, egress)
        finally:
            call.cancel()


async def ask(
    address: Address, credentials: grpc.ChannelCredentials, request: CheckRequest, egress: Egress
) -> CheckReply:
    """Record a preflight question, ask it, and return the answer.

    Raises:
        AuditError: it cannot be recorded, so it was not asked.
        UnreachableError: nobody answers.
        ConnectionRefusedByPeerError: the aggregator does not want to answer.
        RemoteProtocolError: what arrived is no answer.
    """
    raw = encode_check_request(request)
    async with grpc.aio.secure_channel(str(address), credentials, options=CHANNEL_OPTIONS) as channel:
        egress.sending(raw, Item.PREFLIGHT, AT_CONNECTION)
        try:
            reply = await channel.unary_unary(CHECK, bytes, bytes)(raw, timeout=CHECK_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise explained(error.code(), error.details(), address) from error
    return decode_check_reply(reply)


def explained(code: grpc.StatusCode, details: str | None, address: Address) -> FedfairError:
    """Return the fault that a gRPC status stands for: the network's, or a refusal."""
    words = showable(details or code.name.lower())
    if code in _HOPELESS:
        return ConnectionRefusedByPeerError(f"{address} {_HOPELESS[code]}: {words}")
    return UnreachableError(f"the connection to {address} broke: {words}")
