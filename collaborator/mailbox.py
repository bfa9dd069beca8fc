"""Queues what the aggregator has said on one stream until the worker takes it: a few entries, never more.

A newer request makes the older ones worthless, and the messages of their rounds; a newer proposal makes the older
set-up worthless. An opened sum is never worthless: the state of the run moves by every sum, in their order. So
none is dropped, and a request waits behind the sums that came before it. What is left of an honest aggregator's
words fits (`MAX_WAITING` says why). With more the reader waits, nothing further is read from the stream, and
gRPC's flow control holds the sender back. Nothing that matters is behind that wait: an end of the stream, a
refusal or a newer request is missed only behind messages that no honest aggregator sends, and only until the
worker takes the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque

from fedfair.secagg.checks import SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.wire.frames import SecaggMessage
from fedfair.wire.receiving import ReceivedRequest, ReceivedSum

Said = ReceivedRequest | SecaggMessage | ReceivedSum

MAX_WAITING = 8
"""One request, three messages of a set-up, and three of a round are the most that can wait of honest ones."""

MAX_SUMS = 2
"""Opened sums that wait, each of the size of a model, beside the one that the worker has taken."""

_OF_A_ROUND = frozenset({Kind.ROUND_START, Kind.SURVIVORS, Kind.UNMASK_REQUEST})
_OF_A_SET_UP = frozenset({Kind.PROPOSAL, Kind.KEY_ADVERTISEMENTS, Kind.CONFIRMS})


class Mailbox:
    """One stream's entries; one task puts, one takes, both on one event loop."""

    def __init__(self) -> None:
        self._entries: deque[Said] = deque()
        self._changed = asyncio.Event()
        self._sums = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def put(self, said: Said) -> None:
        """Add what was said last; wait while too much is there already."""
        superseded = _superseded_by(said)
        if superseded:
            kept = [entry for entry in self._entries if _kind(entry) not in superseded]
            self._entries = deque(kept)
        while len(self._entries) >= MAX_WAITING or (isinstance(said, ReceivedSum) and self._waiting >= MAX_SUMS):
            self._changed.clear()
            await self._changed.wait()
        if isinstance(said, ReceivedRequest):
            # In place of the older request: what is left of the set-up is heard under this one. Behind the sums.
            sums = [entry for entry in self._entries if isinstance(entry, ReceivedSum)]
            others = [entry for entry in self._entries if not isinstance(entry, ReceivedSum)]
            self._entries = deque([*sums, said, *others])
        else:
            self._entries.append(said)
            self._sums += isinstance(said, ReceivedSum)
        self._changed.set()

    async def take(self) -> Said:
        """Return the oldest entry; wait until there is one."""
        while not self._entries:
            self._changed.clear()
            await self._changed.wait()
        entry = self._entries.popleft()
        self._changed.set()
        return entry

    def carried_out(self, said: Said) -> None:
        """Note that the worker is done with an entry."""
        self._sums -= isinstance(said, ReceivedSum)
        self._changed.set()

    async def sums_are_taken(self) -> None:
        """Wait until the worker is done with every opened sum."""
        while self._sums:
            self._changed.clear()
            await self._changed.wait()

    @property
    def _waiting(self) -> int:
        return sum(isinstance(entry, ReceivedSum) for entry in self._entries)


def _superseded_by(said: Said) -> frozenset[Kind | None]:
    """Return of which kinds an older entry is worthless now; None stands for a request."""
    if isinstance(said, ReceivedRequest):
        # Not the opened sums: OPENED is not of `_OF_A_ROUND`.
        return _OF_A_ROUND | {None}
    return frozenset(_OF_A_SET_UP) if _kind(said) is Kind.PROPOSAL else frozenset()


def _kind(entry: Said) -> Kind | str | None:
    if isinstance(entry, ReceivedRequest):
        return None
    try:
        return kind_of(entry.message)
    except SecaggError:
        # It is kept, so that it is refused like everything that is no message.
        return "no message"
