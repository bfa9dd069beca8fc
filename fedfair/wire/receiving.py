"""Checks what the aggregator says on one stream, frame by frame.

The aggregator is not trusted to keep the order of the protocol: this side compares lengths with what the plan
allows before it allocates, and sum and round numbers with those before. Whether a sum is due, and what it is
about, is decided by this site's own copy of the run (`run.replica`). What is left when a frame has passed is
something that the driver can act on. No socket, no clock, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.errors import RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.wire.chunking import Assembler, agreed_vector_length, expect_broadcast
from fedfair.wire.frames import (
    Accepted,
    AggregatorFrame,
    BroadcastKind,
    BroadcastStart,
    Chunk,
    Finished,
    Refused,
    SecaggMessage,
    SumStart,
    TrustUpdate,
    Welcome,
)
from fedfair.wire.limits import MAX_TRUST_UPDATES


@dataclass(frozen=True, slots=True)
class Shapes:
    """The greatest lengths of everything that the plan and the model allow.

    Attributes:
        state_bytes: of a state of the run.
        totals_bytes: of an opened sum in the clear; 0 where sums are masked.
        rounds: training rounds of the plan.
        opened_lengths: bytes that the body of an opened sum may have; none where sums are plain.
    """

    state_bytes: int
    totals_bytes: int
    rounds: int
    opened_lengths: frozenset[int] = frozenset()

    def greatest(self, kind: BroadcastKind) -> int:
        """Return the greatest length of a broadcast of this kind."""
        return self.state_bytes if kind is BroadcastKind.STATE else self.totals_bytes


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One sum that this site is asked for.

    Attributes:
        start: the request as it came; equal requests have equal answers.
        run_id: the run, as the aggregator names it.
        on_demand: whether that run evaluates a saved model and nothing else.
    """

    start: SumStart
    run_id: str = ""
    on_demand: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedState:
    """A state of the run (`run.packed_state`), which no member has vouched for."""

    packed: memoryview


@dataclass(frozen=True, slots=True)
class ReceivedTotals:
    """An opened sum in the clear (`run.opened_totals`)."""

    packed: memoryview


@dataclass(frozen=True, slots=True)
class ReceivedSum:
    """One opened masked sum as the aggregator states it; nothing of it is checked but the length of its body.

    Attributes:
        message: of secure aggregation.
        vector: the words of its body, in memory that the sum may be decoded in; empty where it has none.
    """

    message: bytes
    vector: bytes | memoryview = b""


MovesState = ReceivedState | ReceivedTotals | ReceivedSum
"""All that the state of this site's copy of the run may move by."""

ForWorker = ReceivedRequest | SecaggMessage | MovesState
"""All that the worker hears, in the order in which it came."""

Said = Welcome | ForWorker | TrustUpdate | Accepted | Finished | Refused


class Receiver:
    """The receiving half of one stream.

    Args:
        shapes: what this site expects.
        last_sum: the newest sum that an earlier stream asked for; 0 if there was none.
    """

    def __init__(self, shapes: Shapes, last_sum: SumNumber) -> None:
        self._shapes = shapes
        self._last_sum = last_sum
        self._last_round = 0
        self._asked_here = False
        self._welcomed = False
        self._evaluation_only = False
        self._run_id = ""
        self._updates = 0
        self._arriving: tuple[BroadcastStart | SecaggMessage, Assembler] | None = None

    def take(self, frame: AggregatorFrame) -> Said | None:  # noqa: C901, PLR0911 - one case per frame
        """Take one frame; return what it means, or None where more must come first.

        Raises:
            RemoteProtocolError: the frame is out of order or contradicts the plan.
        """
        if isinstance(frame, Refused | Finished):
            return frame
        if self._arriving is not None:
            return self._append(frame, *self._arriving)
        if isinstance(frame, Welcome) == self._welcomed:
            raise RemoteProtocolError(f"{type(frame).__name__} came at the wrong end of the greeting")
        match frame:
            case Welcome():
                return self._greet(frame)
            case BroadcastStart():
                self._arriving = (frame, expect_broadcast(frame, self._shapes.greatest(frame.kind)))
                return None
            case SumStart():
                return self._question(frame)
            case TrustUpdate():
                return self._update(frame)
            case Accepted(sum_number):
                if sum_number > self._last_sum:
                    raise RemoteProtocolError(f"sum {sum_number} was accepted before it was asked for")
                return frame
            case SecaggMessage():
                return self._message(frame)
            case Chunk():
                raise RemoteProtocolError("a chunk arrived that belongs to no broadcast")

    def _message(self, said: SecaggMessage) -> SecaggMessage | ReceivedSum | None:
        if _is_opened_sum(said):
            # A site that returns receives the last sum again, before it is asked for anything on the new stream.
            assembler = Assembler(agreed_vector_length(said, self._shapes.opened_lengths), None)
            if assembler.complete:
                return ReceivedSum(said.message)
            self._arriving = (said, assembler)
            return None
        if said.vector_length or not self._asked_here:
            raise RemoteProtocolError("a message of secure aggregation came with a vector, or before its sum")
        return said

    def _update(self, update: TrustUpdate) -> TrustUpdate:
        self._updates += 1
        if self._updates > MAX_TRUST_UPDATES:
            raise RemoteProtocolError(f"{self._updates} updates about certificates came on one stream")
        return update

    def _greet(self, welcome: Welcome) -> Welcome:
        if welcome.rounds_total != self._shapes.rounds:
            raise RemoteProtocolError(
                f"the aggregator announces {welcome.rounds_total} rounds, the plan has {self._shapes.rounds}"
            )
        self._welcomed, self._evaluation_only = True, welcome.evaluation_only
        self._run_id = welcome.run_id
        return welcome

    def _append(
        self, frame: AggregatorFrame, start: BroadcastStart | SecaggMessage, assembler: Assembler
    ) -> Said | None:
        if not isinstance(frame, Chunk):
            what = start.kind.value if isinstance(start, BroadcastStart) else "sum"
            raise RemoteProtocolError(f"{type(frame).__name__} interrupts the chunks of a {what}")
        assembler.add(frame)
        if not assembler.complete:
            return None
        self._arriving = None
        if isinstance(start, SecaggMessage):
            return ReceivedSum(start.message, assembler.take(writable=True))
        payload = assembler.take()
        return ReceivedState(payload) if start.kind is BroadcastKind.STATE else ReceivedTotals(payload)

    def _question(self, start: SumStart) -> ReceivedRequest:
        # The first request of a stream may repeat the last one of the stream before it, after an interruption.
        grows = start.sum_number > self._last_sum or (start.sum_number == self._last_sum and not self._asked_here)
        if not grows:
            raise RemoteProtocolError(f"sum {start.sum_number} follows sum {self._last_sum}")
        if not self._last_round <= start.round <= self._shapes.rounds:
            raise RemoteProtocolError(
                f"{start.purpose.value} sum of round {start.round} follows round {self._last_round} "
                f"of {self._shapes.rounds}"
            )
        if self._evaluation_only and not start.purpose.statistic.is_on_demand:
            raise RemoteProtocolError(
                f"a {start.purpose.value} sum was asked for in a run that was announced as an evaluation only"
            )
        self._last_sum, self._last_round, self._asked_here = start.sum_number, start.round, True
        return ReceivedRequest(start, self._run_id, self._evaluation_only)


def _is_opened_sum(frame: SecaggMessage) -> bool:
    try:
        return kind_of(frame.message) is Kind.OPENED
    except SecaggError:
        return False  # It continues to the worker, which refuses what is no message.
