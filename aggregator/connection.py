"""One collaborator's connection: its outgoing queue, and the limits on what it may send.

The driver fills a connection, the service's writer drains it; neither ever waits for the other. The queue holds
short frames and references to shared vectors, so a slow reader costs a few kilobytes, and one that lets more
than a handful of frames pile up is cut off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from aggregator.broadcast import Broadcast, VectorMessage
from fedfair.aggregation.spec import SumSpec
from fedfair.audit.keeper import AT_CONNECTION, Occasion
from fedfair.errors import RemoteProtocolError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.rounds.continued import NOTHING_SEEN, Seen
from fedfair.wire.codec import encode_aggregator_frame
from fedfair.wire.frames import AggregatorFrame, Finished, Refused, SecaggMessage, SumStart

MAX_QUEUED = 64
"""Frames and vectors that may wait; an honest reader that keeps up has at most four."""

MAX_UNASKED = 16
"""Messages that a peer may send after the last thing that it was asked; an honest one sends one or two."""

FAREWELL_SECONDS = 5.0
"""How long the last frame may take to be read before the stream is cut."""

ENDED_SECONDS = 600.0
"""How long a site may take to say that it has heard the end: before that it evaluates on its own records."""


@dataclass(frozen=True, slots=True)
class LatestRequest:
    """The sum that a stream was asked for last."""

    number: SumNumber
    spec: SumSpec


class Connection:
    """One authenticated stream.

    Attributes:
        participant: who speaks on it, by its certificate.
        session: of which masking session it said to have keys; empty for none.
        auth_context: what gRPC knows of the peer's certificate; empty in memory.
        seen: what it said to have been asked on earlier streams.
        state: the digest of the copy that it said to have of the run that `seen` names; empty for none.
        approval: its signed approval of the plan, which was verified; empty in memory.
        sent_away: whether the last frame says that its participant need not come back.
        cut_reason: why the stream is to be cut at once; done as soon as there is a reason.
        occasion: the sum that the stream was asked for last, as records name it.
        opened: when it was let in, by the clock of the event loop.
        is_heard: whether the round rules know of it; a participant whose streams never last is heard later.
        contributed: whether a contribution that came on it was counted.
    """

    def __init__(
        self,
        participant: ParticipantId,
        session: bytes = b"",
        auth_context: Mapping[str, Sequence[bytes]] = MappingProxyType({}),
        seen: Seen = NOTHING_SEEN,
        state: bytes = b"",
        approval: bytes = b"",
    ) -> None:
        self.participant = participant
        self.session = session
        self.auth_context = auth_context
        self.seen = seen
        self.state = state
        self.approval = approval
        self.occasion = AT_CONNECTION
        self.opened = asyncio.get_running_loop().time()
        self.is_heard = False
        self.contributed = False
        self.cut_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue: deque[bytes | Broadcast | VectorMessage] = deque()
        self._filled = asyncio.Event()
        self._leaving = self._is_end = False
        self.sent_away = False
        self._first_asked: SumNumber | None = None
        self._asked: LatestRequest | None = None
        self._unasked = 0

    # -------------------------------------------------------------- the driver's side

    def send(self, frame: AggregatorFrame) -> None:
        """Queue one short frame; after `leave`, nothing is queued any more."""
        if isinstance(frame, SumStart | SecaggMessage):
            self._unasked = 0
        self._put(encode_aggregator_frame(frame))

    def publish(self, publication: Broadcast | VectorMessage) -> None:
        """Queue a vector."""
        self._put(publication)

    def ask(self, number: SumNumber, spec: SumSpec, occasion: Occasion) -> None:
        """Note that this stream is being asked for a sum, so that its upload is expected."""
        self.occasion = occasion
        self._first_asked = number if self._first_asked is None else self._first_asked
        self._asked = LatestRequest(number, spec)

    def leave(self, farewell: Finished | Refused) -> None:
        """Queue the last frame; the stream ends when it was read, or soon after."""
        if self._leaving:
            return
        self.send(farewell)
        self._leaving = True
        self.sent_away = isinstance(farewell, Refused) and not farewell.try_again
        self._is_end = isinstance(farewell, Finished)
        loop = asyncio.get_running_loop()
        loop.call_later(FAREWELL_SECONDS, self._cut_unread)
        if self._is_end:
            loop.call_later(ENDED_SECONDS, self.cut, "the end of the run was not acknowledged")

    def _cut_unread(self) -> None:
        if not (self._is_end and self.is_written):
            self.cut("the last frame was not read")

    def cut(self, reason: str) -> None:
        """End the stream now, in the middle of whatever is being sent."""
        if not self.cut_reason.done():
            self.cut_reason.set_result(reason)

    @property
    def is_leaving(self) -> bool:
        """Return whether the last frame is queued or written."""
        return self._leaving

    @property
    def is_end(self) -> bool:
        """Return whether the last frame says that the run is over, which an honest site acknowledges."""
        return self._is_end

    @property
    def is_written(self) -> bool:
        """Return whether the last frame was written."""
        return self._leaving and not self._queue

    def _put(self, item: bytes | Broadcast | VectorMessage) -> None:
        if self._leaving:
            return
        if len(self._queue) >= MAX_QUEUED:
            self.cut(f"{len(self._queue)} frames wait to be read")
            return
        self._queue.append(item)
        self._filled.set()

    # -------------------------------------------------------------- the service's side

    def expected(self, number: SumNumber) -> SumSpec | None:
        """Return the shape of an announced upload; None where it is late and only to be read past.

        Raises:
            RemoteProtocolError: this stream was never asked for that sum.
        """
        if (
            self._asked is None
            or self._first_asked is None
            or not (self._first_asked <= number <= self._asked.number)
        ):
            asked = "nothing yet" if self._asked is None else f"sum {self._asked.number}"
            raise RemoteProtocolError(
                f"upload for sum {number} arrived, but this stream was asked for {asked}",
                "an upload follows the sum it answers; restart the collaborator",
            )
        return self._asked.spec if number == self._asked.number else None

    def heard(self) -> None:
        """Note a message of the peer: each is recorded for good, so there is a limit to what nobody asked for.

        Raises:
            RemoteProtocolError: it says more than anybody asked for.
        """
        self._unasked += 1
        if self._unasked > MAX_UNASKED:
            raise RemoteProtocolError(
                f"{self.participant} sent {self._unasked} messages since its last request; "
                f"at most {MAX_UNASKED} are read",
                "restart the collaborator, with the version of fedfair that the aggregator has",
            )

    async def drain(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write everything that is queued, as it comes, until the last frame is written."""
        while self._queue or not self._leaving:
            if not self._queue:
                self._filled.clear()
                await self._filled.wait()
                continue
            item = self._queue[0]
            if isinstance(item, Broadcast | VectorMessage):
                await self._write_vector(item, write)
            else:
                await write(item)
            self._queue.popleft()

    async def _write_vector(
        self, publication: Broadcast | VectorMessage, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        for frame in publication.frames():
            await write(frame)
