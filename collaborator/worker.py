"""The contract between the driver of a site and its worker, for sums in the clear and under masks.

A worker answers one request at a time, in one thread of its own, and outlives the streams on which it is asked.
`plain_worker.py` adds in the clear, `masked_worker.py` under masks; which of the two a site has is its plan's
matter, and nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from collaborator.run_follower import HeldRun
from fedfair.errors import FedfairError, PrivacyError, StateError, SurveyError
from fedfair.ids import SumNumber
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.refusal import Refusal
from fedfair.wire.frames import CollaboratorFrame, SumStart, Welcome
from fedfair.wire.receiving import ForWorker, ReceivedRequest

if TYPE_CHECKING:
    from fedfair.news.event import News

MAY_RELEASE_NOTHING = "privacy budget exhausted; the site withdraws"
"""The words in a site's log about a sum that its budget refuses; the figures are in its ledger."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Permits this site to answer a request.

    Attributes:
        attempt: which attempt at this sum it is, from 1, by the site's own count, which survives restarts. It
            decides what is drawn; the attempt that the aggregator states decides nothing.
    """

    attempt: int


Rule = Callable[[AggregationRequest], Refusal | Granted]
"""From a request to what the site's policy says to it. Raises a PrivacyError where the site may release nothing
more."""


def hold_nothing() -> None:
    """Release nothing: the end of a rule that holds no file."""


@dataclass(slots=True)
class WorkerSums:
    """The requests of a worker so far, and how they went; the driver reads it.

    Attributes:
        last_sum: the newest sum that this site was asked for; 0 before the first.
        last_asked: the run, as the aggregator names it, and the newest request; None before the first.
        refused: why the last abstention was made; None before the first.
        busy: whether something is computed at this moment.
        exit_reason: why this site must leave, for its own operator; None where it may stay.
        fault: what was wrong with its last contribution, for its own operator alone; empty where nothing was.
    """

    last_sum: SumNumber = field(default_factory=lambda: SumNumber(0))
    last_asked: tuple[str, SumStart] | None = None
    refused: Refusal | None = None
    busy: bool = False
    exit_reason: FedfairError | None = None
    fault: str = ""

    def expect(self, question: ReceivedRequest) -> None:
        """Note that this request has arrived; every older one is worthless from now on."""
        self.last_sum = question.start.sum_number
        self.last_asked = question.run_id, question.start

    def may_not_release(self, fault: PrivacyError) -> Refusal:
        """Note that the budget is spent; return what the sum is answered with."""
        self.exit_reason = fault
        return Refusal(MAY_RELEASE_NOTHING, "budget", leaving=True)

    def may_not_continue(self, fault: StateError) -> Refusal:
        """Note that this site has lost what it must remember of the run; return what the sum is answered with."""
        self.exit_reason = fault
        return Refusal(fault.message, "own-state", leaving=True)

    def stops_after_survey(self, fault: SurveyError) -> Refusal:
        """Note that this site's own policy stops it; return what the sum is answered with."""
        self.exit_reason = fault
        return Refusal(fault.message, "survey", leaving=True)


class Worker(Protocol):
    """The worker that computes for one site; belongs to one event loop."""

    @property
    def sums(self) -> WorkerSums:
        """Return what was asked so far."""

    @property
    def session(self) -> bytes:
        """Return the name of the session that this process has keys of; empty for none."""

    @property
    def held(self) -> HeldRun:
        """Return what this site says of its copy of the run."""

    async def join(self, welcome: Welcome) -> None:
        """Take part in the run that the aggregator announces: at once, or after what is computed for another run.

        Raises:
            FedfairError: it evaluates a saved model that this site neither has nor has approved.
        """

    async def finish(self, words: str) -> None:
        """Record the end of the run, after what is computed now.

        Args:
            words: how it ended, in the aggregator's words.
        """

    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot go on; the reason is not for the aggregator.
        """

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator of the run, once."""

    def close(self) -> None:
        """Wait for the computation to end, then close every file."""
