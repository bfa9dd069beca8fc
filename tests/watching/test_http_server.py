"""The server of a status over real sockets: what it answers, what it refuses, and what nobody can make it do."""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedfair.identity.development import issue_all
from fedfair.watching import http_server
from fedfair.watching.http_server import (
    BURST,
    MAX_ACCEPTED_PER_SECOND,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    AcceptBudget,
    ServedPage,
    serving,
)
from fedfair.watching.page import content_policy
from fedfair.watching.pages import status_pages, watched
from fedfair.watching.place import StatusPlace
from tests.patience import PATIENCE
from tests.watching.statuses import NOON, START

PLACE = StatusPlace("127.0.0.1", 0)
GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


def pages() -> Mapping[str, ServedPage]:
    return status_pages(lambda: START, lambda: NOON)


def played(
    scene: Callable[[int], Awaitable[None]],
    place: StatusPlace = PLACE,
    served: Mapping[str, ServedPage] | None = None,
) -> None:
    """Play a scene against a server, in one event loop."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE), serving(place, served or pages()) as port:
            await scene(port)

    asyncio.run(whole())


async def said(port: int, raw: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Return everything that is answered to these bytes, until the server closes."""
    name = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    writer.write(raw)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


def status_line(answer: bytes) -> str:
    return answer.partition(b"\r\n")[0].decode()


def headers(answer: bytes) -> dict[str, str]:
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        (b"", "text/html; charset=utf-8", b"<h1"),
        (b"now", "text/html; charset=utf-8", b"<h1"),
        (b"healthz", "application/json", b"fedfair/status/1"),
        (b"metrics", "text/plain; version=0.0.4; charset=utf-8", b"fedfair_planned_rounds 20.0"),
        (b"healthz?verbose=1", "application/json", b"fedfair/status/1"),
    ],
)
def test_each_address_is_answered_and_kept_by_nobody(path: bytes, kind: str, words: bytes) -> None:
    async def scene(port: int) -> None:
        answer = await said(port, GET % path)
        assert status_line(answer) == "HTTP/1.1 200 OK"
        assert words in answer
        found = headers(answer)
        assert found["Content-Type"] == kind
        assert (found["Cache-Control"], found["Connection"]) == ("no-store", "close")
        assert found["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in found["Content-Security-Policy"]
        assert "unsafe" not in found["Content-Security-Policy"]

    played(scene)


def test_the_policy_of_the_page_names_its_script_and_its_style() -> None:
    async def scene(port: int) -> None:
        found = headers(await said(port, GET % b""))
        assert found["Content-Security-Policy"] == content_policy()
        assert content_policy().count("'sha256-") == 2

    played(scene)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (GET % b"secrets", "404 Not Found"),
        (GET % b"../healthz", "404 Not Found"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        (b"DELETE /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "405 Method Not Allowed"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", "413 Request Entity Too Large"),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
            "413 Request Entity Too Large",
        ),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421 Misdirected Request"),
        (b"GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400 Bad Request"),
    ],
)
def test_what_is_refused_is_refused_with_a_status(raw: bytes, status: str) -> None:
    async def scene(port: int) -> None:
        answer = await said(port, raw)
        assert status_line(answer) == f"HTTP/1.1 {status}"
        assert status_line(await said(port, GET % b"healthz")) == "HTTP/1.1 200 OK"

    played(scene)


