"""Streams that end at every instant around a write, over a loopback socket, on both sides of gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from aggregator.outcome import EndState
from aggregator.server_call import ServerCall
from aggregator.token_bucket import PeerLimits
from collaborator.link import Link, unless_cancelled
from collaborator.preparation import introduction
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Occasion
from fedfair.cli.loopback import prepare
from fedfair.errors import ConnectionRefusedByPeerError, RemoteProtocolError, UnreachableError
from fedfair.identity.preflight import preflight
from fedfair.identity.tls import channel_credentials
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.wire.calling import CHANNEL_OPTIONS, Address
from fedfair.wire.codec import encode_aggregator_frame, encode_collaborator_frame
from fedfair.wire.frames import Abstain, SecaggMessage, Welcome
from fedfair.wire.service import PARTICIPATE, PARTICIPATE_METHOD, SERVICE
from tests.interop.federation_kit import NAMES, Federation, play
from tests.patience import PATIENCE
from tests.plans import small_plan

DOCUMENTED = (UnreachableError, ConnectionRefusedByPeerError, RemoteProtocolError)
WINDOW_SECONDS = 0.012
"""How long after the answer a stream may live: long enough for a few writes, short enough to end in one."""

AT_ONCE = 24
STREAMS_A_CHANNEL = 2
"""Each may open one more, and a connection carries four calls."""

ENDINGS = ("return", "abort", "refuse", "cancel", "close", "stop")
"""The handler returns, aborts or refuses; this side cancels the call or closes the channel; the server stops."""
WELCOME = encode_aggregator_frame(Welcome("0" * 32, 0, 9))
FRAME = SecaggMessage(bytes(400))
NO_LIMITS = PeerLimits(burst=1000)
"""As many streams at once as many sites begin, of which each may begin few."""

LEAVES = ("cancel", "close", "finish", "misbehave", "decline", "reconnect")
"""What a site does in the middle of whatever the aggregator is writing to it."""

ENDED_STREAM = (
    grpc.aio.AioRpcError,
    grpc.aio.BaseError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
    StopAsyncIteration,
)
"""What is raised where a stream has ended."""

Context = grpc.aio.ServicerContext[bytes, bytes]


class Unrecorded:
    """The record of a site whose messages nobody wants to read."""

    def sending(self, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b"") -> None:
        pass


class EndingService:
    """Answers the first frame of every stream, and ends the stream a moment later in the way that it was told."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        method = grpc.stream_stream_rpc_method_handler(self._participate)
        return grpc.method_handlers_generic_handler(SERVICE, {PARTICIPATE_METHOD: method})

    async def _participate(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        await context.read()
        await context.write(WELCOME)
        how = dict(context.invocation_metadata() or ())["how"]
        await asyncio.sleep(self._draw.uniform(0, WINDOW_SECONDS))
        if how == "abort":
            await context.abort(grpc.StatusCode.ABORTED, "cut")
        elif how == "refuse":
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        elif how != "return":
            # Somebody else ends the stream; the handler only has to be there still.
            await asyncio.sleep(10 * WINDOW_SECONDS)


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler[bytes, bytes]) -> AsyncIterator[tuple[grpc.aio.Server, int]]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("localhost:0")
    await server.start()
    try:
        yield server, port
    finally:
        await server.stop(grace=0)


End = Callable[[grpc.aio.StreamStreamCall[bytes, bytes]], Awaitable[object]]


async def attended(
    channel: grpc.aio.Channel, how: str, draw: random.Random, end: End
) -> tuple[BaseException | None, ...]:
    """Write and read on one stream until it ends; return how writing, reading and half-closing ended."""
    call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None, metadata=(("how", how),))
    link = Link(call, Address("localhost", 1), Unrecorded())
    answered = asyncio.Event()

    async def write() -> None:
        await link.send(FRAME)
        await answered.wait()
        while True:
            await link.send(FRAME)
            await asyncio.sleep(draw.choice((0, 0, 0, 0.0005, 0.001)))

    async def read() -> None:
        try:
            async for _ in link.frames():
                answered.set()
        finally:
            answered.set()
        await link.finish()

    async def end_it() -> None:
        await answered.wait()
        await asyncio.sleep(draw.uniform(0, WINDOW_SECONDS))
        await end(call)

    return await asyncio.gather(write(), read(), end_it(), return_exceptions=True)


