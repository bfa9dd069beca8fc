"""A line that looks open and carries nothing any more: both ends notice it in seconds, and the run continues."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from collaborator.participation import dial
from fedfair.cli.loopback import prepare
from fedfair.errors import UnreachableError
from fedfair.wire.calling import Address
from fedfair.wire.frames import Welcome
from fedfair.wire.service import FRAIL_KEEPALIVE, KEEPALIVE, KeepAlive
from tests.interop.federation_kit import Federation, Remembered, play
from tests.interop.test_streams import answered
from tests.plans import small_plan

PATIENCE_SECONDS = 45.0
"""More than either end needs on a busy machine. By itself gRPC waits for a minute, or for ever."""


class Line:
    """A TCP line between a site and the aggregator that can go dead: nothing is carried, and nothing closed."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._carries = True
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._accept, "localhost", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("localhost", self._target)
        self._writers += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._tasks.append(asyncio.create_task(self._carry(source, sink)))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(1 << 16):
                if self._carries:
                    sink.write(piece)
                    await sink.drain()
            if self._carries:
                sink.close()

    def die(self) -> None:
        self._carries = False

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()


@pytest.mark.parametrize("keepalive", [KEEPALIVE, FRAIL_KEEPALIVE], ids=["good line", "frail line"])
def test_both_ends_notice_a_dead_line_by_its_silence(keepalive: KeepAlive, tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1, federation={"min_collaborators": 2}))

    async def scenario(federation: Federation) -> None:
        line = Line(federation.port)
        port = await line.open()
        ready = federation.ready("clinic-c")
        try:
            async with dial(ready, Address("localhost", port), Remembered(), keepalive=keepalive) as (link, hello):
                await link.send(hello)
                await answered(link, Welcome)
                await federation.watching.until_said("clinic-c connected")
                line.die()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    with pytest.raises(UnreachableError):
                        async for _ in link.frames():
                            pass
                    await federation.watching.until_said("clinic-c disconnected")
        finally:
            await line.close()
        await federation.everybody()

    assert play(workspace, scenario).state.value == "finished"
