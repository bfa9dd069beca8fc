"""One entry of a record as a value, and its one spelling as a line.

    {"entry":17,"kind":"message","time":"...Z","plan":"sha256:...","purpose":"training","round":3,"attempt":1,
     "what":"masked vector","bytes":1048585,"sha256":"...","chain":"..."}

Four kinds: `opened` where a process begins to write, `message` before each message, `signed` where a round is
over and where the process ends, `continued` where a later file begins. `chain` (and in the last two a signature)
stands behind the entry's own fields, which are what it covers; `chain.py` says how. Decides fields, ranges and
spelling. A line has one spelling only, no text but words of closed lists, names, digests and times, and a greatest
length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fedfair.audit.items import MessageKind
from fedfair.errors import AuditError
from fedfair.file_formats import REMEDY, other_version
from fedfair.statistics.table import Purpose as SumPurpose

FORMAT: Final = "fedfair/egress/1"
MAX_LINE_BYTES = 1024
"""The longest honest line has about 600 bytes, its end included."""

MAX_COUNT = 2**63 - 1
CONNECTION: Final = "connection"
TORN_END = b"~\n"
"""Ends the bytes that an interrupted writer has left: with a line end alone they might be taken for an entry."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$")]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Number = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PlanDigest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Key = Annotated[str, Field(pattern=r"^ed25519:[A-Za-z0-9+/]{43}=$")]
Purpose = SumPurpose | Literal["connection"]


class _Entry(BaseModel):
    """The fields of every entry: its number, from 1, and when it was written, on the writer's clock."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    entry: Number
    kind: str
    time: AwareDatetime


class _Beginning(_Entry):
    """The first entry of a file, which says who writes it.

    Attributes:
        format: the name of this format.
        federation: whose messages these are: the federation,
        participant: and the collaborator that sends them.
        keeper: who writes: the collaborator itself, or `aggregator` for the mirror.
        key: the keeper's public signing key.
    """

    format: Literal["fedfair/egress/1"] = FORMAT
    federation: Name
    participant: Name
    keeper: Name
    key: Key

    @property
    def names(self) -> tuple[str, str, str]:
        """Return federation, participant and keeper."""
        return self.federation, self.participant, self.keeper


class Opened(_Beginning):
    """A process begins to write.

    Attributes:
        torn_bytes: how many bytes before this entry are what an interrupted writer left of one,
        torn_sha256: and their SHA-256.
    """

    kind: Literal["opened"] = "opened"
    torn_bytes: Count
    torn_sha256: Digest

    @property
    def segment(self) -> int:
        """Return the number of this file."""
        return 1


class Message(_Entry):
    """One message is about to be handed to the network, or in a mirror: has arrived.

    Attributes:
        plan: digest of the plan it belongs to.
        purpose: of the sum; `connection` for what belongs to none.
        round: of the sum; 0 with `connection`.
        attempt: of the sum; 0 with `connection`.
        what: what it is.
        bytes: how long it is, as gRPC gets it.
        sha256: of exactly these bytes.
    """

    kind: Literal["message"] = "message"
    plan: PlanDigest
    purpose: Purpose
    round: Count
    attempt: Count
    what: MessageKind
    bytes: Count
    sha256: Digest


class Signed(_Entry):
    """The keeper signs everything up to and with this entry.

    Attributes:
        messages: how many messages the record holds so far.
        bytes: how long they are together.
        closing: whether the process ends here cleanly.
    """

    kind: Literal["signed"] = "signed"
    messages: Count
    bytes: Count
    closing: bool


class RecordContinued(_Beginning):
    """A later file of the record begins; signed, because it stands for every file before it.

    Attributes:
        segment: the number of this file; the first has 1 and begins with `opened`.
        before: the chain value of the last entry of the file before,
        before_bytes: and the length of that file.
        messages: how many messages the files before hold,
        bytes: and how long they are together.
    """

    kind: Literal["continued"] = "continued"
    segment: Annotated[int, Field(ge=2, le=MAX_COUNT)]
    before: Digest
    before_bytes: Count
    messages: Count
    bytes: Count


Beginning = Opened | RecordContinued
"""The first entry of a file."""

Entry = Beginning | Message | Signed
_PLAN: TypeAdapter[str] = TypeAdapter(PlanDigest)
_ENTRIES: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A line taken apart.

    Attributes:
        entry: its entry.
        body: the bytes that spell the entry's own fields.
        chain: the chain value it claims, 32 bytes.
        signature: 64 bytes; only a `signed` and a `continued` entry have one.
    """

    entry: Entry
    body: bytes
    chain: bytes
    signature: bytes | None


