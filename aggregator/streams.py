"""The streams of one run: who is connected, who is heard, and whose certificates are still good.

The service hands over each stream that is let in and what it says; the events for the round rules go into the
driver's queue. A stream is heard by the rules once its participant's streams last; after the end of the run, who
comes is served what its copy lacks, and notified that the run is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from aggregator.connection import Connection
from aggregator.connection_certificates import ConnectionCertificates
from aggregator.farewell import EndOfRun
from aggregator.outcome import Ending, EndState
from aggregator.records import RunRecords
from aggregator.sending import Sender
from aggregator.transcript import RunTranscript
from fedfair.errors import IdentityError, RenewableIdentityError
from fedfair.ids import ParticipantId
from fedfair.news.processors import Processor
from fedfair.news.repetition import Repetition
from fedfair.news.run import EntryRefused, InvitationDeclined, SentAway, StreamEnded, StreamOpened
from fedfair.rounds.events import Connected, Departed, Disconnected, Event, Misbehaved
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.rounds.federation import Federation
from fedfair.rounds.slowness.steadiness import Steadiness
from fedfair.secagg.arriving import ArrivingVector
from fedfair.wire.frames import Chunk, Refused, TrustUpdate, Welcome

LOOK_SECONDS = 1.0
"""How often the files of certificates are looked at, so that a revocation ends a stream within seconds."""

Put: TypeAlias = Callable[[Event, asyncio.Future[None] | None], None]
"""Puts an event into the driver's queue, with what is done once nothing refers to its payload any more."""


