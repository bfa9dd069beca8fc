"""When a site calls its aggregator again after a stream that ended, and when it gives up.

Waits grow with each failed attempt. They begin with short ones again after a stream that lived, a
round that ended, or an accepted contribution: what breaks after that is a new fault.

The wait before the next attempt doubles from a quarter of a second to half a minute, and takes a random part of
it, so that many sites which lost the same aggregator do not all come back in the same moment. It starts again with
every accepted answer, every round that was heard to its end, and after a stream that lived for a while; not with
every greeting: an aggregator whose streams break right after it must not be called several times a second.

A dead line that nobody has closed is found by its silence. On a good line a pause of some seconds is nothing, and
to give up a long upload for it would be worse. On one that broke a moment ago it is probably dead again. But where
attempt after attempt brings nothing to its end, the line may be one that often pauses, and is given its time.

The requests of one stream that a site refuses are limited. Every refusal is recorded, sent and logged, so an
aggregator that sends nonsense without end would fill the disk. An honest one hears of at most one refusal about a
sum, or of two where messages cross; and between refused sums it accepts others, or the run ends after its
attempts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fedfair.errors import AbortedError, UnreachableError
from fedfair.news.processors import Processor
from fedfair.news.site import RetryPlanned
from fedfair.wire.frames import SecaggMessage
from fedfair.wire.receiving import MovesState, ReceivedSum, ReceivedTotals
from fedfair.wire.service import FRAIL_KEEPALIVE, KEEPALIVE, KeepAlive

FIRST_SECONDS = 0.25
MAX_SECONDS = 30.0

LIVED_SECONDS = 30.0
"""A stream that lived so long was good: what broke it is a new fault."""


class Backoff:
    """The waiting times of one process.

    Args:
        draw: returns a number in [0, 1); randomness comes from outside.

    Attributes:
        fruitless: attempts since something was brought to its end.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._longest = FIRST_SECONDS
        self.fruitless = 0

    def next(self) -> float:
        """Return the seconds to wait now: between half of the present bound and all of it."""
        bound = self._longest
        self.fruitless += 1
        self._longest = min(2 * bound, MAX_SECONDS)
        return bound * (1 + self._draw()) / 2

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._longest = FIRST_SECONDS
        self.fruitless = 0


ENDED_SECONDS = 3600.0
"""How long a site that has the run to its end calls its aggregator, which may have gone for good."""

REMINDER_SECONDS = 600.0
"""The operator reads one and the same reason for waiting no more often than this."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The time for which a site keeps trying.

    Attributes:
        backoff: the waits between two attempts.
        give_up_after_seconds: how long without a stream before it gives up; None for never.
        clock: seconds since any fixed moment.
        ended_seconds: the most of the time to keep trying for a site that has the run to its end already.
    """

    backoff: Backoff
    give_up_after_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    ended_seconds: float = ENDED_SECONDS


