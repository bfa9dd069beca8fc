"""The worker of a site as its driver sees it, for sums in the clear and under masks.

A worker answers one request at a time, in one thread of its own, and outlives the streams on which it is asked.
`plain_worker.py` adds in the clear, `masked_worker.py` under masks; which of the two a site has is its plan's
matter, and nobody else's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from collaborator.run_follower import HeldRun, RunFollower
from fedfair.errors import FedfairError, PrivacyError, StateError, SurveyError
from fedfair.ids import SumNumber
from fedfair.news.event import News
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.refusal import Refusal
from fedfair.wire.frames import CollaboratorFrame, SumStart, Welcome
from fedfair.wire.receiving import ForWorker, ReceivedRequest

Said = TypeVar("Said")
Outcome = TypeVar("Outcome")

MAY_RELEASE_NOTHING = "privacy budget exhausted; the site withdraws"
"""The words in a site's log about a sum that its budget refuses; the figures are in its ledger."""


Rule = Callable[[AggregationRequest], Refusal | int]
"""From a request to what the site's policy says to it: a refusal, or which attempt at this sum the answer is, from
1, by the site's own count, which survives restarts. It decides what is drawn; the attempt that the aggregator
states decides nothing. Raises a PrivacyError where the site may release nothing more."""


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

    def leaves(self, fault: PrivacyError | StateError | SurveyError) -> Refusal:
        """Note why this site must leave; return what the sum is answered with.

        Args:
            fault: its budget is spent, it has lost what it must remember of the run, or its own policy stops it
                after the survey.
        """
        self.exit_reason = fault
        if isinstance(fault, PrivacyError):
            return Refusal(MAY_RELEASE_NOTHING, "budget", leaving=True)
        return Refusal(fault.message, "survey" if isinstance(fault, SurveyError) else "own-state", leaving=True)


class Worker(ABC):
    """The worker that computes for one site, in one thread; belongs to one event loop.

    Args:
        follower: this site's copy of the run.

    Attributes:
        sums: what was asked so far.
    """

    def __init__(self, follower: RunFollower) -> None:
        self._follower = follower
        self._worker = ThreadPoolExecutor(1, "training")
        self.sums = WorkerSums()

    @property
    def session(self) -> bytes:
        """Return the name of the session that this process has keys of; empty for none."""
        return b""

    @property
    def held(self) -> HeldRun:
        """Return what this site says of its copy of the run."""
        return self._follower.held

    @property
    def unsent(self) -> deque[bytes]:
        """Return the signed checkpoints that the aggregator does not have yet, the oldest first."""
        return self._follower.unsent

    @property
    def statement(self) -> bytes:
        """Return what this site has signed last of the run; empty where it has signed nothing."""
        return self._follower.statement

    async def join(self, welcome: Welcome) -> None:
        """Take part in the run that the aggregator announces: at once, or after what is computed for another run.

        Raises:
            FedfairError: it evaluates a saved model that this site neither has nor has approved.
        """
        # A site that returns while it still computes need not wait for that before it listens.
        if not self._follower.has_joined(welcome):
            await self._after_work(self._follower.join, welcome)

    async def finish(self, words: str) -> None:
        """Record the end of the run, after what is computed now.

        Args:
            words: how it ended, in the aggregator's words.
        """
        await self._after_work(self._follower.finish, words)

    def _after_work(self, step: Callable[[Said], Outcome], said: Said) -> asyncio.Future[Outcome]:
        """Do a step in the worker's thread, after what is computed now."""
        return asyncio.get_running_loop().run_in_executor(self._worker, step, said)

    @abstractmethod
    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot continue; the reason is not for the aggregator.
        """

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator of the run, once."""
        return self._follower.take_notices()

    @abstractmethod
    def close(self) -> None:
        """Wait for the computation to end, then close every file."""
