"""One call as gRPC's server gives it: read, written and ended in an order that the core allows.

Three things are known here and nowhere else. First, every exception with which gRPC says that a call is over; all
of them are `CallEnded`. Second, that gRPC sends no status while a message is still being written: a handler that
returned, or aborted, in the middle of a write would leave its peer waiting for ever. So a write that nobody waits
for any more continues, and the status follows it: the writer of a stream is stopped between two messages. Third,
that gRPC logs a traceback where a peer has gone before that last status could be sent, or where the server stops
while a call begins. `lost_statuses_unlogged` drops it: a lost connection and a stop have notices of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

Context = grpc.aio.ServicerContext[bytes, bytes]
END_OF_STREAM = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it

Outcome = TypeVar("Outcome")

_SERVER_LOG = "grpc._cython.cygrpc"
"""The name of the logger of gRPC's asyncio server (grpcio 1.80)."""


class CallEnded(Exception):  # noqa: N818 - no error: the peer, or the server, has ended the call
    """The call is over; nothing can be read or written on it any more."""


class ServerCall:
    """One call.

    Args:
        context: of the call.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writing: asyncio.Task[None] | None = None
        self._stopped = self._in_message = False

    @property
    def auth_context(self) -> dict[str, list[bytes]]:
        """Return what the handshake found out about the peer."""
        return {name: list(values) for name, values in self._context.auth_context().items()}

    async def read(self) -> bytes | None:
        """Return the next message; None where the peer says nothing more.

        Raises:
            CallEnded: the call is over.
        """
        raw = await _carried_out(self._context.read())
        return None if raw is END_OF_STREAM else raw

    async def write(self, raw: bytes) -> None:
        """Write one message; one that is cancelled in the middle is written to its end all the same.

        Raises:
            CallEnded: the call is over.
        """
        self._writing = asyncio.ensure_future(_carried_out(self._context.write(raw)))
        self._writing.add_done_callback(_look_at)
        await asyncio.shield(self._writing)

    def begin_writing(
        self, drain: Callable[[Callable[[bytes], Awaitable[None]]], Coroutine[object, None, None]]
    ) -> asyncio.Task[None]:
        """Return the task that writes a stream; only `stop_writing` may end it early.

        Args:
            drain: writes messages, one after the other, by what it is given.
        """
        self._writing = asyncio.create_task(drain(self._write_next))
        self._writing.add_done_callback(_look_at)
        return self._writing

    def stop_writing(self) -> None:
        """Let the writer of the stream end: after the message that it is writing, and at once where it waits."""
        self._stopped = True
        if self._writing is not None and not self._in_message:
            self._writing.cancel()

    async def _write_next(self, raw: bytes) -> None:
        self._in_message = True
        try:
            await _carried_out(self._context.write(raw))
        finally:
            self._in_message = False
        if self._stopped:
            raise CallEnded("this side has stopped writing")

    async def settle(self) -> None:
        """Wait until nothing is being written any more; a handler returns only then."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def abort(self, code: grpc.StatusCode, words: str) -> None:
        """End the call with a status, as soon as nothing is being written any more.

        Raises:
            grpc.aio.AbortError: always, where the call was not over before: the handler must let it pass.
        """
        await self.settle()
        try:
            await self._context.abort(code, words)
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError as error:
            raise CallEnded(str(error)) from error


def _look_at(writing: asyncio.Task[None]) -> None:
    """Read how a write ended, which perhaps nobody waits for: that the call is over is no news."""
    if not writing.cancelled():
        writing.exception()


async def _carried_out(operation: Awaitable[Outcome]) -> Outcome:
    """Await one operation of gRPC on a call.

    What it can raise, by grpcio 1.80 (`_cygrpc/aio/server.pyx.pxi`): `InternalError` where the core does not take
    it, because the peer is gone; `UsageError` after the status was sent; a `BaseError` of its own where the server
    was stopped; `InvalidStateError` as on the other side.
    """
    try:
        return await operation
    except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
        raise CallEnded(str(error)) from error


@contextmanager
def lost_statuses_unlogged() -> Iterator[None]:
    """Keep out of the log that gRPC could not tell a peer how its call ended: it has gone, or the server stops.

    An exception of our own in a handler is logged as before.
    """
    log = logging.getLogger(_SERVER_LOG)
    log.addFilter(_is_news)
    try:
        yield
    finally:
        log.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], grpc.aio.BaseError | asyncio.CancelledError))
