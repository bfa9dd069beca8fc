"""Somebody in the middle who holds both test keys, and writes down every byte that a collaborator sends.

The tap meets the collaborator with the aggregator's certificate and the aggregator with the collaborator's, so
both find whom they expect. What it notes is the plaintext inside TLS: HTTP/2, with nothing left out.
"""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedfair.identity.store import CA_CERTIFICATE, TLS_CERTIFICATE, TLS_KEY, trust_folder
from tests.patience import PATIENCE

PIECE_BYTES = 1 << 16


@dataclass
class Tap:
    """One tapped collaborator.

    Attributes:
        port: where it is to connect to.
        connections: what it has sent on each connection, in the order in which they were made.
    """

    port: int = 0
    connections: list[bytearray] = field(default_factory=list)


@asynccontextmanager
async def tapped(cert_folder: Path, name: str, upstream: int) -> AsyncIterator[Tap]:
    """Stand between a collaborator and the aggregator at a port of this machine."""
    tap = Tap()
    outside, inside = _context(cert_folder, "aggregator", server=True), _context(cert_folder, name, server=False)
    running: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        noted = bytearray()
        tap.connections.append(noted)
        writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        task.add_done_callback(running.discard)
        with suppress(OSError):
            there, onwards = await asyncio.open_connection("localhost", upstream, ssl=inside)
            writers.append(onwards)
            await asyncio.gather(_pump(reader, onwards, noted), _pump(there, writer, bytearray()))

    server = await asyncio.start_server(connection, "127.0.0.1", 0, ssl=outside)
    tap.port = server.sockets[0].getsockname()[1]
    try:
        yield tap
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*running)


@contextmanager
def taps(cert_folder: Path, names: tuple[str, ...], upstream: int) -> Iterator[dict[str, Tap]]:
    """Tap several collaborators that are processes of their own, from a thread of this one."""
    made: dict[str, Tap] = {}
    ready, loop, done = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def standing() -> None:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(name))

    async def one(name: str) -> None:
        async with tapped(cert_folder, name, upstream) as tap:
            made[name] = tap
            if len(made) == len(names):
                ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(standing(),))
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, noted: bytearray) -> None:
    """Carry one direction; where it ends, both do: TLS knows no other end."""
    try:
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                noted += piece
                writer.write(piece)
                await writer.drain()
    finally:
        writer.close()


def _context(cert_folder: Path, name: str, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(trust_folder(cert_folder) / CA_CERTIFICATE)
    context.load_cert_chain(cert_folder / name / TLS_CERTIFICATE, cert_folder / name / TLS_KEY)
    context.set_alpn_protocols(["h2"])
    return context
