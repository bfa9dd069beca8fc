"""A small HTTP proxy that knows CONNECT and nothing else, in a thread of its own."""

import asyncio
import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread

OPEN = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n"


@dataclass
class ConnectProxy:
    """A proxy that is running.

    Attributes:
        names: which port of this machine a host name leads to; only the proxy knows these names.
        credentials: "user:password" that it wants, or empty.
        answer: what it answers instead of opening a tunnel, or empty.
        port: where it listens.
        asked: HOST:PORT of every CONNECT, in their order.
        opened: how many tunnels it opened.
    """

    names: Mapping[str, int] = field(default_factory=dict)
    credentials: str = ""
    answer: bytes = b""
    port: int = 0
    asked: list[str] = field(default_factory=list)
    opened: int = 0

    def url(self, credentials: str = "") -> str:
        return f"http://{credentials}{'@' if credentials else ''}127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
            method, target, version = head[0].split(" ")
            assert (method, version) == ("CONNECT", "HTTP/1.1")
            self.asked.append(target)
            reply = self._reply(target, {name.lower(): value.strip() for name, _, value in map(_parts, head[1:])})
            if reply != OPEN:
                writer.write(reply)
                await writer.drain()
                return
            there, back = await asyncio.open_connection("127.0.0.1", self.names[target.rpartition(":")[0]])
            writer.write(OPEN)
            self.opened += 1
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _reply(self, target: str, headers: Mapping[str, str]) -> bytes:
        wanted = "Basic " + base64.b64encode(self.credentials.encode()).decode()
        if self.answer:
            return self.answer
        if self.credentials and headers.get("proxy-authorization") != wanted:
            return b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n'
        return OPEN if target.rpartition(":")[0] in self.names else b"HTTP/1.1 502 Bad Gateway\r\n\r\n"


def _parts(line: str) -> tuple[str, str, str]:
    return line.partition(":")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@contextmanager
def running(proxy: ConnectProxy) -> Iterator[ConnectProxy]:
    """Let a proxy listen on a free port of this machine while the block runs."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def stop() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    starting = asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result()
    proxy.port = int(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