class Calls:
    """The calls of one site at its aggregator.

    Args:
        patience: the time for which it keeps trying.
        publish: tells the operator of the next attempt.

    Attributes:
        last_words: of an aggregator that refused this site for now; empty before.
    """

    def __init__(self, patience: Patience, publish: Processor) -> None:
        self._patience, self._publish = patience, publish
        self._last_contact = time.monotonic()
        self._greeted: float | None = None
        self._was_asked = False
        self._noted: tuple[str, float] | None = None
        self.last_words = ""

    def stream_began(self) -> None:
        """Note a new stream."""
        self._was_asked = False

    def heard(self) -> None:
        """Note that the aggregator said something."""
        self._last_contact = time.monotonic()

    def greeted(self) -> None:
        """Note that the aggregator has announced its run on this stream."""
        self._greeted = self._patience.clock()

    def asked(self) -> None:
        """Note that the aggregator has asked for a sum on this stream."""
        self._was_asked = True

    def took(self, message: MovesState | SecaggMessage) -> None:
        """Begin with short waits again once a sum was asked for and ended on this stream."""
        if self._was_asked and isinstance(message, ReceivedTotals | ReceivedSum):
            self._patience.backoff.reset()

    def contributed(self) -> None:
        """Begin with short waits again, because the aggregator has accepted a contribution."""
        self._patience.backoff.reset()

    def stream_ended(self) -> None:
        """Begin with short waits again after a stream that lived."""
        greeted, self._greeted = self._greeted, None
        if greeted is not None and self._patience.clock() - greeted >= LIVED_SECONDS:
            self._patience.backoff.reset()

    def next_seconds(self) -> float:
        """Return how long to wait before a call that no fault is the reason of."""
        return self._patience.backoff.next()

    def pause_seconds(self, fault: str, *, is_over: bool) -> float | None:
        """Return how long to wait before the next call; None where there is nothing left to call for.

        Args:
            fault: why the last attempt failed.
            is_over: whether this site has the run to its end.

        Raises:
            AbortedError: the patience is over.
        """
        limit, away = self._patience.give_up_after_seconds, time.monotonic() - self._last_contact
        if is_over:
            limit = min(self._patience.ended_seconds, math.inf if limit is None else limit)
            if away >= limit:
                return None
        if limit is not None and away >= limit:
            said = f", whose last words were: {self.last_words}" if self.last_words else ""
            raise AbortedError(
                f"gave up after {away:.0f} s without the aggregator{said}; the last attempt: {fault}",
                "ask the aggregator's operator whether the run is over; if it is not, start again",
            )
        seconds = self._patience.backoff.next()
        self._note(fault, seconds, None if limit is None else limit - away)
        return seconds

    def _note(self, fault: str, seconds: float, left: float | None) -> None:
        """Tell the operator of a fault once, and of the same one again after a while: it may last for days."""
        now = time.monotonic()
        if self._noted is not None:
            told, at = self._noted
            if told == fault and self._last_contact < at and now < at + REMINDER_SECONDS:
                return
        self._noted = fault, now
        until = None if left is None else datetime.now(UTC) + timedelta(seconds=left)
        self._publish(RetryPlanned(fault, seconds, MAX_SECONDS, until))


FRAIL_SECONDS = 60.0
"""A line is frail that is opened again within so many seconds."""

MAX_FRUITLESS = 3
"""Attempts that may bring nothing to its end before a line is given its time."""


class LineWatch:
    """The attempts to connect of one process.

    Args:
        clock: seconds since any fixed moment.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before: float | None = None

    def next(self, fruitless: int) -> KeepAlive:
        """Return how the line is watched that is opened now.

        Args:
            fruitless: attempts since a contribution was accepted, a round was heard to its end, or a stream lived.
        """
        now, before = self._clock(), self._before
        self._before = now
        is_frail = before is not None and now - before <= FRAIL_SECONDS and fruitless <= MAX_FRUITLESS
        return FRAIL_KEEPALIVE if is_frail else KEEPALIVE


MAX_IN_A_SUM = 4
"""Refusals between two requests: one of the sum, and room for messages that cross on their way."""

MAX_IN_A_ROW = 32
"""Refusals without an accepted contribution between them: a policy may refuse some sums, one after the other."""

_REMEDY = "this site tries again later; if that fails too, ask the aggregator's operator which version runs there"


class TooManyRefusalsError(UnreachableError):
    """The stream is ended; the next one waits longer."""


class RefusalLimit:
    """The counts of one stream."""

    def __init__(self) -> None:
        self._in_sum = 0
        self._in_a_row = 0

    def asked(self) -> None:
        """Note that a request has come."""
        self._in_sum = 0

    def contributed(self) -> None:
        """Note that a contribution of this site was accepted."""
        self._in_a_row = 0

    def refused(self, reason: str) -> None:
        """Note a refusal.

        Args:
            reason: of this one, in words.

        Raises:
            TooManyRefusalsError: it is one too many.
        """
        self._in_sum += 1
        self._in_a_row += 1
        for count, most, where in (
            (self._in_sum, MAX_IN_A_SUM, "about one sum"),
            (self._in_a_row, MAX_IN_A_ROW, "in a row"),
        ):
            if count >= most:
                words = f"this site refused {count} requests {where} and ends the stream; the last one: {reason}"
                raise TooManyRefusalsError(words, _REMEDY)
