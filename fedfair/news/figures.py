"""Updates of a status that have no sentence: the step of a sum, who is connected, what an answer has cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fedfair.statistics.table import Purpose
from fedfair.watching.run_status import RunStatus, SumStep, attended, round_ended, stepped, summed


@dataclass(frozen=True, slots=True)
class StepReached:
    """The open sum has reached another step, or none is open any more.

    Attributes:
        step: which, and how long it may take.
    """

    step: SumStep

    def updated(self, status: RunStatus, now: datetime) -> RunStatus:
        """Return the status after it."""
        return stepped(status, self.step, now)


@dataclass(frozen=True, slots=True)
class Attendance:
    """Who is connected, and who is waited for; both in the plan's order."""

    present: tuple[str, ...]
    awaited: tuple[str, ...]

    def updated(self, status: RunStatus, now: datetime) -> RunStatus:
        """Return the status after it."""
        return attended(status, self.present, self.awaited, now)


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """The cost of an answer that the aggregator has accepted, as this site's metrics have it.

    Attributes:
        purpose: of the sum.
        round: of the sum.
        seconds: from the request to its acceptance.
        bytes_sent: bytes of frames.
        bytes_received: bytes of frames.
    """

    purpose: Purpose
    round: int
    seconds: float
    bytes_sent: int
    bytes_received: int

    def updated(self, status: RunStatus, now: datetime) -> RunStatus:
        """Return the status after it."""
        status = summed(status, self.purpose.value, self.seconds, self.bytes_received, self.bytes_sent)
        return round_ended(status, self.round, now) if self.purpose.statistic.is_round else status
