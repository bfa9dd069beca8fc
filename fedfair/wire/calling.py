"""Calls another fedfair process: the address, the channel to it, and all the ways in which a call can end.

Two kinds of failure are told apart: the network's, after which trying again makes sense (`UnreachableError`), and
the other side's, after which it does not. Every await of gRPC goes through `carried_out`, which knows them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import grpc

from fedfair.errors import ConnectionRefusedByPeerError, FedfairError, UnreachableError
from fedfair.policy.proxy import DIRECT, Route
from fedfair.wire import frames
from fedfair.wire.limits import MAX_FRAME_BYTES
from fedfair.wire.service import KEEPALIVE, KeepAlive

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


def open_channel(
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
