"""One site's part in one run: connect, answer what is asked, come back after an interruption, end.

On every stream two tasks work: one listens, so that a break, a newer request or the end is noticed at once, the
other answers, one request at a time, the newest first. Computing happens in the thread of a `worker.py`, and
outlives the stream. Between the two are a few entries at most (`mailbox.py`), and a stream that is refused too
much is ended (`calls.py`). The network may fail as often as it likes; a refusal by the aggregator ends the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from collaborator.calls import Calls, Patience, RefusalLimit
from collaborator.link import Link
from collaborator.mailbox import Mailbox
from collaborator.records import SiteLogs
from collaborator.site_certificates import SiteCertificates
from collaborator.withdrawal import abstention_reason, refusals_of, send_withdrawal
from collaborator.worker import Worker
from fedfair.errors import (
    ApprovalError,
    ConnectionRefusedByPeerError,
    IdentityError,
    RemoteProtocolError,
    RenewableIdentityError,
    UnreachableError,
)
from fedfair.ids import RoundNumber, SumNumber
from fedfair.news import site as news
from fedfair.news.processors import Processor
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.refusal import Refusal
from fedfair.wire import frames
from fedfair.wire.receiving import (
    MovesState,
    ReceivedRequest,
    ReceivedState,
    ReceivedSum,
    ReceivedTotals,
    Receiver,
    Shapes,
)

Greeting = Callable[[frames.Welcome], None]
"""Refuses a run that this site has no part in, by raising before anything but the introduction was sent."""

Dial = Callable[[], AbstractAsyncContextManager[tuple[Link, frames.Hello]]]
"""Opens one stream, and says what to introduce oneself with on it."""

LEAVE_SECONDS = 30.0
"""How long a site that leaves waits until the aggregator has read its last words."""

LOOK_SECONDS = 1.0
"""How often the files of certificates are looked at."""

AGGREGATOR_GONE = "this site has the run to its end, and its aggregator is not there any more"

LISTENER_TELLS = (UnreachableError, ConnectionRefusedByPeerError)
"""A write that fails is not the news: the listener hears of the same break, and before that whatever the
aggregator still had to say, such as a refusal."""


class StreamOutdatedError(RenewableIdentityError):
    """The stream is ended on this side and another one opened, because one side has a renewed certificate."""


class SiteDriver:
    """Carries one site through one run; belongs to one event loop."""

    def __init__(
        self,
        dial: Dial,
        shapes: Shapes,
        worker: Worker,
        records: SiteLogs,
        publish: Processor,
        patience: Patience,
        greeting: Greeting,
        certificates: SiteCertificates,
    ) -> None:
        self._dial, self._shapes = dial, shapes
        self._worker, self._records = worker, records
        self._publish = publish
        self._calls = Calls(patience, publish)
        self._greeting = greeting
        self._certificates = certificates
        self._between_sums = True
        self._looked = -math.inf
        self._asked: frames.SumStart | None = None
        self._contributed: SumNumber | None = None
        self._limit = RefusalLimit()
        self._has_left = False

    async def run(self) -> frames.Finished:
        """Take part until the run is finished; return the aggregator's last words.

        Raises:
            ConnectionRefusedByPeerError: the aggregator does not want this site.
            AbortedError: nobody answered, or no expired certificate was renewed, within the site's patience.
            PrivacyError: this site may release nothing more; the aggregator was notified.
            SecaggError: an opened sum is not what the sites added; the aggregator was notified.
            FedfairError: the aggregator broke the protocol, or this site cannot continue.
        """
        while True:
            finished: frames.Finished | None = None
            try:
                finished = await self._participate()
            except StreamOutdatedError as fault:
                self._end_if_left()
                self._publish(news.ReconnectionBegun(fault.message))
                # Without a wait that grows, an aggregator that announces one certificate after another would be
                # called many times a second.
                await asyncio.sleep(self._calls.next_seconds())
            except (UnreachableError, RenewableIdentityError) as fault:
                self._end_if_left()
                self._calls.stream_ended()
                finished = await self._pause(fault)
            else:
                self._end_if_left()
            if finished is not None:
                return finished

    def _end_if_left(self) -> None:
        """End where this site has taken its leave, however the stream ended after that."""
        if self._has_left and self._worker.sums.exit_reason is not None:
            raise self._worker.sums.exit_reason

    async def _pause(self, fault: UnreachableError | RenewableIdentityError) -> frames.Finished | None:
        """Wait before the next call; return the end of the run where there is nothing left to call for."""
        held = self._worker.held
        seconds = self._calls.pause_seconds(fault.message, is_over=held.is_over)
        if seconds is None:
            await self._worker.finish(AGGREGATOR_GONE)
            self._report_run()
            return frames.Finished(int(held.rounds_done), AGGREGATOR_GONE)
        await asyncio.sleep(seconds)
        return None

    # -------------------------------------------------------------- one stream

    async def _participate(self) -> frames.Finished:
        async with self._dial() as (link, hello):
            self._records.begin_link()
            self._calls.stream_began()
            self._limit = RefusalLimit()
            with contextlib.suppress(*LISTENER_TELLS):
                await link.send(hello)
            questions = Mailbox()
            self._between_sums = True
            listener = asyncio.create_task(self._listen(link, questions))
            replier = asyncio.create_task(self._reply(link, questions))
            # The replier only ever ends with a fault of this site, the looker with one of a certificate.
            tasks = (replier, asyncio.create_task(self._keep_looking()), listener)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            ended = next((task for task in tasks if not task.cancelled()), listener)
            await self._say_why(link, None if ended.cancelled() else ended.exception())
            finished = ended.result()
            await self._part(link)
            return finished

    async def _part(self, link: Link) -> None:
        """Say that the run is over and on this disk, as far as it came here; let the aggregator end the stream."""
        with contextlib.suppress(*LISTENER_TELLS, RemoteProtocolError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await link.send(frames.Ended(self._worker.held.digest, self._worker.statement))
                await link.finish()
                async for _ in link.frames():
                    pass

    async def _keep_looking(self) -> frames.Finished:
        """Look at the certificates of both sides every second, until one of them ends the stream."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._look()
            self._reconnect_between_sums()

    def _look_before_sum(self) -> None:
        """Look at the certificates where the look of every second is late: no sum begins on an older one.

        The time of day counts also while the machine is suspended, as a monotonic clock need not.
        """
        if not 0 <= time.time() - self._looked < LOOK_SECONDS:
            self._look()

    def _look(self, update: frames.TrustUpdate | None = None) -> None:
        try:
            if update is None:
                self._looked = time.time()
                self._certificates.look()
            else:
                self._certificates.take(update)
        except IdentityError as fault:
            # Whether the aggregator has a better certificate by now, a new connection finds out.
            raise UnreachableError(fault.message, fault.remedy) from fault

    def _reconnect_between_sums(self) -> None:
        if self._between_sums and self._certificates.reconnection:
            raise StreamOutdatedError(self._certificates.reconnection)

    async def _listen(self, link: Link, questions: Mailbox) -> frames.Finished:
        receiver = Receiver(self._shapes, self._worker.sums.last_sum)
        async for frame in link.frames():
            self._calls.heard()
            match receiver.take(frame):
                case frames.Welcome() as welcome:
                    await self._greet(welcome)
                case ReceivedRequest() as question:
                    self._look_before_sum()
                    self._between_sums = False
                    self._worker.sums.expect(question)
                    self._records.asked(question.start, link)
                    self._asked = question.start
                    self._calls.asked()
                    await questions.put(question)
                case frames.SecaggMessage() | ReceivedState() | ReceivedTotals() | ReceivedSum() as message:
                    self._calls.took(message)
                    await questions.put(message)
                case frames.TrustUpdate() as update:
                    self._look(update)
                case frames.Accepted(sum_number):
                    if sum_number == self._contributed:
                        # Only once, and only for what was really sent: saying so costs an aggregator nothing.
                        self._contributed = None
                        self._calls.contributed()
                        self._limit.contributed()
                        self._records.answered(link, "accepted")
                        self._report_evaluation()
                case frames.Finished() as finished:
                    # The last opened sum may still wait for the worker.
                    await questions.drained()
                    await self._worker.finish(finished.outcome)
                    self._report_run()
                    return finished
                case frames.Refused() as refused:
                    self._calls.last_words = refused.reason
                    raise _refusal(refused)
        raise UnreachableError("the aggregator closed the stream")

    async def _reply(self, link: Link, questions: Mailbox) -> frames.Finished:
        asked: frames.SumStart | None = None
        while True:
            said = await questions.take()
            if isinstance(said, ReceivedRequest):
                asked = said.start
                link.answer(asked)
                self._limit.asked()
            replies = await self._worker.frames(said)
            self._report_fault()
            self._report_run()
            refused = ""
            with contextlib.suppress(*LISTENER_TELLS):
                for frame in replies:
                    if asked is not None and _contributes(frame):
                        self._contributed = asked.sum_number
                    await link.send(frame)
                    if isinstance(frame, frames.Abstain):
                        refusal = self._worker.sums.refused or Refusal(frame.reason.value)
                        refused = refusal.reason
                        about = None if asked is None else (asked.purpose, RoundNumber(asked.round))
                        self._publish(news.SumDeclined(about, refusal.reason))
                        self._records.refused(refusal, self._asked)
                        self._records.answered(link, "abstained")
                        if frame.leaving:
                            await self._leave(link)
                await _send_checkpoints(link, self._worker.unsent)
            if isinstance(said, MovesState):
                # A request that came meanwhile is made again on the next stream, and is answered there.
                self._between_sums = not len(questions)
                if self._certificates.reconnection:
                    raise StreamOutdatedError(self._certificates.reconnection)
            # Only now, so that a site that refuses the last sum of a run leaves before it hears of the end.
            if refused:
                self._limit.refused(refused)

    async def _say_why(self, link: Link, fault: BaseException | None) -> None:
        """Tell the aggregator, before this site leaves it, what of its requests was refused; keep it on record."""
        if not isinstance(fault, ApprovalError | PolicyError | RemoteProtocolError):
            return
        for refusal in refusals_of(fault):
            self._records.refused(refusal, None)
        with contextlib.suppress(*LISTENER_TELLS, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await send_withdrawal(link, abstention_reason(fault))

    async def _leave(self, link: Link) -> None:
        """Wait until the aggregator has read the last words and closed the stream; that ends the listener too."""
        self._has_left = True
        await link.finish()
        await asyncio.sleep(LEAVE_SECONDS)
        self._end_if_left()

    def _report_fault(self) -> None:
        fault, self._worker.sums.fault = self._worker.sums.fault, ""
        if fault:
            self._publish(news.ValuesOmitted(fault))

    def _report_run(self) -> None:
        for notice in self._worker.take_notices():
            self._publish(notice)

    def _report_evaluation(self) -> None:
        kind = None if self._asked is None else self._asked.purpose.statistic
        if self._asked is not None and kind is not None and kind.is_evaluation and not kind.has_query:
            self._publish(news.EvaluationDone(RoundNumber(self._asked.round), self._shapes.rounds))

    async def _greet(self, welcome: frames.Welcome) -> None:
        self._calls.greeted()
        self._records.run_id = welcome.run_id
        self._greeting(welcome)
        await self._worker.join(welcome)
        self._publish(news.RunJoined(welcome.run_id, welcome.rounds_done, welcome.rounds_total))


async def _send_checkpoints(link: Link, unsent: deque[bytes]) -> None:
    """Send what this site has signed; what a broken stream keeps back goes with the next one."""
    while unsent:
        await link.send(frames.Witnessed(unsent[0]))
        unsent.popleft()


def _contributes(frame: frames.CollaboratorFrame) -> bool:
    return isinstance(frame, frames.UploadStart) or (
        isinstance(frame, frames.SecaggMessage) and frame.vector_length > 0
    )


def _refusal(refused: frames.Refused) -> UnreachableError | ConnectionRefusedByPeerError:
    if refused.try_again:
        return UnreachableError(refused.reason, refused.remedy)
    return ConnectionRefusedByPeerError(f"the aggregator refused this site: {refused.reason}", refused.remedy)
