"""A small HTTP server beside a run: it answers who watches, and can neither slow the run nor be kept busy.

h11 reads and writes HTTP/1.1 without sockets, and asyncio carries it on the loop of the actor: no thread takes a
request, and no framework is loaded. An answer is made of a value that changes no more, in one thread of its own,
at most once in `FRESH_SECONDS` for each address, however many ask. So a request costs the loop a fraction of a
millisecond, and what all of them together may cost is bounded:

- `MAX_ACCEPTED_PER_SECOND` connections are accepted, after a burst; others wait in the queue of the system;
- `MAX_CONNECTIONS` are open at once; the oldest makes way for a new one once all are in use;
- `MAX_HEAD_BYTES` for a request, which may have no body; one request for each connection;
- `MAX_SECONDS` for all of it, from accepting the connection to the last byte that is read.

Decides nothing of what is answered: that is `pages`' business.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import h11

from fedfair.watching.place import StatusPlace

MAX_HEAD_BYTES = 8 << 10
MAX_CONNECTIONS = 32
MAX_SECONDS = 10.0
MAX_ACCEPTED_PER_SECOND = 10.0
BURST = 60.0
FRESH_SECONDS = 0.5

NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""A Content-Security-Policy under which an answer can load and run nothing."""

SECURITY_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)


@dataclass(frozen=True, slots=True)
class ServedPage:
    """One address that is answered.

    Attributes:
        content_type: of the answer.
        make: called on the loop, returns at once what makes the body, in a thread.
        policy: the Content-Security-Policy of the answer.
    """

    content_type: str
    make: Callable[[], Callable[[], bytes]]
    policy: str = NOTHING


@dataclass(slots=True)
class AcceptBudget:
    """A token bucket: how many connections may be accepted now.

    Attributes:
        now: a clock in seconds that never goes back.
        tokens: connections that may be accepted at once.
        at: when the tokens were counted.
    """

    now: Callable[[], float]
    tokens: float = BURST
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.at = self.now()

    def take(self) -> float:
        """Take one, and return the seconds to wait before it may be used."""
        now = self.now()
        self.tokens = min(BURST, self.tokens + (now - self.at) * MAX_ACCEPTED_PER_SECOND) - 1.0
        self.at = now
        return max(0.0, -self.tokens / MAX_ACCEPTED_PER_SECOND)


class _Answers:
    """The bodies that were made last, each for a moment."""

    def __init__(self, pages: Mapping[str, ServedPage]) -> None:
        self._pages = pages
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="status")
        self._made: dict[str, tuple[float, asyncio.Future[bytes]]] = {}

    async def body(self, path: str) -> bytes:
        """Return the body for a known path."""
        at, made = self._made.get(path, (0.0, None))
        if made is None or time.monotonic() - at > FRESH_SECONDS:
            loop = asyncio.get_running_loop()
            made = loop.run_in_executor(self._thread, self._pages[path].make())
            self._made[path] = time.monotonic(), made
        # Whoever gives up does not take the answer from the others who wait for it.
        return await asyncio.shield(made)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


class _StatusServer:
    """Accepts connections and answers them."""

    def __init__(self, listener: socket.socket, place: StatusPlace, pages: Mapping[str, ServedPage]) -> None:
        self._listener = listener
        self._place = place
        self._context = place.tls_context()
        self._pages = pages
        self._answers = _Answers(pages)
        self._open: dict[asyncio.Task[None], None] = {}
        self._budget = AcceptBudget(time.monotonic)

    async def accept(self) -> None:
        """Accept and answer until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._budget.take())
            try:
                peer, _ = await loop.sock_accept(self._listener)
            except OSError:
                # The peer has gone, or the process has no file left: the budget bounds how often this is tried.
                continue
            if len(self._open) >= MAX_CONNECTIONS:
                next(iter(self._open)).cancel()
            task = loop.create_task(self._serve(peer))
            self._open[task] = None
            task.add_done_callback(lambda ended: self._open.pop(ended, None))

    async def close(self) -> None:
        """Close all connections."""
        tasks = tuple(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._answers.close()

    async def _serve(self, peer: socket.socket) -> None:
        """Carry one connection to its end; whatever a peer does wrong ends it and nothing else."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport: asyncio.BaseTransport | None = None
        # An OSError is the peer's too: a broken connection, a handshake that fails.
        with contextlib.suppress(TimeoutError, OSError, h11.RemoteProtocolError):
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    handshake = None if self._context is None else MAX_SECONDS
                    transport, _ = await loop.connect_accepted_socket(
                        lambda: protocol, peer, ssl=self._context, ssl_handshake_timeout=handshake
                    )
                    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                    await self._exchange(reader, writer)
                    writer.close()
                    await writer.wait_closed()
            finally:
                # After a clean end this does nothing; after any other it waits for nobody.
                if isinstance(transport, asyncio.WriteTransport):
                    transport.abort()
                else:
                    peer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        try:
            while (event := http.next_event()) is h11.NEED_DATA:
                http.receive_data(await reader.read(MAX_HEAD_BYTES))
        except h11.RemoteProtocolError as fault:
            await self._refuse(http, writer, HTTPStatus(fault.error_status_hint))
            return
        if not isinstance(event, h11.Request):
            return
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
        path = event.target.decode("latin-1").partition("?")[0]
        if not self._place.is_named(headers.get("host", "")):
            # A page of somebody else may have had its own name point to this machine.
            await self._refuse(http, writer, HTTPStatus.MISDIRECTED_REQUEST)
        elif event.method not in {b"GET", b"HEAD"}:
            await self._refuse(http, writer, HTTPStatus.METHOD_NOT_ALLOWED)
        elif headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            await self._refuse(http, writer, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif path not in self._pages:
            await self._refuse(http, writer, HTTPStatus.NOT_FOUND)
        else:
            body = await self._answers.body(path)
            is_head = event.method == b"HEAD"
            await self._answer(http, writer, HTTPStatus.OK, self._pages[path], body, is_head=is_head)

    async def _refuse(self, http: h11.Connection, writer: asyncio.StreamWriter, status: HTTPStatus) -> None:
        body = f"{status.value} {status.phrase}\n".encode("ascii")
        await self._answer(
            http, writer, status, ServedPage("text/plain; charset=utf-8", lambda: lambda: body), body
        )

    async def _answer(
        self,
        http: h11.Connection,
        writer: asyncio.StreamWriter,
        status: HTTPStatus,
        page: ServedPage,
        body: bytes,
        *,
        is_head: bool = False,
    ) -> None:
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", page.policy),
            *SECURITY_HEADERS,
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        response = h11.Response(status_code=status.value, reason=status.phrase.encode("ascii"), headers=headers)
        said: list[h11.Response | h11.Data | h11.EndOfMessage] = [response, h11.EndOfMessage()]
        if not is_head:
            said.insert(1, h11.Data(data=body))
        # What h11 returns is None only for the end of a connection.
        writer.write(b"".join(http.send(event) or b"" for event in said))
        await writer.drain()


@asynccontextmanager
async def serving(place: StatusPlace, pages: Mapping[str, ServedPage]) -> AsyncIterator[int]:
    """Serve pages for as long as the block runs; yield the port.

    Args:
        place: where to listen.
        pages: by their paths.

    Raises:
        FedfairError: the address is taken, or the certificate cannot be used.
    """
    with place.listener() as listener:
        server = _StatusServer(listener, place, pages)
        accepting = asyncio.create_task(server.accept())
        try:
            yield listener.getsockname()[1]
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            await server.close()
