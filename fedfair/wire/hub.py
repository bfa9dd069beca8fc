"""The messages between a hub and its members: names, limits, values that are valid, and their bytes.

Each class is one message of `proto/fedfair/v1/hub.proto`. The four methods are unary; each is answered by what it
asks for or by a `HubRefusal`. What an act or an entry says is the business of
`fedfair.consortium`: here they are bytes.

    member: channel.unary_unary(ACTS)(encode_request(ActsRequest(41, 30)), metadata=((BINDING_KEY, binding),))
    hub:    encode_reply(Entries((b"...",)))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.wire.codec import built, parsed_message
from fedfair.wire.frames import showable
from fedfair.wire.limits import MAX_CHUNK_BYTES, MAX_NAME_CHARACTERS, MAX_TEXT_CHARACTERS
from fedfair.wire.v1 import hub_pb2 as pb

SERVICE: Final = "fedfair.v1.Hub"
ACTS_METHOD, GET_METHOD, PUT_METHOD, ACT_METHOD = "Acts", "Get", "Put", "Act"
ACTS, GET, PUT, ACT = (f"/{SERVICE}/{name}" for name in (ACTS_METHOD, GET_METHOD, PUT_METHOD, ACT_METHOD))

BINDING_KEY: Final = "fedfair-binding-bin"
"""Metadata of every call to the hub: the member's signature that binds its certificate to its key, 64 bytes."""

PLAN_KEY: Final = "fedfair-plan"
"""Metadata of every call of a round: 64 hex digits of the plan's digest. A hub has several plans; an aggregator of
one plan does not look at it."""

MAX_WAIT_SECONDS = 60
MAX_ACT_BYTES = 1 << 18
MAX_ENTRY_BYTES = 1 << 19
MAX_ENTRIES_BYTES = 1 << 20
"""Of the entries in one reply; the first is sent whatever its length."""
MAX_LENGTH = 1 << 40
MAX_REQUEST_BYTES = MAX_CHUNK_BYTES + (1 << 10)


@dataclass(frozen=True, slots=True)
class ActsRequest:
    """Asks for the entries after number `since`; the hub waits for the next one for up to `wait_seconds`."""

    since: int
    wait_seconds: int = 0

    def __post_init__(self) -> None:
        _within("since", self.since, MAX_LENGTH)
        _within("wait_seconds", self.wait_seconds, MAX_WAIT_SECONDS)


@dataclass(frozen=True, slots=True)
class GetRequest:
    """Asks for the bytes of a file from an offset on."""

    digest: bytes
    offset: int

    def __post_init__(self) -> None:
        _digest(self.digest)
        _within("offset", self.offset, MAX_LENGTH)


@dataclass(frozen=True, slots=True)
class PutRequest:
    """Brings bytes of a file of `length` bytes; without data it asks how far the hub has it."""

    digest: bytes
    length: int
    offset: int
    data: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        _digest(self.digest)
        _within("length", self.length, MAX_LENGTH)
        _within("offset", self.offset, self.length)
        _within("bytes of data", len(self.data), min(MAX_CHUNK_BYTES, self.length - self.offset))


@dataclass(frozen=True, slots=True)
class ActRequest:
    """Brings one signed act."""

    act: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _within("bytes of the act", len(self.act), MAX_ACT_BYTES)


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries in their order; none where there is no news."""

    entries: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        for entry in self.entries:
            _within("bytes of an entry", len(entry), MAX_ENTRY_BYTES)


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of a file at an offset, and the length of the whole."""

    length: int
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _within("length", self.length, MAX_LENGTH)
        _within("bytes of data", len(self.data), min(MAX_CHUNK_BYTES, self.length))


@dataclass(frozen=True, slots=True)
class Held:
    """How many bytes of a file the hub has, from its beginning."""

    count: int

    def __post_init__(self) -> None:
        _within("bytes", self.count, MAX_LENGTH)


@dataclass(frozen=True, slots=True)
class ActWritten:
    """The entry in which an act stands in the record."""

    entry: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _within("bytes of the entry", len(self.entry), MAX_ENTRY_BYTES)


