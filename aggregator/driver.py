"""The one task that owns the round rules: events in, effects out, in one order for all sites.

Streams, timers and signals put events in a queue; this task takes them one by one, lets `Federation` decide, and
carries the effects out. It never waits for a peer: sending means filling a connection's queue. It does wait for
its own disk: files are written in a thread while the collaborators already work on the next sum, and the next
event is looked at only when the writing is done, because the training run may not change while it is being
written. What a masked sum did is written before anybody hears of it, because no site sends the same update twice;
and so is the scaling of the features, because no site takes two of them in one run.

When a training sum changes the global vector in place, a collaborator that is still receiving the old one is cut
off (`broadcast.py` says why).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from aggregator.connection_certificates import ConnectionCertificates
from aggregator.deadlines import DeadlineTimers, StartTimer, clock_timer
from aggregator.farewell import NO_FAREWELL, EndOfRun, Farewell
from aggregator.outcome import Ending, EndState
from aggregator.records import RunRecords
from aggregator.sending import Sender
from aggregator.streams import LOOK_SECONDS, Streams
from aggregator.sum_reports import SumReports
from aggregator.transcript import RunTranscript
from fedfair.ids import ParticipantId
from fedfair.news.effects import news_of_effect
from fedfair.news.figures import Attendance, StepReached
from fedfair.news.processors import Processor
from fedfair.news.run import SitesAwaited
from fedfair.rounds.events import (
    MOVES_STATE,
    Abort,
    Accept,
    CancelDeadline,
    CaughtUp,
    Checkpoint,
    DeadlineKind,
    DeadlinePassed,
    Departed,
    Effect,
    Event,
    Excused,
    Finish,
    LeftBehind,
    MessageArrived,
    PassedOver,
    Refuse,
    Report,
    SaveUnfinished,
    SendMessage,
    SendState,
    SendSum,
    SendTotals,
    SetDeadline,
    Skipped,
    Started,
    StopRequested,
    Unawaited,
    UploadArrived,
    Waiting,
)
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.rounds.federation import Federation
from fedfair.run.training_run import TrainingRun
from fedfair.watching.run_status import IDLE, SumStep
from fedfair.wire.frames import Accepted, Refused


class RunDriver:
    """Carries one run; belongs to one event loop.

    Attributes:
        streams: of the run; the service hands them over.
    """

    def __init__(
        self,
        federation: Federation,
        training_run: TrainingRun,
        records: RunRecords,
        publish: Processor,
        farewell: Farewell = NO_FAREWELL,
        *,
        worst_group_size: float,
        masked: bool = False,
        certificates: ConnectionCertificates | None = None,
        model: bytes = b"",
        start_timer: StartTimer = clock_timer,
        finished: Callable[[Ending], None] = lambda _: None,
        transcript: RunTranscript | None = None,
    ) -> None:
        self._federation = federation
        self._training_run = training_run
        self._records = records
        self._publish = publish
        self._masked = masked
        self._finished = finished
        # Without an event there is nothing but the time to look at the certificates.
        self._events: asyncio.Queue[tuple[Event | None, asyncio.Future[None] | None]] = asyncio.Queue()
        self._deadlines = DeadlineTimers(start_timer)
        self._reports = SumReports(federation, records, publish, worst_group_size, transcript)
        self._sender = Sender(training_run, records, self._reports)
        self._end = EndOfRun(farewell, records, publish)
        self.streams = Streams(
            federation,
            records,
            publish,
            self._end,
            self._sender,
            self._put,
            certificates,
            evaluates=training_run.evaluation_only,
            model=model,
            transcript=transcript,
        )
        self._writing: asyncio.Task[None] | None = None
        self._stop_reason: str | None = None
        self._ending: Ending | None = None

    def stop(self, reason: str) -> None:
        """Ask for an orderly end; collaborators learn of it, and the run can be resumed later."""
        self._stop_reason = reason
        self._end.hurry()
        self._put(StopRequested(reason))

    def dismiss(self, who: ParticipantId, words: str) -> None:
        """Go on without a collaborator that takes no part any more, connected or not; a stream of it is ended.

        Args:
            who: the collaborator.
            words: why.
        """
        self._put(Excused(who, words))
        if (connection := self.streams.connections.get(who)) is not None:
            connection.leave(Refused(words, "", TRY_AGAIN[ExitReason.NOT_ADMITTED]))

    def _put(self, event: Event, done: asyncio.Future[None] | None = None) -> None:
        self._events.put_nowait((event, done))

    async def run(self) -> Ending:
        """Drive the run to its end, notify all sites, and return how it ended."""
        self._put(Started())
        looking = asyncio.create_task(self._keep_looking())
        try:
            while self._ending is None:
                self.streams.look_at_certificates()
                event, done = await self._events.get()
                if event is not None:
                    await self._step(event, done)
                del event, done
            await self._written()
        except (OSError, sqlite3.Error) as fault:
            self._ending = Ending(
                EndState.ABORTED,
                ExitReason.UNWRITABLE,
                f"the aggregator cannot write its files: {fault}",
                "make room on the disk and start it again; it continues after the last recorded sum",
            )
        finally:
            looking.cancel()
        while not self._events.empty():
            _release(self._events.get_nowait()[1])
        self._deadlines.cancel_all()
        self.streams.leave(self._ending)
        await self.streams.quiet.wait()
        if self._ending.state is EndState.FINISHED:
            await self._end.wait(partial(self._finished, self._ending), self.streams.quiet.wait)
        return self._ending

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._events.put_nowait((None, None))

    async def _step(self, event: Event, done: asyncio.Future[None] | None) -> None:
        """Take one event; whoever waits for it is released, even where the files cannot be written."""
        try:
            await self._written()
            self._reports.received(event)
            effects = self._without_revoked(await self._decide(event))
            self._reports.close(effects, self.streams.connections)
            written = self._masked or any(isinstance(effect, MOVES_STATE) for effect in effects)
            if written:
                self._begin_writing(effects)
                await self._written()
            for effect in effects:
                await self._carry_out(effect)
            if not written or self._ending is not None:
                self._begin_writing(effects)
            self._publish(StepReached(self._sum_step()))
            self._publish(Attendance(self._federation.connected, self._federation.waiting_for))
        finally:
            _release(done)

    async def _decide(self, event: Event) -> list[Effect]:
        """Return what is to be done about an event; adding and unmasking a large model happens in a thread.

        Meanwhile streams continue, but no other event is looked at.
        """
        async with self.streams.deciding:
            if not self._records.is_small and isinstance(event, MessageArrived | UploadArrived):
                return await asyncio.to_thread(self._receive_large, event)
            return self._federation.receive(event)

    def _receive_large(self, event: Event) -> list[Effect]:
        effects = self._federation.receive(event)
        if self._masked and any(isinstance(effect, MOVES_STATE) for effect in effects):
            self._records.spill(self._training_run)
        return effects

    def _without_revoked(self, effects: list[Effect]) -> list[Effect]:
        """Send away, before a sum begins, those whose certificates have become invalid, and tell them nothing."""
        if not any(isinstance(effect, SendSum) for effect in effects):
            return effects
        lost = self.streams.lost()
        asking = SendState | SendTotals | SendSum | SendMessage
        return [effect for effect in effects if not (isinstance(effect, asking) and effect.participant in lost)]

    async def _carry_out(self, effect: Effect) -> None:  # noqa: C901, PLR0912 - one case per effect
        """Carry an effect out; files are written by `_begin_writing`, for all effects of a step together."""
        news = news_of_effect(effect)
        if news is not None:
            self._publish(news)
        match effect:
            case SendState() | SendTotals() | SendMessage() | SendSum() | Accept() | Refuse():
                await self._send(effect)
            case SetDeadline(token, seconds):
                if token.kind is DeadlineKind.SUM:
                    self._reports.begin()
                self._deadlines.set(token, seconds, partial(self._put, DeadlinePassed(token)))
            case CancelDeadline(token):
                self._deadlines.cancel(token)
            case PassedOver():
                self._reports.passed_over()
            case Report():
                self._reports.report(effect)
            case Unawaited(participant, _, request, _, refusal) if refusal:
                self._records.append_refusal(participant, request, refusal)
            case LeftBehind() | CaughtUp():
                self._records.note_late(effect)
            case Departed(participant):
                self._end.left(participant)
                self._records.append_departure(effect)
            case Waiting():
                self._publish(SitesAwaited(effect, self._deadlines.first(effect.until), datetime.now(UTC)))
            case Finish() | Abort():
                self.streams.ending = self._ending = self._ending_of(effect)
            case _:
                pass

    async def _send(self, effect: SendState | SendTotals | SendMessage | SendSum | Accept | Refuse) -> None:
        """Send what an effect says to its site, where that is still connected."""
        connection = self.streams.connections.get(effect.participant)
        if connection is None:
            return
        match effect:
            case SendSum():
                self._sender.request(connection, effect)
            case Accept(_, sum_number):
                connection.contributed = True
                connection.send(Accepted(sum_number))
            case Refuse(_, message, remedy, try_again):
                connection.leave(Refused(message, remedy, try_again))
            case _:
                await self._sender.step(connection, effect)

    def _ending_of(self, effect: Finish | Abort) -> Ending:
        if isinstance(effect, Finish):
            return Ending(EndState.FINISHED, ExitReason.FINISHED, effect.outcome)
        state = EndState.ABORTED if self._stop_reason is None else EndState.STOPPED
        return Ending(state, effect.why, effect.reason, effect.remedy)

    def _sum_step(self) -> SumStep:
        """Return what the open sum waits for, and until when."""
        request = self._federation.request
        if request is None:
            return IDLE
        place = (request.purpose.value, int(request.round), request.attempt)
        return SumStep(
            *place, self._federation.awaits, self._deadlines.end_of_sum(len(self._federation.waiting_for))
        )

    def _begin_writing(self, effects: Sequence[Effect]) -> None:
        kinds = {effect.kind for effect in effects if isinstance(effect, Checkpoint)}
        reports = [effect.progress for effect in effects if isinstance(effect, Report)]
        # A site omits an evaluation when it is asked for the sum after it; a later process must know of it too.
        skips = any(isinstance(effect, Skipped) for effect in effects)
        journal = self._ending is not None or skips or any(map(self._records.is_entry_due, reports))
        kept = [effect.unfinished for effect in effects if isinstance(effect, SaveUnfinished)]
        unfinished = kept[-1] if kept else None
        if kinds or journal or unfinished:
            work = asyncio.to_thread(
                self._records.write,
                self._training_run,
                kinds,
                journal=journal,
                unfinished=unfinished,
                opened=self._federation.steps.last,
            )
            self._writing = asyncio.create_task(work)

    async def _written(self) -> None:
        if self._writing is not None:
            await self._writing
            self._writing = None


def _release(done: asyncio.Future[None] | None) -> None:
    """Release the sender of an event: nothing refers to its payload any more."""
    if done is not None and not done.cancelled():
        done.set_result(None)
