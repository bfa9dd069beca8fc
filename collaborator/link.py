"""One stream to the aggregator: opened, introduced, read and written.

Carries frames and tells two kinds of failure apart: the network's, after which trying again makes sense
(`UnreachableError`), and the other side's, after which it does not. What the frames mean is `receiving.py`'s
business. No other module hands anything to gRPC, and here nothing is handed over that was not recorded before
(`egress.py`).

Every await of gRPC goes through `carried_out`, which knows all the ways in which one can end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc

from fedfair.audit.items import MessageKind, StreamItems
from fedfair.audit.keeper import AT_CONNECTION, Occasion
from fedfair.errors import ConnectionRefusedByPeerError, FedfairError, UnreachableError
from fedfair.policy.proxy import DIRECT, Route
from fedfair.wire import frames
from fedfair.wire.codec import (
    decode_aggregator_frame,
    decode_check_reply,
    encode_check_request,
    encode_collaborator_frame,
)
from fedfair.wire.limits import MAX_FRAME_BYTES
from fedfair.wire.service import CHECK, KEEPALIVE, PARTICIPATE, KeepAlive

CHECK_SECONDS = 30.0
"""How long the aggregator may take to answer a preflight question."""

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    # One process has one channel; a shared pool would keep a broken connection for the next attempt.
    ("grpc.use_local_subchannel_pool", 1),
    # Attempts and their waiting times are ours (`calls.py`).
    ("grpc.enable_retries", 0),
    # Which proxy is used is ours to say (`fedfair.policy.proxy`); gRPC would read the environment by its own
    # rules.
    ("grpc.enable_http_proxy", 0),
)

Outcome = TypeVar("Outcome")

_HOPELESS = {
    grpc.StatusCode.UNIMPLEMENTED: "does not offer this service; is it a fedfair aggregator of this version?",
    grpc.StatusCode.PERMISSION_DENIED: "refuses this site",
    grpc.StatusCode.UNAUTHENTICATED: "refuses this site",
}


@dataclass(frozen=True, slots=True)
class Address:
    """The address where the aggregator listens, and the route to it."""

    host: str
    port: int
    route: Route = DIRECT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


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
        self._egress.sending(raw, self._items.next(frame), self._occasion, known)
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


def _channel(
    address: Address, credentials: grpc.ChannelCredentials, keepalive: KeepAlive = KEEPALIVE
) -> grpc.aio.Channel:
    """Return a channel that goes by the route of an address.

    Through a proxy the channel leads to the proxy and asks for a tunnel there, as gRPC does where it finds a proxy
    in the environment; inside the tunnel it expects the certificate of the aggregator's own name.
    """
    proxy, options = address.route.proxy, (*CHANNEL_OPTIONS, *keepalive.options)
    if proxy is None:
        return grpc.aio.secure_channel(str(address), credentials, options=options)
    tunnel = [("grpc.http_connect_server", str(address)), ("grpc.default_authority", str(address))]
    if proxy.authorization:
        # gRPC puts the blank after the colon.
        tunnel.append(("grpc.http_connect_headers", f"Proxy-Authorization:{proxy.authorization}"))
    return grpc.aio.secure_channel(proxy.place, credentials, options=(*options, *tunnel))


@asynccontextmanager
async def open_link(
    address: Address, credentials: grpc.ChannelCredentials, egress: Egress, keepalive: KeepAlive = KEEPALIVE
) -> AsyncIterator[Link]:
    """Open a stream for as long as the block runs; leaving the block ends it.

    A firewall that drops idle connections, or an aggregator that has vanished, is noticed as `keepalive` says. So
    it is in the middle of long local training.
    """
    async with _channel(address, credentials, keepalive) as channel:
        # Frames are bytes already; `bytes` hands them through as they are.
        call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
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
    async with _channel(address, credentials) as channel:
        egress.sending(raw, MessageKind.PREFLIGHT, AT_CONNECTION)
        call = channel.unary_unary(CHECK, bytes, bytes)(raw, timeout=CHECK_SECONDS)
        reply = await carried_out(call, call, address)
    return decode_check_reply(reply)


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


async def carried_out(operation: Awaitable[Outcome], call: grpc.aio.Call, address: Address) -> Outcome:
    """Await one operation of gRPC on a call to `address`; return what it returns.

    What it can raise, by grpcio 1.80 (`grpc/aio/_call.py`, `_cygrpc/aio/call.pyx.pxi`): `AioRpcError` with the
    status of a call that the other side ended; `InvalidStateError` from a write after the call has ended;
    `grpc.aio.BaseError` from a half-close that the core no longer takes (`InternalError`) and from a closed
    channel (`UsageError`); `CancelledError` where the call was cancelled on this side, although nobody cancelled
    this task; `KeyError` for a status that gRPC does not define.

    Raises:
        UnreachableError: the call has ended.
        ConnectionRefusedByPeerError: the other side does not want it.
        CancelledError: this task was cancelled.
    """
    try:
        return await operation
    except grpc.aio.AioRpcError as error:
        raise explained(error.code(), error.details(), address) from error
    except (asyncio.InvalidStateError, grpc.aio.BaseError) as error:
        raise await _ended(call, address, frames.showable(str(error))) from error
    except KeyError as error:
        raise UnreachableError(f"the connection to {address} broke: gRPC knows no status {error}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UnreachableError(f"the connection to {address} broke: it was ended on this side") from error


async def _ended(call: grpc.aio.Call, address: Address, words: str) -> FedfairError:
    """Return how a call ended, as its status says; in gRPC's own words where it has no status yet."""
    if not call.done():
        return UnreachableError(f"the connection to {address} broke: {words}")
    try:
        return explained(await call.code(), await call.details(), address)
    except KeyError as error:
        return UnreachableError(f"the connection to {address} broke: gRPC knows no status {error}")


def explained(code: grpc.StatusCode, details: str | None, address: Address) -> FedfairError:
    """Return the fault that a gRPC status stands for: the network's, or a refusal."""
    if code is grpc.StatusCode.OK:
        return UnreachableError(f"the aggregator at {address} closed the stream")
    words = frames.showable(details or code.name.lower())
    if code in _HOPELESS:
        return ConnectionRefusedByPeerError(f"{address} {_HOPELESS[code]}: {words}")
    return UnreachableError(f"the connection to {address} broke ({address.route.words}): {words}")