@dataclass(frozen=True, slots=True)
class HubRefusal:
    """What the hub says instead of an answer."""

    check: str
    words: str
    remedy: str = ""

    def __post_init__(self) -> None:
        for name, limit in (
            ("check", MAX_NAME_CHARACTERS),
            ("words", MAX_TEXT_CHARACTERS),
            ("remedy", MAX_TEXT_CHARACTERS),
        ):
            object.__setattr__(self, name, showable(getattr(self, name), limit))


Request: TypeAlias = ActsRequest | GetRequest | PutRequest | ActRequest
Reply: TypeAlias = Entries | Piece | Held | ActWritten | HubRefusal


def encode_request(request: Request) -> bytes:
    """Return the bytes of a request."""
    match request:
        case ActsRequest(since, wait_seconds):
            return pb.ActsRequest(since=since, wait_seconds=wait_seconds).SerializeToString()
        case GetRequest(digest, offset):
            return pb.GetRequest(digest=digest, offset=offset).SerializeToString()
        case PutRequest(digest, length, offset, data):
            return pb.PutRequest(digest=digest, length=length, offset=offset, data=data).SerializeToString()
        case ActRequest(act):
            return pb.ActRequest(act=act).SerializeToString()


def decode_acts_request(raw: bytes) -> ActsRequest:
    """Return the request for entries; RemoteProtocolError where the bytes are not exactly one."""
    message = parsed_message(pb.ActsRequest(), raw)
    return built(ActsRequest, lambda: ActsRequest(message.since, message.wait_seconds))


def decode_get_request(raw: bytes) -> GetRequest:
    """Return the request for bytes; RemoteProtocolError where the bytes are not exactly one."""
    message = parsed_message(pb.GetRequest(), raw)
    return built(GetRequest, lambda: GetRequest(message.digest, message.offset))


def decode_put_request(raw: bytes) -> PutRequest:
    """Return the request that brings bytes; RemoteProtocolError where the bytes are not exactly one."""
    message = parsed_message(pb.PutRequest(), raw)
    return built(PutRequest, lambda: PutRequest(message.digest, message.length, message.offset, message.data))


def decode_act_request(raw: bytes) -> ActRequest:
    """Return the request that brings an act; RemoteProtocolError where the bytes are not exactly one."""
    message = parsed_message(pb.ActRequest(), raw)
    return built(ActRequest, lambda: ActRequest(message.act))


def encode_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply."""
    match reply:
        case Entries(entries):
            return pb.HubReply(entries=pb.Entries(entries=entries)).SerializeToString()
        case Piece(length, data):
            return pb.HubReply(piece=pb.Piece(length=length, data=data)).SerializeToString()
        case Held(count):
            return pb.HubReply(held=pb.Held(bytes=count)).SerializeToString()
        case ActWritten(entry):
            return pb.HubReply(entry=pb.Entry(entry=entry)).SerializeToString()
        case HubRefusal(check, words, remedy):
            return pb.HubReply(refusal=pb.Refusal(check=check, words=words, remedy=remedy)).SerializeToString()


def decode_reply(raw: bytes) -> Reply:
    """Return the hub's reply.

    Raises:
        RemoteProtocolError: the bytes are not exactly one reply.
    """
    message = parsed_message(pb.HubReply(), raw)
    match message.WhichOneof("body"):
        case "entries":
            return built(Entries, lambda: Entries(tuple(message.entries.entries)))
        case "piece":
            return built(Piece, lambda: Piece(message.piece.length, message.piece.data))
        case "held":
            return built(Held, lambda: Held(message.held.bytes))
        case "entry":
            return built(ActWritten, lambda: ActWritten(message.entry.entry))
        case "refusal":
            told = message.refusal
            return built(HubRefusal, lambda: HubRefusal(told.check, told.words, told.remedy))
        case _:
            raise RemoteProtocolError("HubReply says nothing", "is it a fedfair hub of this version?")


def _within(name: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise LocalProtocolError(f"{name} is {value}, expected 0 to {most}")


def _digest(value: bytes) -> None:
    if len(value) != 32:
        raise LocalProtocolError(f"the digest has {len(value)} bytes, expected 32")
