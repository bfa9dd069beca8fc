"""The gRPC service: who is let in, what is read, and where a peer's fault ends.

Identity is settled from the certificate before a byte of the peer's is read. Then the stream is two loops: one
reads frames and hands complete events to the driver, the other writes what the driver queued. A peer that breaks
the protocol is reported to the round rules, which send it away in words; a peer that stops in the middle of an
upload gives its place up and is cut off. Nothing that happens on one stream can raise into another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Protocol

import grpc

from aggregator.admission import Admission, TrustUnreadableError
from aggregator.connection import Connection
from aggregator.frame_reader import FrameReader, Stalled
from aggregator.received_log import ReceivedLog
from aggregator.server_call import CallEnded, Context, ServerCall
from aggregator.token_bucket import PEER_LIMITS, PeerLimits, TokenBuckets
from aggregator.upload_budget import UploadBudget
from aggregator.uploads import UploadHandler, Uploads
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import AT_CONNECTION
from fedfair.errors import FedfairError, RemoteProtocolError
from fedfair.identity.tls import AuthenticatedPeer, shown_certificate, shown_name
from fedfair.ids import ParticipantId
from fedfair.rounds.continued import Seen
from fedfair.rounds.events import Abstained, Misbehaved
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.wire.codec import (
    decode_check_request,
    encode_aggregator_frame,
    encode_check_reply,
)
from fedfair.wire.frames import (
    Abstain,
    Chunk,
    CollaboratorFrame,
    Ended,
    Hello,
    Refused,
    SecaggMessage,
    TrustUpdate,
    UploadStart,
    Welcome,
    Witnessed,
)
from fedfair.wire.limits import MAX_CHECK_BYTES, MAX_FRAME_BYTES
from fedfair.wire.service import (
    CHECK_METHOD,
    KEEPALIVE,
    MIN_PING_MILLISECONDS,
    PARTICIPATE_METHOD,
    SERVICE,
)

HELLO_SECONDS = 30.0
"""How long an authenticated peer may take to say hello."""

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    # How much a stream may send before it is read. Left to itself, gRPC lets this window grow with the bandwidth,
    # and buffers whole models of streams that wait for a place. 2 MiB carry 40 MB/s over a line of 50 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2 << 20),
    # Without this, a second aggregator on the same port would silently share its connections.
    ("grpc.so_reuseport", 0),
    # A peer that has vanished without a word is noticed within five seconds. Whatever arrives counts as a sign of
    # life, so a slow line that carries an upload is not cut.
    *KEEPALIVE.options,
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_MILLISECONDS),
    ("grpc.http2.max_ping_strikes", 4),
    # An honest peer has one call on a connection. One whose calls are refused waits for each refusal.
    ("grpc.max_concurrent_streams", 4),
    # A connection without a call, and one that never becomes one, do not stay.
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.server_handshake_timeout_ms", 20_000),
)


class StreamHandler(UploadHandler, Protocol):
    """The interface of the driver that the service needs."""

    def turned_away(self, who: str, reason: str) -> None:
        """Note that a stream was not let in."""

    def declined(self, who: ParticipantId, reason: str) -> None:
        """Note that a collaborator does not come, and why."""

    def welcome(self) -> Welcome:
        """Return the first frame for a stream that is let in."""

    def trust_update(self) -> TrustUpdate | None:
        """Return what an admitted stream receives about certificates; None for nothing."""

    def connect(self, connection: Connection) -> None:
        """Take a stream over; it replaces an older one of the same participant."""

    def disconnect(self, connection: Connection) -> None:
        """Note that a stream has ended."""

    def witnessed(self, connection: Connection, statement: bytes) -> None:
        """Take what a collaborator has signed of the run at a checkpoint."""

    def ended(self, connection: Connection, state: bytes, statement: bytes) -> None:
        """Note that a collaborator has heard the end of the run, and which state of it is on its disk, signed."""


class Service:
    """The two methods of the service, for one run.

    Args:
        admission: who may take part.
        floor: receives what was read.
        mirror: receives every message before it is looked at.
        budget: of bytes in the making.
        vector_lengths: the lengths that a masked vector may have; none where sums are plain.
        limits: on what one certificate may begin.
    """

    def __init__(
        self,
        admission: Admission,
        floor: StreamHandler,
        mirror: ReceivedLog,
        budget: UploadBudget,
        vector_lengths: frozenset[int] = frozenset(),
        limits: PeerLimits = PEER_LIMITS,
    ) -> None:
        self._admission = admission
        self._floor = floor
        self._mirror = mirror
        self._uploads = Uploads(floor, budget, vector_lengths)
        self._refusal_seconds = limits.refusal_seconds
        self._starts = TokenBuckets(limits.burst, limits.seconds_per_token)
        self._questions = TokenBuckets(limits.burst, limits.seconds_per_token)

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return what a gRPC server needs; frames stay bytes so that a bad one can be answered in words."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                PARTICIPATE_METHOD: grpc.stream_stream_rpc_method_handler(self.participate),
                CHECK_METHOD: grpc.stream_unary_rpc_method_handler(self.check),
            },
        )

    async def check(self, _requests: AsyncIterator[bytes], context: Context) -> bytes:
        """Answer one preflight question, as gRPC calls it.

        It is taken as a stream, so that nothing is read of one that is refused.
        """
        call = ServerCall(context)
        try:
            await self._limit(call, self._questions, "preflight questions")
            try:
                peer = self._admission.authenticate(call.auth_context)
                async with asyncio.timeout(HELLO_SECONDS):
                    request = _short_enough(await call.read())
                self._mirror.received(peer.name, request, MessageKind.PREFLIGHT, AT_CONNECTION)
                frame = decode_check_request(request)
            except TimeoutError:
                await call.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no question within {HELLO_SECONDS:.0f} s")
            except FedfairError as fault:
                await call.abort(grpc.StatusCode.PERMISSION_DENIED, fault.diagnostics())
            return encode_check_reply(self._admission.check(peer, frame))
        except CallEnded:
            # Nobody is there to read it.
            return b""

    async def _limit(self, call: ServerCall, buckets: TokenBuckets, what: str) -> None:
        """Refuse a peer that begins too much, before anything else is done for it, and after a while.

        The while bounds what one connection can ask for: it has few streams at a time.

        Raises:
            grpc.aio.AbortError: it is refused.
            CallEnded: it has gone.
        """
        # The certificate and not the name: whoever has a stolen key, which was revoked since, has the name too.
        if buckets.take(shown_certificate(call.auth_context), time.monotonic()):
            return
        who = shown_name(call.auth_context).rpartition("/")[2] or "a stranger"
        words = f"too many {what} from {who}: {buckets.burst} at once, then one in {buckets.seconds:.0f} s"
        self._floor.turned_away(who, words)
        await asyncio.sleep(self._refusal_seconds)
        await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words)

    async def participate(self, _requests: AsyncIterator[bytes], context: Context) -> None:
        """Carry one stream to its end, as gRPC calls it."""
        call = ServerCall(context)
        try:
            await self._attend(call)
        except CallEnded:
            # The peer is gone, and the driver knows it; gRPC would log a traceback of it.
            return
        finally:
            await call.settle()

    async def _attend(self, call: ServerCall) -> None:
        who = "a stranger"
        await self._limit(call, self._starts, "sessions")
        try:
            peer = self._admission.authenticate(call.auth_context)
            who = peer.name
            incoming = FrameReader(call, peer.name, self._mirror)
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await self._take_hello(peer, incoming)
        except TimeoutError:
            await call.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello within {HELLO_SECONDS:.0f} s")
            return
        except FedfairError as fault:
            self._floor.turned_away(who, fault.message)
            refused = Refused(fault.message, fault.remedy, TRY_AGAIN[_reason(fault)])
            await call.write(encode_aggregator_frame(refused))
            return
        if isinstance(hello, Abstain):
            self._floor.declined(peer.name, hello.reason.value)
            return
        seen = Seen(hello.last_sum_number, hello.run_id, hello.rounds_done)
        said = (hello.session, call.auth_context, seen, hello.state, hello.approval)
        connection = incoming.connection = Connection(peer.name, *said)
        connection.send(self._floor.welcome())
        update = self._floor.trust_update()
        if update is not None:
            connection.send(update)
        self._floor.connect(connection)
        try:
            await self._carry(connection, incoming, call)
        finally:
            self._floor.disconnect(connection)
        if connection.cut_reason.done():
            await call.abort(grpc.StatusCode.ABORTED, connection.cut_reason.result())

    async def _take_hello(self, peer: AuthenticatedPeer, incoming: FrameReader) -> Hello | Abstain:
        """Return an introduction that was checked, or why this site does not come.

        A site that refuses introduces itself too, but without an approval: words in a site's name are taken only
        from the holder of the key that the plan pins for it.
        """
        frame = await incoming.frame()
        if not isinstance(frame, Hello):
            raise RemoteProtocolError(f"the stream begins with {_name(frame)}, expected Hello")
        if frame.approval:
            self._admission.admit(peer, frame)
            return frame
        self._admission.identify(peer, frame)
        words = await incoming.frame()
        if isinstance(words, Abstain) and words.leaving and not words.sum_number:
            return words
        raise RemoteProtocolError(
            f"an introduction without an approval is followed by {_name(words)}, "
            "expected the site's reason to refuse",
            f"approve the plan first: `fedfair plan approve -n {peer.name}`",
        )

    async def _carry(self, connection: Connection, incoming: FrameReader, call: ServerCall) -> None:
        """Read and write until the stream ends, the last frame is out, or the driver cuts it."""
        reader = asyncio.create_task(self._read(connection, incoming))
        writer = call.begin_writing(connection.drain)
        waiting: tuple[asyncio.Future[None] | asyncio.Future[str], ...] = (reader, writer, connection.cut_reason)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if connection.is_leaving and reader.done():
                # A site that has heard the end goes, perhaps before the write of its last frame returns.
                await asyncio.wait((writer, connection.cut_reason), return_when=asyncio.FIRST_COMPLETED)
            elif connection.is_end and writer.done() and writer.exception() is None:
                # That the end was written is no proof that the site has taken it: the site says so itself.
                await asyncio.wait((reader, connection.cut_reason), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            call.stop_writing()
            # Their faults are raised below; one that is ended here has none.
            await asyncio.gather(reader, return_exceptions=True)
        for task in (reader, writer):
            if task.done() and not task.cancelled() and not connection.cut_reason.done():
                task.result()

    async def _read(self, connection: Connection, incoming: FrameReader) -> None:
        try:
            while (frame := await incoming.frame()) is not None:
                await self._take(frame, connection, incoming)
        except Stalled as stalled:
            connection.cut(str(stalled))
        except RemoteProtocolError as fault:
            event = Misbehaved(connection.participant, fault.message, fault.remedy)
            await self._floor.submit(connection, event)
            # The rules answer with a refusal; the writer sends it and ends the stream.
            await asyncio.wait([connection.cut_reason])

    async def _take(self, frame: CollaboratorFrame, connection: Connection, incoming: FrameReader) -> None:
        connection.heard()
        match frame:
            case UploadStart():
                await self._uploads.take(frame, connection, incoming)
            case SecaggMessage():
                await self._uploads.take_message(frame, connection, incoming)
            case Abstain(sum_number, reason, leaving, accused):
                if sum_number:
                    connection.expected(sum_number)
                event = Abstained(connection.participant, sum_number, reason.value, leaving, accused)
                await self._floor.submit(connection, event)
            case Witnessed(statement):
                self._floor.witnessed(connection, statement)
            case Ended(state, statement):
                if not connection.is_end:
                    raise RemoteProtocolError(
                        f"{connection.participant} says that the run is over, and it is not",
                        "restart the collaborator",
                    )
                self._floor.ended(connection, state, statement)
            case Hello() | Chunk():
                raise RemoteProtocolError(
                    f"{type(frame).__name__} is out of place here", "restart the collaborator"
                )


def _short_enough(question: bytes | None) -> bytes:
    """Return a preflight question whose length is one.

    Raises:
        RemoteProtocolError: there is none, or it is longer than any.
    """
    if question is None:
        raise RemoteProtocolError("the stream ended without a question")
    if len(question) > MAX_CHECK_BYTES:
        raise RemoteProtocolError(f"a question of {len(question)} bytes; at most {MAX_CHECK_BYTES} are looked at")
    return question


def _name(frame: CollaboratorFrame | None) -> str:
    return "nothing" if frame is None else type(frame).__name__


def _reason(fault: FedfairError) -> ExitReason:
    return ExitReason.TRUST_UNREADABLE if isinstance(fault, TrustUnreadableError) else ExitReason.NOT_ADMITTED