async def endings_of(streams: int, how: str, seed: int) -> Counter[str]:
    """Return by name every exception that is not documented, over so many streams."""
    draw, found = random.Random(seed), Counter[str]()  # noqa: S311 - instants, not keys
    for _ in range(0, streams, AT_ONCE):
        # A server and a channel for each group: where one of them ends, all its streams end at once.
        async with (
            serving(EndingService(draw).handler()) as (server, port),
            grpc.aio.insecure_channel(f"localhost:{port}") as channel,
        ):
            end = ending(how, channel, server)
            groups = await asyncio.gather(*(attended(channel, how, draw, end) for _ in range(AT_ONCE)))
        for fault in (fault for group in groups for fault in group if fault is not None):
            if not isinstance(fault, DOCUMENTED):
                found[f"{type(fault).__name__}: {fault}"] += 1
    return found


def ending(how: str, channel: grpc.aio.Channel, server: grpc.aio.Server) -> End:
    """Return what this side, or the whole server, does to end a stream."""

    async def nothing(_: object) -> None:
        pass

    async def cancel(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        call.cancel()

    async def close(_: object) -> None:
        await channel.close(None)

    stopping: list[asyncio.Task[None]] = []

    async def stop(_: object) -> None:
        # Once: gRPC's server is not made to be stopped by two at the same time.
        if not stopping:
            stopping.append(asyncio.ensure_future(server.stop(grace=0)))
        await stopping[0]

    return {"cancel": cancel, "close": close, "stop": stop}.get(how, nothing)


@pytest.mark.parametrize("how", ENDINGS)
def test_a_stream_that_ends_at_any_instant_around_a_write_gives_one_of_the_documented_faults(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        found = asyncio.run(asyncio.wait_for(endings_of(96, how, ENDINGS.index(how)), PATIENCE))
    assert not found
    # Nor is anything left behind in a task that nobody awaits.
    assert not [record.getMessage() for record in caplog.records if "never retrieved" in record.getMessage()]


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_first_message_that_waits_for_its_connection_ends_with_its_call(how: str) -> None:
    async def scenario(silent: socket.socket) -> None:
        port = silent.getsockname()[1]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
            sending = asyncio.create_task(Link(call, Address("127.0.0.1", port), Unrecorded()).send(FRAME))
            connected, _ = await asyncio.get_running_loop().sock_accept(silent)
            with connected:
                if how == "cancel":
                    call.cancel()
                else:
                    await channel.close(None)
                with pytest.raises(UnreachableError, match="it was ended on this side"):
                    await sending

    # Somebody accepts the connection and says nothing, so that gRPC never comes to send the call.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        asyncio.run(asyncio.wait_for(scenario(silent), PATIENCE))


# ------------------------------------------------------------------ the aggregator's side


class CuttingService:
    """Writes until its peer's window is full, and then cuts the stream in the middle of a write."""

    def handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        method = grpc.stream_stream_rpc_method_handler(self._participate)
        return grpc.method_handlers_generic_handler(SERVICE, {PARTICIPATE_METHOD: method})

    async def _participate(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        call = ServerCall(context)
        await call.read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await call.write(bytes(1 << 20))
        await call.abort(grpc.StatusCode.ABORTED, "cut")


def test_a_stream_that_is_cut_in_the_middle_of_a_write_ends_for_a_peer_that_reads_on() -> None:
    async def scenario() -> str:
        async with (
            serving(CuttingService().handler()) as (_, port),
            grpc.aio.insecure_channel(f"localhost:{port}") as channel,
        ):
            call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
            link = Link(call, Address("localhost", port), Unrecorded())
            await link.send(FRAME)
            # Nothing is read until the cut is due: the window is full, and a write stands still in it.
            await asyncio.sleep(1)
            said = aiter(call)
            try:
                while await anext(said, None) is not None:
                    pass
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
            return "nothing"

    assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE)) == "ABORTED: cut"


async def come_and_go(federation: Federation, streams: int, how: str, draw: random.Random) -> None:
    """Open so many streams to an aggregator as its collaborators, and end each at some instant."""
    address = Address("localhost", federation.port)
    for _ in range(streams // AT_ONCE):
        async with AsyncExitStack() as opened:
            hellos, credentials = {}, {}
            for name in NAMES:
                identity = federation.ready(name).site.identity()
                server = await asyncio.to_thread(
                    preflight, address.host, address.port, identity, datetime.now(UTC)
                )
                ready = federation.ready(name)
                hello = introduction(ready.site, identity, ready.binding.digest, ready.approval)
                hellos[name] = encode_collaborator_frame(hello)
                credentials[name] = channel_credentials(identity, server)
            coming = []
            while len(coming) < AT_ONCE:
                name = draw.choice(NAMES)
                channel = await opened.enter_async_context(
                    grpc.aio.secure_channel(str(address), credentials[name], options=CHANNEL_OPTIONS)
                )
                coming += [come(channel, hellos[name], how, draw) for _ in range(STREAMS_A_CHANNEL)]
            # How a site's own stream ends is the matter of the tests above.
            for ended in await asyncio.gather(*coming, return_exceptions=True):
                assert ended is None or isinstance(ended, ENDED_STREAM), repr(ended)


async def come(channel: grpc.aio.Channel, hello: bytes, how: str, draw: random.Random) -> None:
    call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
    leaving = encode_collaborator_frame(Abstain(SumNumber(0), RefusalReason.PROTOCOL, leaving=True))
    # Another stream may close the channel before this one is connected, and gRPC's own write would never return.
    await unless_cancelled(call.write(leaving if how == "decline" else hello), call)
    said = aiter(call)
    if draw.random() < 0.5:
        await anext(said)
    await asyncio.sleep(draw.uniform(0, WINDOW_SECONDS))
    if how == "cancel":
        call.cancel()
    elif how == "close":
        await channel.close(None)
    elif how == "misbehave":
        await call.write(b"\xff" * 100)
    elif how == "finish":
        await call.done_writing()
    elif how == "reconnect":
        # The newer stream of the same site ends this one.
        await come(channel, hello, "cancel", draw)
    async for _ in said:
        pass


def of_an_earlier_loop(record: logging.LogRecord) -> bool:
    """Tell whether gRPC, which has one poller a process, found an event of a loop that an earlier test has closed.

    A command has one loop, and a loop that reports is not closed; so this is never the loop under test.
    """
    fault = record.exc_info[1] if record.exc_info else None
    told = "PollerCompletionQueue._handle_events" in record.getMessage()
    return told and isinstance(fault, RuntimeError) and str(fault) == "Event loop is closed"


@pytest.mark.parametrize("how", LEAVES)
def test_a_site_that_goes_at_any_instant_raises_nothing_in_the_aggregator(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = prepare(tmp_path, small_plan())

    async def scenario(federation: Federation) -> None:
        draw = random.Random(LEAVES.index(how))  # noqa: S311 - instants, not keys
        await come_and_go(federation, 24, how, draw)
        os.kill(os.getpid(), signal.SIGTERM)

    with caplog.at_level(logging.WARNING):
        assert play(workspace, scenario, limits=NO_LIMITS).state is EndState.STOPPED
    assert not [record.getMessage() for record in caplog.records if not of_an_earlier_loop(record)]
