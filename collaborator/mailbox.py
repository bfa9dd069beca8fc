"""Queues what the aggregator has said on one stream until the worker takes it: a few entries, never more.

A newer request makes the older ones worthless, and the messages of their rounds; a newer proposal makes the older
set-up worthless. What moves the state of the run is never worthless: it moves by every sum, in their order, and a
request waits behind the sums that came before it. What is left of an honest aggregator's words fits (`MAX_WAITING`
says why). With more the reader
waits, nothing further is read from the stream, and gRPC's flow control holds the sender back. Nothing that matters
is behind that wait: an end of the stream, a refusal or a newer request is missed only behind messages that no
honest aggregator sends, and only until the worker takes the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque

from fedfair.secagg.checks import SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.wire.frames import SecaggMessage
from fedfair.wire.receiving import ForWorker, MovesState, ReceivedRequest

MAX_WAITING = 8
"""One request, three messages of a set-up, and three of a round are the most that can wait of honest ones."""

MAX_SUMS = 2
"""Opened sums or states that wait, each of the size of a model, beside the one that the worker has taken."""

_OF_A_ROUND = frozenset({Kind.ROUND_START, Kind.PAIR_MASKS_REQUEST, Kind.SURVIVORS, Kind.UNMASK_REQUEST})
_OF_A_SET_UP = frozenset({Kind.PROPOSAL, Kind.KEY_ADVERTISEMENTS, Kind.CONFIRMS})


class Mailbox:
    """One stream's entries; one task puts, one takes, both on one event loop."""

    def __init__(self) -> None:
        self._entries: deque[ForWorker] = deque()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    async def put(self, said: ForWorker) -> None:
        """Add what was said last; wait while too much is there already."""
        superseded = _superseded_by(said)
        if superseded:
            kept = [entry for entry in self._entries if _kind(entry) not in superseded]
            self._entries = deque(kept)
        while len(self._entries) >= MAX_WAITING or (isinstance(said, MovesState) and self._moving >= MAX_SUMS):
            self._changed.clear()
            await self._changed.wait()
        if isinstance(said, ReceivedRequest):
            # In place of the older request: what is left of the set-up is heard under this one. But what moves
            # the state of the run comes first, because the request is about the state after it.
            moves = [at for at, entry in enumerate(self._entries, 1) if isinstance(entry, MovesState)]
            self._entries.insert(moves[-1] if moves else 0, said)
        else:
            self._entries.append(said)
        self._changed.set()

    async def take(self) -> ForWorker:
        """Return the oldest entry; wait until there is one."""
        while not self._entries:
            self._idle.set()
            self._changed.clear()
            await self._changed.wait()
        self._idle.clear()
        entry = self._entries.popleft()
        self._changed.set()
        return entry

    @property
    def _moving(self) -> int:
        return sum(isinstance(entry, MovesState) for entry in self._entries)

    async def drained(self) -> None:
        """Wait until everything that was put was taken, and the taker wants more."""
        while self._entries or not self._idle.is_set():
            self._idle.clear()
            self._changed.set()
            await self._idle.wait()


def _superseded_by(said: ForWorker) -> frozenset[Kind | None]:
    """Return of which kinds an older entry is worthless now; None stands for a request."""
    if isinstance(said, ReceivedRequest):
        # Not what moves the state: OPENED is not of `_OF_A_ROUND`.
        return _OF_A_ROUND | {None}
    return frozenset(_OF_A_SET_UP) if _kind(said) is Kind.PROPOSAL else frozenset()


def _kind(entry: ForWorker) -> Kind | str | None:
    if isinstance(entry, ReceivedRequest):
        return None
    if not isinstance(entry, SecaggMessage):
        return "moves the state"
    try:
        return kind_of(entry.message)
    except SecaggError:
        # It is kept, so that it is refused like everything that is no message.
        return "no message"