def test_a_head_has_no_body_and_the_length_of_one() -> None:
    async def scene(port: int) -> None:
        answer = await said(port, b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_line(answer) == "HTTP/1.1 200 OK"
        assert answer.endswith(b"\r\n\r\n")
        assert int(headers(answer)["Content-Length"]) > 100

    played(scene)


def test_a_request_that_does_not_end_is_refused_when_it_is_too_long() -> None:
    async def scene(port: int) -> None:
        answer = await said(port, b"GET / HTTP/1.1\r\nX: " + b"y" * (2 * MAX_HEAD_BYTES))
        # The rest of what was sent may reset the connection before its answer is read.
        assert status_line(answer) in {"HTTP/1.1 431 Request Header Fields Too Large", ""}
        assert status_line(await said(port, GET % b"healthz")) == "HTTP/1.1 200 OK"

    played(scene)


def test_a_peer_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_SECONDS", 0.2)

    async def scene(port: int) -> None:
        assert await said(port, b"") == b""
        assert await said(port, b"GET / HTTP/1.1\r\n") == b""

    played(scene)


def test_a_peer_that_does_not_read_makes_way_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 1)
    large = ServedPage("text/plain", lambda: lambda: b"x" * (64 << 20))

    async def scene(port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(GET % b"")
            slow.setblocking(False)
            arrived = len(await loop.sock_recv(slow, 1000))
            assert status_line(await said(port, GET % b"healthz")) == "HTTP/1.1 404 Not Found"
            with contextlib.suppress(ConnectionResetError):
                while more := await loop.sock_recv(slow, 1 << 20):
                    arrived += len(more)
        assert 0 < arrived < 64 << 20

    played(scene, served={"/": large})


def test_idle_connections_make_way_for_a_new_one() -> None:
    async def scene(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS + 8)]
        assert status_line(await said(port, GET % b"healthz")) == "HTTP/1.1 200 OK"
        assert await idle[0][0].read() == b""
        for _, writer in idle:
            writer.close()

    played(scene)


def test_connections_are_accepted_at_a_bounded_rate() -> None:
    now = [0.0]
    budget = AcceptBudget(lambda: now[0])
    waits = [budget.take() for _ in range(int(BURST) + 20)]
    assert waits[: int(BURST)] == [0.0] * int(BURST)
    assert waits[-1] == pytest.approx(20 / MAX_ACCEPTED_PER_SECOND)
    now[0] += 1000.0
    assert [budget.take() for _ in range(int(BURST))] == [0.0] * int(BURST)
    assert budget.take() > 0.0


def test_however_many_ask_an_answer_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "FRESH_SECONDS", 3600.0)
    made = []

    def make() -> Callable[[], bytes]:
        made.append(threading.current_thread())
        return lambda: b"body"

    async def scene(port: int) -> None:
        answers = await asyncio.gather(*(said(port, GET % b"") for _ in range(20)))
        assert all(answer.endswith(b"body") for answer in answers)
        assert made == [threading.main_thread()]

    played(scene, served={"/": ServedPage("text/plain", make)})


def test_an_answer_that_takes_its_time_does_not_hold_the_loop() -> None:
    released, begun = threading.Event(), threading.Event()

    def work() -> bytes:
        begun.set()
        released.wait(PATIENCE)
        return b"late"

    async def scene(port: int) -> None:
        asked = asyncio.create_task(said(port, GET % b""))
        await asyncio.to_thread(begun.wait, PATIENCE)
        # The loop is free: it runs this while the work continues.
        assert not asked.done()
        released.set()
        assert (await asked).endswith(b"late")

    played(scene, served={"/": ServedPage("text/plain", lambda: work)})


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cert")
    issue_all(folder, "heart", ("clinic-a",), ["localhost"], datetime.now(UTC))
    return folder


def test_with_a_certificate_the_status_is_served_by_tls_alone(identity: Path) -> None:
    place = StatusPlace("127.0.0.1", 0, identity / "aggregator" / "tls.crt", identity / "aggregator" / "tls.key")
    context = ssl.create_default_context(cafile=str(identity / "authority" / "ca.crt"))

    async def scene(port: int) -> None:
        answer = await said(port, GET % b"healthz", context)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["federation"] == "heart"
        assert await said(port, GET % b"healthz") == b""
        old = ssl.create_default_context(cafile=str(identity / "authority" / "ca.crt"))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert status_line(await said(port, GET % b"healthz", old)) == "HTTP/1.1 200 OK"

    played(scene, place)


def test_without_a_place_nothing_is_served() -> None:
    told: list[str] = []

    async def whole() -> None:
        async with watched(None, lambda: START, lambda: NOON, told.append):
            pass
        async with watched(PLACE, lambda: START, lambda: NOON, told.append):
            pass

    asyncio.run(whole())
    assert [address.rpartition(":")[0] for address in told] == ["http://127.0.0.1"]


def test_the_same_place_can_be_served_again_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = StatusPlace("127.0.0.1", probe.getsockname()[1])

    async def twice() -> None:
        for _ in range(2):
            async with serving(place, pages()) as found:
                assert status_line(await said(found, GET % b"healthz")) == "HTTP/1.1 200 OK"

    asyncio.run(twice())
