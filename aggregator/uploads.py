"""Uploads on one stream: a place in the budget of bytes, their pieces as they arrive, and their pace.

A plain upload is held until it is whole. A masked vector that is long is added to the sum while it arrives.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from aggregator.connection import Connection
from aggregator.frame_reader import STALL_SECONDS, FrameReader, Stalled
from aggregator.upload_budget import UploadBudget
from fedfair.errors import RemoteProtocolError
from fedfair.rounds.events import Event, MessageArrived, UploadArrived
from fedfair.secagg.arriving import ArrivingVector
from fedfair.wire.chunking import Assembler, agreed_vector_length, expect_upload
from fedfair.wire.frames import (
    Chunk,
    SecaggMessage,
    UploadStart,
)
from fedfair.wire.limits import MAX_CHUNK_BYTES

MIN_BYTES_PER_SECOND = 128 << 10
"""The pace below which an upload gives its place up while others wait for one."""


class UploadHandler(Protocol):
    """The interface of the driver that uploads need."""

    def arriving(self, connection: Connection, message: bytes, length: int) -> Awaitable[ArrivingVector | None]:
        """Return what adds a masked vector to the sum while it arrives; None where it must be held."""

    def add_piece(self, arriving: ArrivingVector, chunk: Chunk) -> Awaitable[None]:
        """Add a piece of a masked vector to the sum."""

    def submit(self, connection: Connection, event: Event) -> Awaitable[None]:
        """Have the round rules take an event; done when nothing refers to its payload any more."""


class Uploads:
    """The uploads of all streams.

    Args:
        floor: receives what was read.
        budget: of bytes in the making.
        vector_lengths: the lengths that a masked vector may have; none where sums are plain.
    """

    def __init__(self, floor: UploadHandler, budget: UploadBudget, vector_lengths: frozenset[int]) -> None:
        self._floor, self._budget, self._vector_lengths = floor, budget, vector_lengths

    async def take(self, start: UploadStart, connection: Connection, incoming: FrameReader) -> None:
        """Take a plain upload; one that came after its sum had closed is read past.

        Raises:
            RemoteProtocolError: it is none of this sum.
            Stalled: it takes a place that others wait for.
        """
        spec = connection.expected(start.sum_number)
        if spec is None:
            await self._skip(start, incoming)
            return
        async with self._budget.place(spec.upload_bytes):
            assembler = expect_upload(start, spec)
            await self._fill(assembler, incoming, _held(assembler))
            event = UploadArrived(connection.participant, start.sum_number, assembler.take())
            await self._floor.submit(connection, event)
            # The place is free only when the bytes are: no name may keep them.
            del event, assembler

    async def take_message(self, start: SecaggMessage, connection: Connection, incoming: FrameReader) -> None:
        """Take a message of secure aggregation with its masked vector; raises as `take`."""
        if not start.vector_length:
            await self._floor.submit(connection, MessageArrived(connection.participant, start.message))
            return
        length = agreed_vector_length(start, self._vector_lengths)
        async with self._budget.place(length):
            # What comes in one chunk is added at once anyway.
            long = length > MAX_CHUNK_BYTES
            arriving = await self._floor.arriving(connection, start.message, length) if long else None
            if arriving is not None:
                await self._take_arriving(start, arriving, connection, incoming)
                return
            assembler = Assembler(length, None)
            await self._fill(assembler, incoming, _held(assembler))
            event = MessageArrived(connection.participant, start.message, assembler.take())
            await self._floor.submit(connection, event)
            del event, assembler

    async def _take_arriving(
        self, start: SecaggMessage, arriving: ArrivingVector, connection: Connection, incoming: FrameReader
    ) -> None:
        """Add a vector to the sum as it arrives; where it breaks off or is refused, the sum is as it was."""
        try:
            await self._fill(arriving, incoming, partial(self._add_piece, arriving))
            await self._floor.submit(connection, MessageArrived(connection.participant, start.message, arriving))
        finally:
            arriving.close()

    async def _add_piece(self, arriving: ArrivingVector, chunk: Chunk) -> None:
        if len(chunk.data) > arriving.missing:
            raise RemoteProtocolError(
                f"a chunk of {len(chunk.data)} bytes arrived where {arriving.missing} were missing"
            )
        await self._floor.add_piece(arriving, chunk)

    async def _fill(
        self, arriving: Assembler | ArrivingVector, incoming: FrameReader, add: Callable[[Chunk], Awaitable[None]]
    ) -> None:
        length, started = arriving.missing, time.monotonic()
        while arriving.missing:
            await add(await incoming.chunk())
            self._check_pace(length - arriving.missing, time.monotonic() - started)

    def _check_pace(self, arrived: int, seconds: float) -> None:
        if seconds > STALL_SECONDS and self._budget.contended and arrived < seconds * MIN_BYTES_PER_SECOND:
            raise Stalled(
                f"the upload brought {arrived} bytes in {seconds:.0f} s while others waited for its place"
            )

    async def _skip(self, start: UploadStart, incoming: FrameReader) -> None:
        """Read past an upload that came after its sum had closed, without keeping any of it."""
        if start.length > self._budget.capacity:
            raise RemoteProtocolError(f"an upload of {start.length} bytes is longer than any sum of this plan")
        missing = start.length
        while missing > 0:
            missing -= len((await incoming.chunk()).data)
        if missing < 0:
            raise RemoteProtocolError(f"an upload brought {-missing} bytes more than announced")


def _held(assembler: Assembler) -> Callable[[Chunk], Awaitable[None]]:
    """Return what puts a chunk to those before it."""

    async def add(chunk: Chunk) -> None:
        assembler.add(chunk)

    return add
