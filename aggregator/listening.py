"""Listens: one server on every address that the name of the aggregator has on this machine, all with one port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import grpc

from aggregator.address import TRIES, Listen
from aggregator.server_call import lost_statuses_unlogged
from aggregator.service import SERVER_OPTIONS
from fedfair.identity.tls import RenewableCertificate

Done = TypeVar("Done")

CLOSING_SECONDS = 2.0
"""How long streams may take to end by themselves when the server stops."""


class Binds(Protocol):
    """The part of a gRPC server that finds its port."""

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Take an address and return its port; RuntimeError where somebody else has it."""

    async def start(self) -> None:
        """Accept connections."""

    async def stop(self, grace: float | None) -> Any:  # noqa: ANN401 - gRPC says nothing of it
        """Give every address back."""


AnyServer = TypeVar("AnyServer", bound=Binds)


async def bound(
    make: Callable[[], AnyServer], listen: Listen, credentials: Callable[[], grpc.ServerCredentials]
) -> tuple[AnyServer, int]:
    """Return a server that has one port on every address of a name, and that port.

    gRPC itself is content with one address of several. Where a name stands for 127.0.0.1 and ::1, whoever has the
    same port on the other one would be sent the sites.

    Args:
        make: returns a server without an address.
        listen: where; with port 0 the system chooses, again where another address of the name has that port taken.
        credentials: returns those of one address.

    Raises:
        FedfairError: the address cannot be listened on.
    """
    places, attempt = listen.places(), 1
    while True:
        server, port = make(), listen.port
        try:
            for place in places:
                port = server.add_secure_port(str(replace(place, port=port)), credentials())
        except RuntimeError as error:
            # One that never started would keep its addresses for as long as the process lives.
            await server.start()
            await server.stop(None)
            if listen.port or attempt == TRIES:
                raise listen.fault(error) from error
            attempt += 1
        else:
            return server, port


@asynccontextmanager
async def listening(
    handlers: Sequence[grpc.GenericRpcHandler[bytes, bytes]], shown: RenewableCertificate, listen: Listen
) -> AsyncIterator[int]:
    """Accept connections while the block runs; yield the port.

    Args:
        handlers: answer them.
        shown: the certificate that is shown.
        listen: where.

    Raises:
        FedfairError: the address cannot be listened on.
    """

    def make() -> grpc.aio.Server:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers(tuple(handlers))
        return server

    server, port = await bound(make, listen, shown.credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=CLOSING_SECONDS)


def run_serving(work: Coroutine[Any, Any, Done]) -> Done:
    """Return what a program that serves comes to; gRPC ends its last calls after its server has stopped."""
    with lost_statuses_unlogged():
        return asyncio.run(work)
