"""Bytes to valid frames and back: the one place where bytes from a peer are believed or refused.

Every `decode_` function raises `RemoteProtocolError` and nothing else, whatever it is given, and every frame it
returns has passed the checks of `frames`. A frame has one encoding only: fields that this version does not know,
fields given twice and padding are refused, because bytes that mean nothing to us may mean something to somebody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.secagg.vector_digest import CHUNK_FIELD, frame_prefix
from fedfair.statistics.table import Purpose
from fedfair.wire.frames import (
    Abstain,
    Accepted,
    AggregatorFrame,
    BroadcastKind,
    BroadcastStart,
    CheckItem,
    CheckReply,
    CheckRequest,
    Chunk,
    CollaboratorFrame,
    Ended,
    Finished,
    Hello,
    Refused,
    SecaggMessage,
    SumStart,
    TrustUpdate,
    UploadStart,
    Welcome,
    Witnessed,
)
from fedfair.wire.limits import (
    MAX_CHECK_ITEMS,
    MAX_CHUNK_BYTES,
    MAX_FRAME_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_TEXT_CHARACTERS,
)
from fedfair.wire.v1 import federation_pb2 as pb

_Parsed = TypeVar("_Parsed", bound=Message)
_Built = TypeVar("_Built")
_Number = TypeVar("_Number")

_BROADCAST_KINDS = {
    BroadcastKind.STATE: pb.BroadcastStart.KIND_STATE,
    BroadcastKind.TOTALS: pb.BroadcastStart.KIND_TOTALS,
}
_REASON_OF = {pb.Abstain.Reason.Value(f"REASON_{reason.name}"): reason for reason in RefusalReason}
_BROADCAST_KIND_OF = {number: kind for kind, number in _BROADCAST_KINDS.items()}
_PURPOSE_OF = {pb.SumStart.Purpose.Value(f"PURPOSE_{purpose.name}"): purpose for purpose in Purpose}


# ------------------------------------------------------------------ collaborator -> aggregator


def encode_collaborator_frame(frame: CollaboratorFrame) -> bytes:  # noqa: PLR0911 - one case per frame
    """Return the bytes of a frame that a collaborator sends."""
    match frame:
        case Hello():
            return pb.CollaboratorFrame(hello=_hello_message(frame)).SerializeToString()
        case UploadStart(sum_number, length, sha256):
            start = pb.UploadStart(sum_number=sum_number, length=length, sha256=sha256)
            return pb.CollaboratorFrame(upload=start).SerializeToString()
        case Chunk(data):
            return _encoded_chunk(data)
        case Abstain(sum_number, reason, leaving, accused):
            abstain = pb.Abstain(
                sum_number=sum_number, reason=f"REASON_{reason.name}", leaving=leaving, accused=accused
            )
            return pb.CollaboratorFrame(abstain=abstain).SerializeToString()
        case SecaggMessage():
            return pb.CollaboratorFrame(masked=_masked_message(frame)).SerializeToString()
        case Ended(state, statement):
            return pb.CollaboratorFrame(ended=pb.Ended(state=state, statement=statement)).SerializeToString()
        case Witnessed(statement):
            return pb.CollaboratorFrame(witnessed=pb.Witnessed(statement=statement)).SerializeToString()


def decode_collaborator_frame(raw: bytes) -> CollaboratorFrame:  # noqa: PLR0911 - one line per frame
    """Return the frame that a collaborator sent.

    Raises:
        RemoteProtocolError: the bytes are not exactly one valid frame.
    """
    if (chunk := _decoded_chunk(raw)) is not None:
        return chunk
    message = parsed_message(pb.CollaboratorFrame(), raw)
    match message.WhichOneof("body"):
        case "hello":
            return built(Hello, lambda: _hello(message.hello))
        case "upload":
            return built(UploadStart, lambda: _upload_start(message.upload))
        case "chunk":
            return built(Chunk, lambda: Chunk(message.chunk.data))
        case "abstain":
            return built(Abstain, lambda: _abstain(message.abstain))
        case "masked":
            return built(SecaggMessage, lambda: _masked(message.masked))
        case "ended":
            return built(Ended, lambda: Ended(message.ended.state, message.ended.statement))
        case "witnessed":
            return built(Witnessed, lambda: Witnessed(message.witnessed.statement))
        case _:
            raise RemoteProtocolError("a collaborator frame is empty")


def _hello_message(frame: Hello) -> pb.Hello:
    return pb.Hello(
        protocol_version=frame.protocol_version,
        software_version=frame.software_version,
        plan_digest=frame.plan_digest,
        approval=frame.approval,
        certificate_binding=frame.certificate_binding,
        session=frame.session,
        last_sum_number=frame.last_sum_number,
        run_id=frame.run_id,
        rounds_done=frame.rounds_done,
        state=frame.state,
    )


def _hello(message: pb.Hello) -> Hello:
    return Hello(
        message.protocol_version,
        _short(message.software_version, "Hello.software_version", MAX_NAME_CHARACTERS),
        message.plan_digest,
        message.approval,
        message.certificate_binding,
        message.session,
        SumNumber(message.last_sum_number),
        _short(message.run_id, "Hello.run_id", MAX_NAME_CHARACTERS),
        message.rounds_done,
        message.state,
    )


def _upload_start(message: pb.UploadStart) -> UploadStart:
    return UploadStart(SumNumber(message.sum_number), message.length, message.sha256)


def _abstain(message: pb.Abstain) -> Abstain:
    reason = _REASON_OF.get(message.reason)
    if reason is None:
        raise RemoteProtocolError(f"Abstain.reason is {int(message.reason)}, which is not in the list of reasons")
    return Abstain(SumNumber(message.sum_number), reason, message.leaving, message.accused)


# ------------------------------------------------------------------ aggregator -> collaborator


def encode_aggregator_frame(frame: AggregatorFrame) -> bytes:  # noqa: PLR0911 - one line per frame
    """Return the bytes of a frame that the aggregator sends."""
    match frame:
        case Welcome():
            welcome = pb.Welcome(
                run_id=frame.run_id,
                rounds_done=frame.rounds_done,
                rounds_total=frame.rounds_total,
                evaluation_only=frame.evaluation_only,
                model=frame.model,
            )
            return pb.AggregatorFrame(welcome=welcome).SerializeToString()
        case BroadcastStart(kind, length, sha256):
            broadcast = pb.BroadcastStart(kind=_BROADCAST_KINDS[kind], length=length, sha256=sha256)
            return pb.AggregatorFrame(broadcast=broadcast).SerializeToString()
        case Chunk(data):
            return _encoded_chunk(data)
        case SumStart():
            return pb.AggregatorFrame(sum=_sum_message(frame)).SerializeToString()
        case TrustUpdate(revocation_list, certificate):
            trust = pb.TrustUpdate(revocation_list=revocation_list, certificate=certificate)
            return pb.AggregatorFrame(trust=trust).SerializeToString()
        case Accepted(sum_number):
            return pb.AggregatorFrame(accepted=pb.Accepted(sum_number=sum_number)).SerializeToString()
        case Finished(rounds, outcome):
            return pb.AggregatorFrame(finished=pb.Finished(rounds=rounds, outcome=outcome)).SerializeToString()
        case Refused(reason, remedy, try_again):
            refused = pb.Refused(reason=reason, remedy=remedy, try_again=try_again)
            return pb.AggregatorFrame(refused=refused).SerializeToString()
        case SecaggMessage():
            return pb.AggregatorFrame(masked=_masked_message(frame)).SerializeToString()


def decode_aggregator_frame(raw: bytes) -> AggregatorFrame:  # noqa: C901, PLR0911 - one line per frame
    """Return the frame that the aggregator sent.

    Raises:
        RemoteProtocolError: the bytes are not exactly one valid frame.
    """
    if (chunk := _decoded_chunk(raw)) is not None:
        return chunk
    message = parsed_message(pb.AggregatorFrame(), raw)
    match message.WhichOneof("body"):
        case "welcome":
            return built(Welcome, lambda: _welcome(message.welcome))
        case "broadcast":
            return built(BroadcastStart, lambda: _broadcast_start(message.broadcast))
        case "chunk":
            return built(Chunk, lambda: Chunk(message.chunk.data))
        case "sum":
            return built(SumStart, lambda: _sum_start(message.sum))
        case "trust":
            return built(
                TrustUpdate, lambda: TrustUpdate(message.trust.revocation_list, message.trust.certificate)
            )
        case "accepted":
            return built(Accepted, lambda: Accepted(SumNumber(message.accepted.sum_number)))
        case "finished":
            return built(Finished, lambda: _finished(message.finished))
        case "refused":
            return built(Refused, lambda: _refused(message.refused))
        case "masked":
            return built(SecaggMessage, lambda: _masked(message.masked))
        case _:
            raise RemoteProtocolError("an aggregator frame is empty")


def _welcome(message: pb.Welcome) -> Welcome:
    done, total = message.rounds_done, message.rounds_total
    return Welcome(message.run_id, done, total, message.evaluation_only, message.model)


def _broadcast_start(message: pb.BroadcastStart) -> BroadcastStart:
    kind = _known(_BROADCAST_KIND_OF, message.kind, "BroadcastStart.kind")
    return BroadcastStart(kind, message.length, message.sha256)


def _sum_message(frame: SumStart) -> pb.SumStart:
    return pb.SumStart(
        sum_number=frame.sum_number,
        purpose=f"PURPOSE_{frame.purpose.name}",
        round=frame.round,
        attempt=frame.attempt,
        state=frame.state,
        deadline_seconds=frame.deadline_seconds,
    )


def _sum_start(message: pb.SumStart) -> SumStart:
    return SumStart(
        SumNumber(message.sum_number),
        _known(_PURPOSE_OF, message.purpose, "SumStart.purpose"),
        message.round,
        message.attempt,
        message.state,
        message.deadline_seconds,
    )


def _finished(message: pb.Finished) -> Finished:
    return Finished(message.rounds, _short(message.outcome, "Finished.outcome"))


def _refused(message: pb.Refused) -> Refused:
    return Refused(
        _short(message.reason, "Refused.reason"), _short(message.remedy, "Refused.remedy"), message.try_again
    )


# ------------------------------------------------------------------ both ways


def _masked_message(frame: SecaggMessage) -> pb.SecaggMessage:
    return pb.SecaggMessage(message=frame.message, vector_length=frame.vector_length)


def _masked(message: pb.SecaggMessage) -> SecaggMessage:
    return SecaggMessage(message.message, message.vector_length)


# Nearly all bytes of a run are chunks, and both kinds of frames have them in the same field. They are written and
# read here without protobuf, which would copy a model three times; a test holds their bytes to protobuf's.
_PREFIX_BYTES = range(4, 11)
"""How long the bytes before the data of a chunk may be."""


def _encoded_chunk(data: bytes | memoryview) -> bytes:
    """Return the frame of a chunk; the one copy of its data."""
    return b"".join((frame_prefix(len(data)), data))


def _decoded_chunk(raw: bytes) -> Chunk | None:
    """Return the chunk of a frame, its data not copied; None for any other frame, or one to be refused."""
    if not raw.startswith(CHUNK_FIELD):
        return None
    for length in _PREFIX_BYTES:
        size = len(raw) - length
        if 0 < size <= MAX_CHUNK_BYTES:
            prefix = frame_prefix(size)
            if len(prefix) == length and raw.startswith(prefix):
                return Chunk(memoryview(raw)[length:])
    return None


# ------------------------------------------------------------------ preflight


def encode_check_request(frame: CheckRequest) -> bytes:
    """Return the bytes of a preflight request."""
    return pb.CheckRequest(
        protocol_version=frame.protocol_version,
        software_version=frame.software_version,
        plan_digest=frame.plan_digest,
        approval=frame.approval,
        certificate_binding=frame.certificate_binding,
        clock_seconds=frame.clock_seconds,
    ).SerializeToString()


def decode_check_request(raw: bytes) -> CheckRequest:
    """Return the preflight request that a collaborator sent.

    Raises:
        RemoteProtocolError: the bytes are not exactly one valid request.
    """
    message = parsed_message(pb.CheckRequest(), raw)
    return built(
        CheckRequest,
        lambda: CheckRequest(
            message.protocol_version,
            _short(message.software_version, "CheckRequest.software_version", MAX_NAME_CHARACTERS),
            message.plan_digest,
            message.approval,
            message.certificate_binding,
            message.clock_seconds,
        ),
    )


def encode_check_reply(frame: CheckReply) -> bytes:
    """Return the bytes of a preflight reply."""
    items = (pb.CheckItem(name=item.name, passed=item.passed, detail=item.detail) for item in frame.items)
    return pb.CheckReply(items=items).SerializeToString()


def decode_check_reply(raw: bytes) -> CheckReply:
    """Return the preflight reply that the aggregator sent.

    Raises:
        RemoteProtocolError: the bytes are not exactly one valid reply.
    """
    message = parsed_message(pb.CheckReply(), raw)
    if len(message.items) > MAX_CHECK_ITEMS:
        raise RemoteProtocolError(
            f"CheckReply.items has {len(message.items)} entries, expected 1 to {MAX_CHECK_ITEMS}"
        )
    return built(CheckReply, lambda: CheckReply(tuple(_check_item(item) for item in message.items)))


def _check_item(message: pb.CheckItem) -> CheckItem:
    name = _short(message.name, "CheckItem.name", MAX_NAME_CHARACTERS)
    return CheckItem(name, message.passed, _short(message.detail, "CheckItem.detail"))


# ------------------------------------------------------------------ the border


def parsed_message(message: _Parsed, raw: bytes) -> _Parsed:
    """Fill `message` from `raw`, or refuse bytes that are too many, malformed, or without a meaning.

    Raises:
        RemoteProtocolError: they are not the one spelling of a message of this kind.
    """
    kind = message.DESCRIPTOR.name
    if len(raw) > MAX_FRAME_BYTES:
        raise RemoteProtocolError(f"{kind} has {len(raw)} bytes, at most {MAX_FRAME_BYTES} are allowed")
    try:
        message.ParseFromString(raw)
    except DecodeError:
        raise RemoteProtocolError(
            f"{kind} of {len(raw)} bytes is cut off or not protobuf", "is something else speaking on this port?"
        ) from None
    # Without the unknown fields, a message is written as it came in exactly when nothing was unknown, given twice,
    # written out although it is the default, padded, out of order, or a truth value above 1. No chunk comes here.
    message.DiscardUnknownFields()
    written = message.SerializeToString()
    if written != raw:
        raise RemoteProtocolError(
            f"{kind} has {len(raw)} bytes, and this version writes what they mean in other {len(written)}",
            "compare the versions of fedfair on both sides",
        )
    return message


def built(kind: type[_Built], build: Callable[[], _Built]) -> _Built:
    """Run the frame's own checks; what is our bug in a frame that we build is the peer's in one that we read.

    Raises:
        RemoteProtocolError: a check refuses it.
    """
    try:
        return build()
    except LocalProtocolError as fault:
        raise RemoteProtocolError(f"received {kind.__name__}: {fault.message}") from None


def _short(text: str, field: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return `text`, or refuse it where an honest peer would have cut it."""
    if len(text) > limit:
        raise RemoteProtocolError(f"{field} has {len(text)} characters, at most {limit} are allowed")
    return text


def _known(table: dict[_Number, _Built], number: _Number, field: str) -> _Built:
    if number not in table:
        raise RemoteProtocolError(f"{field} is {number}, which this version does not know")
    return table[number]
