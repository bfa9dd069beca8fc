"""When a site calls its aggregator again after a stream that ended, and when it gives up.

Waits grow with each failed attempt (`backoff.py`). They begin with short ones again after a stream that lived, a
round that came to its end, or an accepted contribution: what breaks after that is a new fault.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from collaborator.backoff import LIVED_SECONDS, MAX_SECONDS, Backoff
from fedfair.errors import AbortedError
from fedfair.news.processors import Processor
from fedfair.news.site import RetryPlanned
from fedfair.wire.frames import SecaggMessage
from fedfair.wire.receiving import MovesState, ReceivedSum, ReceivedTotals

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
        """Begin with short waits again once a sum was asked for and came to its end on this stream."""
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
