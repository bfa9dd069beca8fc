"""What this site answers to a question, computed once in one worker thread and kept until it is accepted.

An answer is bound to its question, word for word. When a connection breaks while the answer is being computed or
sent, and the same question comes again on the next one, the same bytes are sent again; they are never computed
twice. A newer question makes an older answer worthless: it is dropped unsent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from collaborator.inbox import Question
from collaborator.reluctance import Reluctance
from fedfair.errors import PrivacyError, RemoteProtocolError, TrainingError
from fedfair.ids import RoundNumber, SumNumber
from fedfair.learning.exchange import FeatureScaling, GlobalModel, SumRequest
from fedfair.plan.purpose import Purpose
from fedfair.sums.contribution import Contribution, encode
from fedfair.sums.spec import SumSpec
from fedfair.wire.chunking import upload_frames
from fedfair.wire.frames import Abstain, CollaboratorFrame, SecaggMessage, SumStart


class Task(Protocol):
    """What computes: `learning.task.TrainingTask`."""

    @property
    def scaling(self) -> FeatureScaling | None:
        """Return the scaling that the next contribution is made under; None where features are not scaled."""

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        """Return what this site adds to the requested sum."""

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features."""


Answer = bytearray | Reluctance

MAY_RELEASE_NOTHING = "its own ledger of differential privacy allows no further release, so it leaves"
"""What the log of a site says of a sum that its budget refuses; the figures are in its ledger."""


@dataclass(frozen=True, slots=True)
class Granted:
    """That this site may answer a question.

    Attributes:
        attempt: which attempt at this sum it is, from 1, by the site's own count, which survives restarts. It
            decides what is drawn; the attempt that the aggregator states decides nothing.
    """

    attempt: int


Rule = Callable[[Question], Reluctance | Granted]
"""From a question to what the site's policy says to it. Raises a PrivacyError where the site may release nothing
more."""


def hold_nothing() -> None:
    """Release nothing: the end of a rule that holds no file."""


class Answers:
    """The worker of one site; belongs to one event loop.

    Args:
        task: what computes.
        specs: the shape of every sum.
        rule: the site's policy.
        release: lets go of what the rule holds; called at the end, from whichever thread closes.

    Attributes:
        last_sum: the newest sum that this site was asked for; 0 before the first.
        last_asked: the run, as the aggregator names it, and the newest question; None before the first.
        refused: why the last abstention was made; None before the first.
        busy: whether the worker computes at this moment.
        parting: why this site must leave, for its own operator; None where it may stay.
    """

    def __init__(
        self,
        task: Task,
        specs: dict[Purpose, SumSpec],
        rule: Rule,
        release: Callable[[], None] = hold_nothing,
    ) -> None:
        self._task = task
        self._specs = specs
        self._rule = rule
        self._release = release
        self._worker = ThreadPoolExecutor(1, "training")
        self._current: tuple[SumStart, asyncio.Future[Answer | None]] | None = None
        self.last_sum = SumNumber(0)
        self.last_asked: tuple[str, SumStart] | None = None
        self.refused: Reluctance | None = None
        self.busy = False
        self.parting: PrivacyError | None = None

    async def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features before anything else is computed."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._worker, self._task.apply_scaling, scaling)

    def expect(self, question: Question) -> None:
        """Note that this question has arrived; every older one is worthless from now on."""
        self.last_sum = question.start.sum_number
        self.last_asked = question.run_id, question.start

    async def answer(self, question: Question) -> Answer | None:
        """Return the answer; None where a newer question has made it worthless.

        Raises:
            FedfairError: this site cannot go on; the reason is not for the aggregator.
        """
        start = question.start
        if self._current is None or self._current[0] != start:
            loop = asyncio.get_running_loop()
            self._current = (start, loop.run_in_executor(self._worker, self._compute, question))
        # The stream that asked may end before the answer is there; the next one wants it still.
        answer = await asyncio.shield(self._current[1])
        return answer if start.sum_number == self.last_sum else None

    @property
    def session(self) -> bytes:
        """Return nothing: plain sums need no keys."""
        return b""

    async def frames(self, said: Question | SecaggMessage) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot go on; the reason is not for the aggregator.
        """
        if isinstance(said, SecaggMessage):
            raise RemoteProtocolError("a message of secure aggregation arrived, but the plan's sums are plain")
        answer = await self.answer(said)
        number = said.start.sum_number
        if answer is None:
            return ()
        if isinstance(answer, Reluctance):
            self.refused = answer
            return (Abstain(number, answer.told, answer.leaving),)
        return upload_frames(number, answer)

    def forget(self, number: SumNumber) -> None:
        """Drop the answer to a sum: it was accepted."""
        if self._current is not None and self._current[0].sum_number == number:
            self._current = None

    def close(self) -> None:
        """Let the worker end after what it is doing now."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._release()

    def _compute(self, question: Question) -> Answer | None:
        """In the worker thread: compute and encode."""
        start = question.start
        if start.sum_number != self.last_sum:
            return None
        self.busy = True
        try:
            said = self._rule(replace(question, scaling=self._task.scaling))
            if isinstance(said, Reluctance):
                return said
            spec = self._specs[start.purpose]
            request = SumRequest(start.purpose, RoundNumber(start.round), said.attempt, spec, start.query)
            return encode(self._task.contribution(request, question.model), spec)
        except TrainingError as fault:
            return Reluctance(fault.message, "values")
        except PrivacyError as fault:
            self.parting = fault
            return Reluctance(MAY_RELEASE_NOTHING, "budget", leaving=True)
        finally:
            self.busy = False
