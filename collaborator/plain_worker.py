"""Answers requests in the clear; each answer is computed once and kept until a newer request comes.

An answer is bound to its run and its request, word for word. When a connection breaks while it is computed or
sent, the same request on the next connection gets the same bytes; they are never computed twice. A newer request
makes an older answer worthless: it is dropped unsent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from collaborator.run_follower import RunFollower
from collaborator.worker import Rule, Worker
from fedfair.aggregation.contribution import Contribution, encode
from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import PrivacyError, RemoteProtocolError, StateError, TrainingError
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import reason_for
from fedfair.run.opened_totals import decode_totals
from fedfair.run.replica import OutOfStepError
from fedfair.statistics.table import Purpose
from fedfair.terms.at_sites import SiteMemory
from fedfair.training.site_task import SiteTask
from fedfair.wire.chunking import upload_frames
from fedfair.wire.frames import Abstain, CollaboratorFrame, SecaggMessage, SumStart
from fedfair.wire.receiving import ForWorker, ReceivedRequest, ReceivedState, ReceivedSum, ReceivedTotals

Answer = bytearray | Refusal


class PlainWorker(Worker):
    """A worker whose sums are in the clear.

    Args:
        task: what computes.
        specs: the shape of every sum.
        rule: the site's policy.
        follower: this site's copy of the run.
        release: lets go of what the rule holds; called at the end, from whichever thread closes.
        memory: what it keeps of the rounds that counted it; None where the plan needs nothing of the kind.
    """

    def __init__(
        self,
        task: SiteTask,
        specs: dict[Purpose, SumSpec],
        rule: Rule,
        follower: RunFollower,
        release: Callable[[], None] = lambda: None,
        memory: SiteMemory | None = None,
    ) -> None:
        super().__init__(follower)
        self._task, self._specs, self._rule = task, specs, rule
        self._release, self._memory = release, memory
        self._current: tuple[tuple[str, SumStart], asyncio.Future[Answer | None]] | None = None

    async def answer(self, question: ReceivedRequest) -> Answer | None:
        """Return the answer; None where a newer request has made it worthless.

        Raises:
            FedfairError: this site cannot continue; the reason is not for the aggregator.
        """
        asked = question.run_id, question.start
        if self._current is None or self._current[0] != asked:
            self._current = (asked, self._after_work(self._compute, question))
        # The stream that asked may end before the answer is there; the next one wants it still.
        answer = await asyncio.shield(self._current[1])
        return answer if question.start.sum_number == self.sums.last_sum else None

    async def frames(self, said: ForWorker) -> Iterable[CollaboratorFrame]:
        """Return what to send.

        Raises:
            FedfairError: this site cannot continue; the reason is not for the aggregator.
        """
        if isinstance(said, SecaggMessage | ReceivedSum):
            raise RemoteProtocolError("a message of secure aggregation arrived, but the plan's sums are plain")
        if isinstance(said, ReceivedState | ReceivedTotals):
            follow = self._take_state if isinstance(said, ReceivedState) else self._take_totals
            await self._after_work(follow, said.packed)
            return ()
        answer = await self.answer(said)
        number = said.start.sum_number
        if answer is None:
            return ()
        if isinstance(answer, Refusal):
            self.sums.refused = answer
            return (Abstain(number, reason_for(answer.term), answer.leaving),)
        return upload_frames(number, answer)

    def close(self) -> None:
        """Let the worker end after what it is doing now."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._release()
        self._follower.recording.close()

    # -------------------------------------------------------------- in the worker thread

    def _take_state(self, packed: memoryview) -> None:
        """Take the state that the aggregator states: under a plan with plain sums its word is all there is."""
        self._follower.replica.offer(packed)
        self._follower.replica.trust()

    def _take_totals(self, packed: memoryview) -> None:
        replica = self._follower.replica
        due = replica.rules.next_request(replica.state)
        if due is None:
            raise RemoteProtocolError("an opened sum arrived after the last one of the run")
        opened = decode_totals(packed, self._specs[due.purpose])
        if opened.state != replica.digest:
            raise OutOfStepError(
                f"an opened sum about state {opened.state.hex()[:16]} of the run, this site holds "
                f"{replica.digest.hex()[:16]}"
            )
        self._follower.apply(opened.totals, opened.members)

    def _compute(self, question: ReceivedRequest) -> Answer | None:
        """Compute and encode."""
        start, sums = question.start, self.sums
        if start.sum_number != sums.last_sum:
            return None
        sums.busy = True
        try:
            request = self._follower.due(start)
            said = self._rule(self._follower.asked(question, request))
            if isinstance(said, Refusal):
                return said
            return encode(self._contribution(replace(request, attempt=said)), self._specs[request.purpose])
        except (OutOfStepError, TrainingError) as fault:
            return Refusal(fault.message, "values" if isinstance(fault, TrainingError) else "protocol")
        except (PrivacyError, StateError) as fault:
            return sums.leaves(fault)
        finally:
            sums.busy = False

    def _contribution(self, request: SumRequest) -> Contribution:
        """Return what this site adds; what its memory becomes by it is on the disk before."""
        model, memory = self._follower.replica.state.model, self._memory
        if memory is None or not request.terms:
            return self._task.contribution(request, model)
        remembered = memory.correction(request, model, self._task.training_weight)
        contribution = self._task.contribution(request, model, remembered)
        if request.purpose.statistic.is_round:
            memory.adding(request, model, self._task.added(contribution))
        return contribution
