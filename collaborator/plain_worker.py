"""Answers requests in the clear; each answer is computed once and kept until a newer request comes.

An answer is bound to its run and its request, word for word. When a connection breaks while it is computed or
sent, the same request on the next connection gets the same bytes; they are never computed twice. A newer request
makes an older answer worthless: it is dropped unsent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from collaborator.worker import Rule, WorkerStanding, hold_nothing, in_thread
from fedfair.aggregation.contribution import Contribution, encode
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import PrivacyError, RemoteProtocolError, TrainingError
from fedfair.ids import RoundNumber
from fedfair.plan.purpose import Purpose
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import reason_for
from fedfair.wire.chunking import upload_frames
from fedfair.wire.frames import Abstain, CollaboratorFrame, SecaggMessage, SumStart
from fedfair.wire.receiving import ReceivedRequest, ReceivedSum


class PlainTask(Protocol):
    """The task that computes: `training.client.TrainingClient`."""

    @property
    def scaling(self) -> FeatureScaling | None:
        """Return the scaling that the next contribution is made under; None where features are not scaled."""

    def contribution(self, request: SumRequest, model: GlobalModel) -> Contribution:
        """Return what this site adds to the requested sum."""

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features."""


Answer = bytearray | Refusal


class PlainWorker:
    """A worker whose sums are in the clear.

    Args:
        task: what computes.
        specs: the shape of every sum.
        rule: the site's policy.
        release: lets go of what the rule holds; called at the end, from whichever thread closes.

    Attributes:
        standing: what was asked so far.
        session: empty: plain sums need no keys.
    """

    def __init__(
        self,
        task: PlainTask,
        specs: dict[Purpose, SumSpec],
        rule: Rule,
        release: Callable[[], None] = hold_nothing,
    ) -> None:
        self._task = task
        self._specs = specs
        self._rule = rule
        self._release = release
        self._worker = ThreadPoolExecutor(1, "training")
        self._current: tuple[tuple[str, SumStart], asyncio.Future[Answer | None]] | None = None
        self.standing = WorkerStanding()
        self.session = b""

    async def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features before anything else is computed."""
        await in_thread(self._worker, self._task.apply_scaling, scaling)

    async def answer(self, question: ReceivedRequest) -> Answer | None:
        """Return the answer; None where a newer request has made it worthless.

        Raises:
            FedfairError: this site cannot go on; the reason is not for the aggregator.
        """
        asked = question.run_id, question.start
        if self._current is None or self._current[0] != asked:
            loop = asyncio.get_running_loop()
            self._current = (asked, loop.run_in_executor(self._worker, self._compute, question))
        # The stream that asked may end before the answer is there; the next one wants it still.
        answer = await asyncio.shield(self._current[1])
        return answer if question.start.sum_number == self.standing.last_sum else None

    async def frames(self, said: ReceivedRequest | SecaggMessage | ReceivedSum) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot go on; the reason is not for the aggregator.
        """
        if not isinstance(said, ReceivedRequest):
            raise RemoteProtocolError("a message of secure aggregation arrived, but the plan's sums are plain")
        answer = await self.answer(said)
        number = said.start.sum_number
        if answer is None:
            return ()
        if isinstance(answer, Refusal):
            self.standing.refused = answer
            return (Abstain(number, reason_for(answer.term), answer.leaving),)
        return upload_frames(number, answer)

    def close(self) -> None:
        """Let the worker end after what it is doing now."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._release()

    def _compute(self, question: ReceivedRequest) -> Answer | None:
        """In the worker thread: compute and encode."""
        start, standing = question.start, self.standing
        if start.sum_number != standing.last_sum:
            return None
        standing.busy = True
        try:
            said = self._rule(replace(question, scaling=self._task.scaling))
            if isinstance(said, Refusal):
                return said
            spec = self._specs[start.purpose]
            request = SumRequest(start.purpose, RoundNumber(start.round), said.attempt, spec, start.query)
            return encode(self._task.contribution(request, question.model), spec)
        except TrainingError as fault:
            return Refusal(fault.message, "values")
        except PrivacyError as fault:
            return standing.may_not_release(fault)
        finally:
            standing.busy = False
