"""A proxy between one site and its aggregator that disturbs what it carries: for `chaos.py` and `storms.py`."""

from __future__ import annotations

import asyncio
import contextlib
import math

DELAY_SECONDS = 0.3
THROTTLED_BYTES_PER_SECOND = 20_000
DEAD_SECONDS = 120.0
"""How long the other end of a dead line does not hear that this one has given up."""


class Proxy:
    """Carries one site's connections to the aggregator, until it is told to disturb them.

    Args:
        port: where the aggregator listens.

    Attributes:
        port: where the site connects; 0 before `start`.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._delay_seconds = 0.0
        self._bytes_per_second = math.inf
        self._cut_at: float | None = None
        self._dead: set[asyncio.StreamWriter] = set()
        """Of connections that only look open: what is written to these goes nowhere, and nobody is told."""
        self._open: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry, "localhost", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("localhost", self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._open |= both
        try:
            # The end of the loop cancels connections, which a stream's own callback takes for a fault.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._open -= both
            self._dead -= both
            for side in both:
                side.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(1 << 16):
                await self._flows.wait()
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                if math.isfinite(self._bytes_per_second):
                    await asyncio.sleep(len(piece) / self._bytes_per_second)
                if writer in self._dead:
                    continue
                if self._cut_at is not None:
                    # A piece holds records of TLS and frames of HTTP/2; hardly any place in it is their border.
                    kept, self._cut_at = int(self._cut_at * len(piece)), None
                    writer.write(piece[:kept])
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(writer.drain(), 1)
                    self.cut()
                    return
                writer.write(piece)
                await writer.drain()
            if writer in self._dead:
                await asyncio.sleep(DEAD_SECONDS)
            writer.write_eof()

    def cut(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()

    def cut_next(self, kept: float) -> None:
        """Carry only the beginning of the next piece, and cut then.

        Args:
            kept: which part of it is carried, in [0, 1).
        """
        self._cut_at = kept

    def half_open(self) -> None:
        """Let the present connections stand still for good; new ones are carried."""
        self._dead |= self._open

    async def delay(self, seconds: float) -> None:
        self._delay_seconds = DELAY_SECONDS
        await asyncio.sleep(seconds)
        self._delay_seconds = 0.0

    async def throttle(self, seconds: float) -> None:
        self._bytes_per_second = THROTTLED_BYTES_PER_SECOND
        await asyncio.sleep(seconds)
        self._bytes_per_second = math.inf

    async def hold(self, seconds: float) -> None:
        self._flows.clear()
        await asyncio.sleep(seconds)
        self._flows.set()

    def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
