"""The fault injector reads lines that a process was cut off in, and leaves in a log only what a crash can."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfair.secagg.log import Record, entries, frame
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

FULL = 100
"""Bytes after which the disk is full: in the middle of the second line."""

WRITER = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from chaos import append_line, lines_of
tap, limit = Path(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for number in map(int, sys.argv[4:]):
    append_line(tap, {"number": number, "body": "x" * 40})
print([line["number"] for line in lines_of(tap)])
"""


def written(tap: Path, *numbers: int, limit: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WRITER, str(REPOSITORY / "benchmarks"), str(tap), str(limit), *map(str, numbers)],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip


def test_a_line_that_a_full_disk_has_cut_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    tap = tmp_path / "site.tap"
    assert "File too large" in written(tap, 1, 2, limit=FULL).stderr
    assert tap.stat().st_size == FULL
    assert written(tap, 3).stdout.strip() == "[1, 3]"


def test_a_log_that_is_torn_twice_before_it_is_read_ends_in_one_unfinished_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from chaos import UnfinishedRecords

    records = frame(Record.HISTORY, b"rows" * 30) + frame(Record.VOTE, b"vote" * 30)
    log, unfinished = tmp_path / "site.secagg", UnfinishedRecords()
    log.write_bytes(records)
    for length in (18, 31, 34):
        unfinished.leave(log, records[:length])
    assert log.read_bytes() == records + records[:34]
    assert [entry.record for entry in entries(log.read_bytes())] == [Record.HISTORY, Record.VOTE]

    log.write_bytes(records + frame(Record.ANSWER, b"answer" * 30))
    unfinished.leave(log, records[:20])
    assert [entry.record for entry in entries(log.read_bytes())][-1] is Record.ANSWER


@pytest.mark.parametrize(
    ("rounds", "wrong"),
    [
        ([1, 2, 3], []),
        ([1, 2, 2, 3], []),  # a kill before the journal had it
        ([1, 3], ["round 3 was opened after round 1"]),
        ([1, 2, 3, 2, 3], ["round 2 was opened after round 3"]),
        ([1, 2], ["the run is finished, and the last round that was opened is 2 of 3"]),
    ],
)
def test_rounds_that_are_skipped_repeated_or_missing_are_found(
    rounds: list[int], wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from chaos import out_of_order

    places = [("evaluation", 0, 1), *(("training", number, 1) for number in rounds)]
    assert list(out_of_order(places, 3)) == wrong


PIECES = (b"a" * 1000, b"b" * 1000)


def test_a_proxy_cuts_in_the_middle_swallows_and_slows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from chaos import Proxy

    async def through(disturb: Callable[[Proxy], None]) -> bytes:
        """Say two pieces through a proxy that is disturbed between them; return what the other side has read."""
        arrived, first, done = bytearray(), asyncio.Event(), asyncio.Event()

        async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(4096):
                    arrived.extend(piece)
                    if len(arrived) >= len(PIECES[0]):
                        first.set()
                    if len(arrived) == sum(map(len, PIECES)):
                        break
            done.set()
            writer.close()

        server = await asyncio.start_server(read, "localhost", 0)
        proxy = Proxy(server.sockets[0].getsockname()[1])
        await proxy.start()
        _, writer = await asyncio.open_connection("localhost", proxy.port)
        writer.write(PIECES[0])
        await asyncio.wait_for(first.wait(), PATIENCE)
        disturb(proxy)
        writer.write(PIECES[1])
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.write_eof()
        if disturb is not half_open:
            await asyncio.wait_for(done.wait(), PATIENCE)
        proxy.close()
        await asyncio.wait_for(done.wait(), PATIENCE)
        writer.transport.abort()
        server.close()
        return bytes(arrived)

    half_open = Proxy.half_open
    assert asyncio.run(through(lambda _: None)) == b"".join(PIECES)
    assert asyncio.run(through(half_open)) == PIECES[0]
    cut = asyncio.run(through(lambda proxy: proxy.cut_next(0.5)))
    assert len(PIECES[0]) <= len(cut) < 2000
    slow = asyncio.run(through(lambda proxy: setattr(proxy, "_bytes_per_second", 50_000.0)))
    assert slow == b"".join(PIECES)