_TAIL = re.compile(rb',"chain":"([0-9a-f]{64})"(?:,"signature":"([0-9a-f]{128})")?\}\n\Z')


def body_of(entry: Entry) -> bytes:
    """Return the one spelling of an entry's own fields."""
    return entry.model_dump_json().encode("ascii")


def checked_plan(digest: str) -> str:
    """Return the digest of a plan as people see it; raises ValueError where it is none."""
    return _PLAN.validate_python(digest)


def message_body(
    entry: int,
    time: datetime,
    plan: str,
    occasion: tuple[Purpose, int, int],
    what: MessageKind,
    size: int,
    sha256: bytes,
) -> bytes:
    """Return `body_of` of a `Message`, whose fields the writer has from itself: nothing is checked.

    Args:
        entry: its number.
        time: when it is written, an aware time.
        plan: digest of the plan that the message belongs to.
        occasion: purpose, round and attempt of the sum.
        what: what the message is.
        size: how long it is.
        sha256: of its bytes, 32 bytes.
    """
    purpose, round_number, attempt = occasion
    word = purpose if isinstance(purpose, str) else purpose.value
    return (
        f'{{"entry":{entry},"kind":"message","time":"{_spelt(time)}","plan":"{plan}","purpose":"{word}",'
        f'"round":{round_number},"attempt":{attempt},"what":"{what.value}","bytes":{size},'
        f'"sha256":"{sha256.hex()}"}}'
    ).encode("ascii")


def signed_body(entry: int, time: datetime, messages: int, size: int, *, closing: bool) -> bytes:
    """Return `body_of` of a `Signed` with these fields, likewise."""
    word = "true" if closing else "false"
    return (
        f'{{"entry":{entry},"kind":"signed","time":"{_spelt(time)}","messages":{messages},"bytes":{size},'
        f'"closing":{word}}}'
    ).encode("ascii")


def _spelt(time: datetime) -> str:
    text = time.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def line_of(body: bytes, chain: bytes, signature: bytes | None) -> bytes:
    """Return the line of an entry, with its line end."""
    signed = b"" if signature is None else b',"signature":"%s"' % signature.hex().encode("ascii")
    return b'%s,"chain":"%s"%s}\n' % (body[:-1], chain.hex().encode("ascii"), signed)


def parse_line(line: bytes) -> RecordLine:
    """Return a line taken apart.

    Args:
        line: with its line end.

    Raises:
        AuditError: it is no line of a record, or not spelt as `line_of` spells it. The message quotes none of it.
    """
    if len(line) > MAX_LINE_BYTES:
        raise AuditError(f"it is longer than any entry, which has at most {MAX_LINE_BYTES} bytes")
    tail = _TAIL.search(line)
    if tail is None:
        raise AuditError("it is no entry: it does not end in a chain value and a line end")
    body = line[: tail.start()] + b"}"
    if newer := other_version(body, FORMAT, "the record"):
        raise AuditError(newer, REMEDY)
    try:
        entry = _ENTRIES.validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"] if part in _KEYS)
        raise AuditError(f"it is no entry: {place or 'its text'} is not as it must be") from error
    if body_of(entry) != body:
        # Refuses keys twice, other orders, spaces, other spellings of a time or a number, all at once.
        raise AuditError("it is not in the one spelling that an entry has")
    chain, signature = bytes.fromhex(tail[1].decode("ascii")), tail[2]
    if (signature is not None) != isinstance(entry, Signed | RecordContinued):
        raise AuditError("it has a signature where none belongs, or none where one does")
    return RecordLine(entry, body, chain, None if signature is None else bytes.fromhex(signature.decode("ascii")))


_KEYS = frozenset(
    {*Opened.model_fields, *Message.model_fields, *Signed.model_fields, *RecordContinued.model_fields}
)