class Streams:
    """The streams of one run; belongs to one event loop.

    Args:
        federation: the round rules.
        records: of the run.
        publish: takes the news.
        end: keeps account of who knows that the run is over.
        sender: sends what moves a site.
        put: takes the events for the round rules.
        certificates: what the streams rest on; None where none are kept.
        evaluates: whether a saved model is evaluated and nothing trained.
        model: the identity of that model; empty where a whole run is driven.
        transcript: takes what sites sign of the run; None where none is kept.

    Attributes:
        deciding: held while the round rules are asked, which a thread may be doing for a large model.
        ending: how the run has ended; None while it continues.
        quiet: set while no stream is open.
    """

    def __init__(
        self,
        federation: Federation,
        records: RunRecords,
        publish: Processor,
        end: EndOfRun,
        sender: Sender,
        put: Put,
        certificates: ConnectionCertificates | None,
        *,
        evaluates: bool,
        model: bytes,
        transcript: RunTranscript | None = None,
    ) -> None:
        self._federation = federation
        self._records = records
        self._publish = publish
        self._end = end
        self._sender = sender
        self._put = put
        self._certificates = certificates
        self._evaluates = evaluates
        self._model = model
        self._transcript = transcript
        self.deciding = asyncio.Lock()
        self.ending: Ending | None = None
        self.quiet = asyncio.Event()
        self.quiet.set()
        self._connections: dict[ParticipantId, Connection] = {}
        self._open = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._turned_away = Repetition(time.monotonic)
        self._declined = Repetition()
        self._steadiness = Steadiness()
        self._looked_at = time.monotonic()
        self._trust = self.trust_update()

    @property
    def connections(self) -> Mapping[ParticipantId, Connection]:
        """Return the present stream of each participant that has one."""
        return self._connections

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
        return Welcome(self._records.run_id, done, total, self._evaluates, self._model)

    def trust_update(self) -> TrustUpdate | None:
        """Return what an admitted stream receives about certificates; None where none are kept."""
        return None if self._certificates is None else self._certificates.update

    def connect(self, connection: Connection) -> None:
        """Take a stream over; an older one of the same participant is half-open, or a second process."""
        self._open += 1
        self.quiet.clear()
        self._end.came(connection.participant)
        if self._transcript is not None and connection.approval:
            self._transcript.approved(connection.participant, connection.approval)
        if self.ending is not None:
            task = asyncio.create_task(self._serve_end(connection, self.ending))
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
            self._put(Disconnected(participant, steady=False), None)
        asyncio.get_running_loop().call_later(wait, self._hear, connection)

    async def _serve_end(self, connection: Connection, ending: Ending) -> None:
        """Tell who comes after the end what its copy of the run lacks, and that the run is over."""
        farewell = self._sender.farewell(ending)
        if ending.state is EndState.FINISHED:
            who = connection.participant
            try:
                for effect in self._federation.steps.to_the_end(who, self._held(connection)):
                    await self._sender.step(connection, effect)
            except OSError as fault:
                words = f"the aggregator cannot write its files: {fault}"
                farewell = Refused(words, "", TRY_AGAIN[ExitReason.UNWRITABLE])
        connection.leave(farewell)

    def _held(self, connection: Connection) -> bytes:
        """Return the digest of the copy of this run that a stream's site said to have; empty for none."""
        return connection.state if connection.seen.run_id == self._records.run_id else b""

    def witnessed(self, connection: Connection, statement: bytes) -> None:
        """Take what a site has signed at a checkpoint; raises RemoteProtocolError where no honest site says it."""
        if self._transcript is not None and self._is_current(connection) and connection.is_heard:
            self._transcript.witnessed(connection.participant, statement)

    def ended(self, connection: Connection, state: bytes, statement: bytes) -> None:
        """Note that a site has heard the end of the run, and which state of it is on its disk, signed."""
        if self._transcript is not None:
            self._transcript.ended(connection.participant, statement)
        self._end.ended(connection.participant, in_step=self._federation.steps.is_present(state))

    def _hear(self, connection: Connection, *, replaces: bool = False) -> None:
        """Report a stream to the round rules, unless it has ended meanwhile."""
        if not self._is_current(connection) or self.ending is not None:
            return
        connection.is_heard = True
        self._publish(StreamOpened(connection.participant, replaces))
        about = connection.session, connection.seen, self._held(connection)
        self._put(Connected(connection.participant, *about), None)

    def disconnect(self, connection: Connection) -> None:
        """Note that a stream has ended."""
        self._open -= 1
        if self._open == 0:
            self.quiet.set()
        lived = asyncio.get_running_loop().time() - connection.opened
        self._steadiness.ended(connection.participant, lived, contributed=connection.contributed)
        if self._is_current(connection):
            del self._connections[connection.participant]
            if connection.sent_away:
                self._end.left(connection.participant)  # Nobody waits at the end for who may not return.
            if self.ending is None and connection.is_heard:  # Afterwards all sites leave, and that is no news.
                self._publish(StreamEnded(connection.participant))
            if connection.is_heard:
                steady = self._steadiness.is_steady(connection.participant)
                self._put(Disconnected(connection.participant, steady), None)

    async def submit(self, connection: Connection, event: Event) -> None:
        """Have the round rules take what a stream said, unless a newer stream speaks for its participant.

        A stream that is not heard yet was asked for nothing: what it says is dropped, and a fault ends it. After
        the end of the run all is dropped, so that the stream continues to read that its site has heard the end.
        """
        if not connection.is_heard and isinstance(event, Misbehaved):
            self._send_away(connection, event.message, event.remedy)
        elif self._is_current(connection) and connection.is_heard and self.ending is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._put(event, done)
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
        async with self.deciding:
            if not self._is_current(connection) or not connection.is_heard:
                return None
            return self._federation.arriving(connection.participant, message, length)

    async def add_piece(self, arriving: ArrivingVector, chunk: Chunk) -> None:
        """Add a piece of a masked vector to the sum, while the round rules do nothing else with it."""
        async with self.deciding:
            arriving.add(chunk.data, chunk.sha256)

    def _send_away_lost(self, certificates: ConnectionCertificates) -> dict[ParticipantId, IdentityError]:
        """Send away those whose certificates are not good any more, and tell the others of a new list.

        Who has been revoked is refused for good. Who has let its certificate expire may come back with a renewed
        one; to the sum that is open it is a lost connection.
        """
        lost = certificates.lost(tuple(self._connections.values()))
        for participant, fault in lost.items():
            if isinstance(fault, RenewableIdentityError):
                self._publish(SentAway(participant, fault.message))
                again = TRY_AGAIN[ExitReason.EXPIRED]
                self._connections[participant].leave(Refused(fault.message, fault.remedy, again))
            elif self._connections[participant].is_heard:
                self._put(Misbehaved(participant, fault.message, fault.remedy), None)
            else:
                self._send_away(self._connections[participant], fault.message, fault.remedy)
        update = certificates.update
        if update != self._trust:
            self._trust = update
            for connection in self._connections.values():
                connection.send(update)
        return lost

    def look_at_certificates(self) -> None:
        """Take up, every second, what has changed on the disk."""
        now = time.monotonic()
        if self._certificates is None or now < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = now
        self._certificates.renew()
        self._send_away_lost(self._certificates)

    def lost(self) -> Mapping[ParticipantId, IdentityError]:
        """Send away those whose certificates have become invalid, and return who they are."""
        return {} if self._certificates is None else self._send_away_lost(self._certificates)

    def leave(self, ending: Ending) -> None:
        """Notify all sites that the run has ended."""
        self.ending = ending
        for connection in tuple(self._connections.values()):
            connection.leave(self._sender.farewell(ending))
