"""Limits the bytes of uploads under way at the same time, over all streams.

Memory must not grow with the number of collaborators: each upload takes a place before its first chunk is read,
and gives it back once the round rules have added it to the running sum. Who finds no place is simply not read
on, and HTTP/2 flow control stops the sender: back-pressure without a refusal. Places are given in the order of
arrival, so that a large upload is never overtaken for ever by small ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fedfair.errors import LocalProtocolError

MIN_BUDGET_BYTES = 64 << 20
"""Small uploads never wait for each other; a large one waits for the large one before it."""


class UploadBudget:
    """The places; belongs to one event loop.

    Attributes:
        capacity: bytes that may be taken at the same time.
    """

    def __init__(self, largest_upload_bytes: int) -> None:
        self.capacity = max(largest_upload_bytes, MIN_BUDGET_BYTES)
        self._free = self.capacity
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def contended(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    @asynccontextmanager
    async def place(self, length: int) -> AsyncIterator[None]:
        """Hold `length` bytes of the budget for as long as the block runs.

        Raises:
            LocalProtocolError: the length is above the capacity; the caller did not check it against the plan.
        """
        if length > self.capacity:
            raise LocalProtocolError(f"an upload of {length} bytes can never fit in {self.capacity}")
        await self._take(length)
        try:
            yield
        finally:
            self._give_back(length)

    async def _take(self, length: int) -> None:
        if not self._waiting and length <= self._free:
            self._free -= length
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (length, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            # The stream ended while it waited, or in the very moment in which its turn came.
            if turn.cancelled():
                if entry in self._waiting:
                    self._waiting.remove(entry)
                self._admit()
            else:
                self._give_back(length)
            raise

    def _give_back(self, length: int) -> None:
        self._free += length
        self._admit()

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self._free):
            length, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= length
                turn.set_result(None)
