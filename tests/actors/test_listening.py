"""A server has one port on every address of its name, whatever others have taken."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import grpc
import pytest

from aggregator.address import TRIES, Listen, free_port
from aggregator.listening import bound
from aggregator.service import SERVER_OPTIONS
from fedfair.errors import FedfairError
from tests.patience import PATIENCE

CREDENTIALS = grpc.insecure_server_credentials


class Ports:
    """A machine that gives out ports from 5000 on, some of which are taken on one of its addresses."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.next_port = 5000
        self.held: list[str] = []

    def server(self) -> PortServer:
        return PortServer(self)


class PortServer:
    def __init__(self, ports: Ports) -> None:
        self._ports, self._own, self.is_started = ports, list[str](), False

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        del server_credentials
        host, _, port = address.rpartition(":")
        if port == "0":
            port, self._ports.next_port = str(self._ports.next_port), self._ports.next_port + 1
        if f"{host}:{port}" in self._ports.taken:
            raise RuntimeError("taken")
        self._own.append(f"{host}:{port}")
        self._ports.held.append(self._own[-1])
        return int(port)

    async def start(self) -> None:
        self.is_started = True

    async def stop(self, grace: float | None) -> None:
        assert self.is_started, "gRPC gives nothing back of a server that has not started"
        del grace
        self._ports.held = [each for each in self._ports.held if each not in self._own]


def addresses() -> list[str]:
    """Return the addresses of localhost as a URL has them, in the order in which they are taken."""
    return [str(place).rpartition(":")[0] for place in Listen("localhost", 0).places()]


def test_another_port_is_chosen_where_one_address_of_the_name_has_it_taken() -> None:
    first, *others = addresses()
    if not others:
        pytest.skip("localhost has one address on this machine")
    ports = Ports({f"{others[0]}:5000", f"{others[-1]}:5001"})
    _, port = asyncio.run(bound(ports.server, Listen("localhost", 0), CREDENTIALS))
    assert port == 5002
    assert ports.held == [f"{host}:5002" for host in (first, *others)]


def test_a_stated_port_that_is_taken_on_one_address_is_refused_and_the_other_given_back() -> None:
    if len(addresses()) == 1:
        pytest.skip("localhost has one address on this machine")
    ports = Ports({f"{addresses()[-1]}:7000"})
    with pytest.raises(FedfairError, match="cannot listen on localhost:7000: taken"):
        asyncio.run(bound(ports.server, Listen("localhost", 7000), CREDENTIALS))
    assert ports.held == []


def test_a_name_whose_addresses_share_no_port_is_a_fault_after_some_tries() -> None:
    last = addresses()[-1]
    ports = Ports({f"{last}:{port}" for port in range(5000, 6000)})
    with pytest.raises(FedfairError, match="cannot listen on localhost:0"):
        asyncio.run(bound(ports.server, Listen("localhost", 0), CREDENTIALS))
    assert ports.next_port == 5000 + TRIES
    assert ports.held == []


def test_a_real_server_answers_on_every_address_and_an_abandoned_one_gives_them_back() -> None:
    def make() -> grpc.aio.Server:
        return grpc.aio.server(options=SERVER_OPTIONS)

    async def served() -> None:
        server, port = await bound(make, Listen("localhost", 0), CREDENTIALS)
        await server.start()
        for place in Listen("localhost", 0).places():
            with closing(socket.create_connection((place.host, port), timeout=PATIENCE)):
                pass
        with pytest.raises(FedfairError, match="Address already in use"):
            await bound(make, Listen("localhost", port), CREDENTIALS)
        await server.stop(None)

    asyncio.run(served())


def test_a_free_port_is_free_on_every_address() -> None:
    port = free_port("localhost")
    assert [place.port for place in Listen("localhost", port).places()] == [port] * len(addresses())
