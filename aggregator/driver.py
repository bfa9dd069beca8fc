"""The one task that owns the round rules: events in, effects out, in one order for everybody.

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
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from aggregator.broadcast import Broadcast, VectorMessage
from aggregator.connection import Connection
from aggregator.farewell import NO_FAREWELL, EndOfRun, Farewell
from aggregator.outcome import Ending, EndState
from aggregator.records import RunRecords, SumFigures
from aggregator.standing import ConnectionStanding
from aggregator.timers import StartTimer, clock_timer
from fedfair.audit.keeper import Occasion
from fedfair.errors import IdentityError, RenewableIdentityError
from fedfair.ids import ParticipantId
from fedfair.news.effects import news_of_effect
from fedfair.news.figures import Attendance, StepReached
from fedfair.news.processors import Processor
from fedfair.news.repetition import Repetition
from fedfair.news.run import (
    EntryRefused,
    InvitationDeclined,
    SentAway,
    SitesAwaited,
    StreamEnded,
    StreamOpened,
)
from fedfair.news.sums import (
    ChangesClipped,
    SumMeasured,
    ValuesReplaced,
    news_of_sum,
)
from fedfair.rounds.events import (
    MOVES_STATE,
    Abort,
    Accept,
    CancelDeadline,
    CaughtUp,
    Checkpoint,
    Clipping,
    Connected,
    DeadlineKind,
    DeadlinePassed,
    DeadlineToken,
    Departed,
    Disconnected,
    Effect,
    Event,
    Finish,
    LeftBehind,
    MessageArrived,
    Misbehaved,
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
from fedfair.rounds.steadiness import Steadiness
from fedfair.run.state import RunState
from fedfair.run.training_run import Progress, TrainingRun
from fedfair.secagg.arriving import ArrivingVector
from fedfair.statistics.table import Purpose
from fedfair.watching.run_status import IDLE, SumStep
from fedfair.wire.frames import (
    Accepted,
    BroadcastKind,
    Chunk,
    Finished,
    Refused,
    SecaggMessage,
    SumStart,
    TrustUpdate,
    Welcome,
)

LOOK_SECONDS = 1.0
"""How often the files of certificates are looked at, so that a revocation ends a stream within seconds."""


class RunDriver:
    """Carries one run; belongs to one event loop."""

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
        standing: ConnectionStanding | None = None,
        model: bytes = b"",
        start_timer: StartTimer = clock_timer,
        finished: Callable[[Ending], None] = lambda _: None,
    ) -> None:
        self._start_timer = start_timer
        self._worst_group_size = worst_group_size
        self._model = model
        self._end = EndOfRun(farewell, records, publish)
        self._serving: set[asyncio.Task[None]] = set()
        self._finished = finished
        self._federation = federation
        self._training_run = training_run
        self._records = records
        self._publish = publish
        self._masked = masked
        self._standing = standing
        # Held while the round rules are asked, which a thread may be doing for a large model.
        self._deciding = asyncio.Lock()
        self._events: asyncio.Queue[tuple[Event, asyncio.Future[None] | None]] = asyncio.Queue()
        self._connections: dict[ParticipantId, Connection] = {}
        self._turned_away = Repetition(time.monotonic)
        self._declined = Repetition()
        self._streams = 0
        self._steadiness = Steadiness()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._timers: dict[DeadlineToken, asyncio.TimerHandle] = {}
        self._due: dict[DeadlineToken, datetime] = {}
        self._looked_at = time.monotonic()
        self._told_of_trust = self.trust_update()
        self._packed: tuple[RunState, Broadcast] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._figures = SumFigures(time.monotonic())
        self._closed_at = self._figures.started
        self._clips = False
        self._replacing: set[Purpose] = set()
        self._stop_reason: str | None = None
        self._ending: Ending | None = None

    # -------------------------------------------------------------- what the service calls

    def turned_away(self, who: str, reason: str) -> None:
        """Tell the operator who was not let in, and why; once a day, however often the same is tried again."""
        if self._turned_away.is_new(who, reason):
            self._publish(EntryRefused(who, reason))

    def declined(self, who: ParticipantId, reason: str) -> None:
        """Tell the operator which collaborator does not come, and why in its own words; a few times at most."""
        if self._declined.is_new(who, reason):
            self._publish(InvitationDeclined(who, reason))
            self._records.append_departure(Departed(who, self._federation.rounds_done, reason))

    def welcome(self) -> Welcome:
        """Return the first frame for a stream that is let in."""
        done, total = self._federation.rounds_done, self._federation.rounds_total
        return Welcome(self._records.run_id, done, total, self._training_run.evaluation_only, self._model)

    def connect(self, connection: Connection) -> None:
        """Take a stream over; an older one of the same participant is half-open, or a second process."""
        self._streams += 1
        self._quiet.clear()
        self._end.came(connection.participant)
        if self._ending is not None:
            task = asyncio.create_task(self._serve_end(connection, self._ending))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
            return
        participant, older = connection.participant, self._connections.get(connection.participant)
        if older is not None:
            older.leave(
                Refused(
                    f"another process connected as {connection.participant}, with the same identity",
                    f"run {connection.participant} on one machine only, and stop the other one for good; if the "
                    "other process is not yours, have the certificate revoked",
                    TRY_AGAIN[ExitReason.REPLACED],
                )
            )
        self._connections[participant] = connection
        wait = self._steadiness.seconds_until_heard(participant)
        if not wait:
            self._hear(connection, replaces=older is not None)
            return
        if older is not None and older.is_heard:
            self._put(Disconnected(participant, steady=False))
        asyncio.get_running_loop().call_later(wait, self._hear, connection)

    async def _serve_end(self, connection: Connection, ending: Ending) -> None:
        """Tell who comes after the end what its copy of the run lacks, and that the run is over."""
        farewell = self._farewell(ending)
        if ending.state is EndState.FINISHED:
            who = connection.participant
            try:
                for effect in self._federation.steps.to_the_end(who, self._held(connection)):
                    await self._send_step(connection, effect)
            except OSError as fault:
                words = f"the aggregator cannot write its files: {fault}"
                farewell = Refused(words, "", TRY_AGAIN[ExitReason.UNWRITABLE])
        connection.leave(farewell)

    def _held(self, connection: Connection) -> bytes:
        """Return the digest of the copy of this run that a stream's site said to have; empty for none."""
        return connection.state if connection.seen.run_id == self._records.run_id else b""

    def ended(self, connection: Connection, state: bytes) -> None:
        """Note that a site has heard the end of the run, and which state of it is on its disk."""
        self._end.ended(connection.participant, in_step=self._federation.steps.is_present(state))

    def _hear(self, connection: Connection, *, replaces: bool = False) -> None:
        """Report a stream to the round rules, unless it has ended meanwhile."""
        if not self._is_current(connection) or self._ending is not None:
            return
        connection.is_heard = True
        self._publish(StreamOpened(connection.participant, replaces))
        about = connection.session, connection.seen, self._held(connection)
        self._put(Connected(connection.participant, *about))

    def disconnect(self, connection: Connection) -> None:
        """Note that a stream has ended."""
        self._streams -= 1
        if self._streams == 0:
            self._quiet.set()
        lived = asyncio.get_running_loop().time() - connection.opened
        self._steadiness.ended(connection.participant, lived, contributed=connection.contributed)
        if self._is_current(connection):
            del self._connections[connection.participant]
            if connection.sent_away:
                self._end.left(connection.participant)  # Nobody waits at the end for who may not return.
            if self._ending is None and connection.is_heard:  # Afterwards everybody goes, and that is no news.
                self._publish(StreamEnded(connection.participant))
            if connection.is_heard:
                steady = self._steadiness.is_steady(connection.participant)
                self._put(Disconnected(connection.participant, steady))

    async def submit(self, connection: Connection, event: Event) -> None:
        """Have the round rules take what a stream said, unless a newer stream speaks for its participant.

        A stream that is not heard yet was asked for nothing: what it says is dropped, and a fault ends it. After
        the end of the run all is dropped, so that the stream goes on to read that its site has heard the end.
        """
        if not connection.is_heard and isinstance(event, Misbehaved):
            self._send_away(connection, event.message, event.remedy)
        elif self._is_current(connection) and connection.is_heard and self._ending is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._events.put_nowait((event, done))
            del event
            await done

    def _is_current(self, connection: Connection) -> bool:
        return self._connections.get(connection.participant) is connection

    def _send_away(self, connection: Connection, message: str, remedy: str) -> None:
        """Refuse a stream that the round rules do not know."""
        self._publish(SentAway(connection.participant, message))
        connection.leave(Refused(message, remedy, TRY_AGAIN[ExitReason.MISBEHAVED]))

    async def arriving(self, connection: Connection, message: bytes, length: int) -> ArrivingVector | None:
        """Return what adds a masked vector to the sum while it arrives; None where it must be held."""
        async with self._deciding:
            if not self._is_current(connection) or not connection.is_heard:
                return None
            return self._federation.arriving(connection.participant, message, length)

    async def add_piece(self, arriving: ArrivingVector, chunk: Chunk) -> None:
        """Add a piece of a masked vector to the sum, while the round rules do nothing else with it."""
        async with self._deciding:
            arriving.add(chunk.data, chunk.sha256)

    def stop(self, reason: str) -> None:
        """Ask for an orderly end; collaborators learn of it, and the run can be resumed later."""
        self._stop_reason = reason
        self._end.hurry()
        self._put(StopRequested(reason))

    # -------------------------------------------------------------- the one task

    async def run(self) -> Ending:
        """Drive the run to its end, tell everybody, and return how it ended."""
        self._put(Started())
        try:
            while self._ending is None:
                self._look_at_certificates()
                said = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        said = await self._events.get()
                if said is not None:
                    await self._step(*said)
                    del said
            await self._written()
        except (OSError, sqlite3.Error) as fault:
            self._ending = Ending(
                EndState.ABORTED,
                ExitReason.UNWRITABLE,
                f"the aggregator cannot write its files: {fault}",
                "make room on the disk and start it again; it continues after the last recorded sum",
            )
        while not self._events.empty():
            _, done = self._events.get_nowait()
            if done is not None and not done.cancelled():
                done.set_result(None)
        for timer in self._timers.values():
            timer.cancel()
        for connection in tuple(self._connections.values()):
            connection.leave(self._farewell(self._ending))
        await self._quiet.wait()
        if self._ending.state is EndState.FINISHED:
            await self._end.wait(partial(self._finished, self._ending), self._quiet.wait)
        return self._ending

    async def _step(self, event: Event, done: asyncio.Future[None] | None) -> None:
        await self._written()
        if isinstance(event, UploadArrived):
            self._figures.bytes_in += len(event.payload)
        elif isinstance(event, MessageArrived):
            self._figures.bytes_in += len(event.message) + len(event.vector)
        effects = self._without_revoked(await self._decide(event))
        self._count_sum(effects)
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
        if done is not None and not done.cancelled():
            done.set_result(None)

    async def _decide(self, event: Event) -> list[Effect]:
        """Return what is to be done about an event; adding and unmasking a large model happens in a thread.

        Meanwhile streams go on, but no other event is looked at.
        """
        async with self._deciding:
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
        if self._standing is None or not any(isinstance(effect, SendSum) for effect in effects):
            return effects
        lost = self._send_away_lost(self._standing)
        asking = SendState | SendTotals | SendSum | SendMessage
        return [effect for effect in effects if not (isinstance(effect, asking) and effect.participant in lost)]

    def _send_away_lost(self, standing: ConnectionStanding) -> dict[ParticipantId, IdentityError]:
        """Send away those whose certificates are not good any more, and tell the others of a new list.

        Who has been revoked is refused for good. Who has let its certificate expire may come back with a renewed
        one; to the sum that is open it is a lost connection.
        """
        lost = standing.lost(tuple(self._connections.values()))
        for participant, fault in lost.items():
            if isinstance(fault, RenewableIdentityError):
                self._publish(SentAway(participant, fault.message))
                again = TRY_AGAIN[ExitReason.EXPIRED]
                self._connections[participant].leave(Refused(fault.message, fault.remedy, again))
            elif self._connections[participant].is_heard:
                self._put(Misbehaved(participant, fault.message, fault.remedy))
            else:
                self._send_away(self._connections[participant], fault.message, fault.remedy)
        update = standing.update
        if update != self._told_of_trust:
            self._told_of_trust = update
            for connection in self._connections.values():
                connection.send(update)
        return lost

    def _look_at_certificates(self) -> None:
        """Take up, every second, what has changed on the disk."""
        now = time.monotonic()
        if self._standing is None or now < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = now
        self._standing.renew()
        self._send_away_lost(self._standing)

    def trust_update(self) -> TrustUpdate | None:
        """Return what a stream that is let in is told of certificates; None where nobody keeps them."""
        return None if self._standing is None else self._standing.update

    def _put(self, event: Event) -> None:
        self._events.put_nowait((event, None))

    async def _carry_out(self, effect: Effect) -> None:  # noqa: C901, PLR0912 - one case per effect
        news = news_of_effect(effect)
        if news is not None:
            self._publish(news)
        match effect:
            case SendState(participant) | SendTotals(participant) | SendMessage(participant):
                if participant in self._connections:
                    await self._send_step(self._connections[participant], effect)
            case SendSum():
                self._send_sum(effect)
            case PassedOver():
                # Answers beyond those that a sum needs come in every round: a number in the metrics, no news.
                self._figures.late += 1
            case Accept(participant, sum_number):
                if participant in self._connections:
                    self._connections[participant].contributed = True
                    self._connections[participant].send(Accepted(sum_number))
            case Refuse(participant, message, remedy, try_again):
                if participant in self._connections:
                    self._connections[participant].leave(Refused(message, remedy, try_again))
            case SetDeadline(token, seconds):
                self._begin_sum(token)
                self._due[token] = datetime.now(UTC) + timedelta(seconds=seconds)
                passed = partial(self._put, DeadlinePassed(token))
                self._timers[token] = self._start_timer(token, seconds, passed)
            case CancelDeadline(token):
                self._timers.pop(token).cancel()
                del self._due[token]
            case Report(progress, clipping):
                self._report(progress, clipping)
            case Unawaited(participant, _, request, _, refusal) if refusal:
                self._records.append_refusal(participant, request, refusal)
            case LeftBehind() | CaughtUp():
                self._records.note_late(effect)
            case Departed(participant):
                self._end.left(participant)
                self._records.append_departure(effect)
            case Waiting():
                until = min(self._due[token] for token in effect.until)
                self._publish(SitesAwaited(effect, until, datetime.now(UTC)))
            case Finish(_, outcome):
                self._ending = Ending(EndState.FINISHED, ExitReason.FINISHED, outcome)
            case Abort(reason, remedy, why):
                state = EndState.ABORTED if self._stop_reason is None else EndState.STOPPED
                self._ending = Ending(state, why, reason, remedy)
            case _:
                pass  # Only news, or a file: `_begin_writing` writes all files of a step together.

    def _sum_step(self) -> SumStep:
        """Return what the open sum waits for, and until when."""
        request = self._federation.request
        if request is None:
            return IDLE
        due = [at for token, at in self._due.items() if token.kind in {DeadlineKind.SUM, DeadlineKind.MASKS}]
        graces = [at for token, at in self._due.items() if token.kind is DeadlineKind.GRACE]
        if graces and len(graces) == len(self._federation.waiting_for):
            # All that are awaited are away, and nobody waits for them longer than that.
            due.append(max(graces))
        place = (request.purpose.value, int(request.round), request.attempt)
        return SumStep(*place, self._federation.awaits, min(due, default=None))

    # -------------------------------------------------------------- sending

    async def _send_step(self, connection: Connection, effect: SendState | SendTotals | SendMessage) -> None:
        """Send what moves a site, or a message of secure aggregation."""
        match effect:
            case SendMessage(_, message, vector) if not vector:
                connection.send(SecaggMessage(message))
                self._figures.bytes_out += len(message)
                return
            case SendMessage(_, message, vector):
                publication: Broadcast | VectorMessage = VectorMessage(message, vector)
            case SendTotals(_, totals):
                publication = Broadcast(BroadcastKind.TOTALS, totals)
            case SendState():
                publication = await self._state()
        connection.publish(publication)
        self._figures.bytes_out += publication.nbytes

    async def _state(self) -> Broadcast:
        """Return the present state of the run for whoever is not in step; packed once for all of them."""
        state = self._training_run.state
        if self._packed is None or self._packed[0] is not state:
            packed = await asyncio.to_thread(lambda: Broadcast(BroadcastKind.STATE, self._records.packed(state)))
            self._packed = state, packed
        return self._packed[1]

    def _send_sum(self, effect: SendSum) -> None:
        request, connection = effect.request, self._connections.get(effect.participant)
        if connection is not None:
            place = (request.purpose, request.round, request.attempt)
            connection.ask(effect.sum_number, request.spec, Occasion(*place))
            connection.send(SumStart(effect.sum_number, *place, effect.state, effect.deadline_seconds))

    def _farewell(self, ending: Ending) -> Finished | Refused:
        if ending.state is EndState.FINISHED:
            return Finished(self._federation.rounds_done, ending.words)
        words = f"the run was {ending.state.value}: {ending.words}"
        return Refused(words, ending.remedy, TRY_AGAIN[ending.why])

    # -------------------------------------------------------------- recording

    def _begin_sum(self, token: DeadlineToken) -> None:
        """Start the clocks of a sum; its deadline is set before anybody is asked."""
        if token.kind is DeadlineKind.SUM:
            self._figures = SumFigures(time.monotonic())
            self._records.begin_work()

    def _count_sum(self, effects: Sequence[Effect]) -> None:
        """Count what a sum cost, where one has closed: its total is written before its report is carried out."""
        told = 0
        for effect in effects:
            if isinstance(effect, SendMessage) and effect.participant in self._connections:
                told += len(effect.message) + len(effect.vector)
            elif isinstance(effect, SendTotals) and effect.participant in self._connections:
                told += len(effect.totals)
            elif isinstance(effect, Report):
                self._closed_at = time.monotonic()
                figures = replace(self._figures, bytes_out=self._figures.bytes_out + told)
                cost = self._records.count_sum(effect.progress, figures, self._closed_at)
                self._publish(SumMeasured(cost, self._federation.pace))

    def _report(self, progress: Progress, clipping: Clipping | None) -> None:
        pace = self._federation.pace
        self._records.append_line(progress, self._figures, self._closed_at, clipping, pace)
        self._tell_of_replaced(progress)
        if clipping is not None:
            if clipping.clipped and not self._clips:
                self._publish(ChangesClipped(progress.round, clipping.clipped, clipping.clip))
            self._clips = clipping.clipped > 0
        for news in news_of_sum(progress, self._federation.rounds_total, self._worst_group_size):
            self._publish(news)

    def _tell_of_replaced(self, progress: Progress) -> None:
        """Tell, once until a sum has none again, that values were replaced; nobody can say whose they were."""
        key = progress.purpose
        if progress.replaced and key not in self._replacing:
            self._publish(ValuesReplaced(progress.round, key, progress.replaced, progress.replacing))
        (self._replacing.add if progress.replaced else self._replacing.discard)(key)

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
