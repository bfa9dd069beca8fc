"""A record while its process writes it: every entry stands in the file before the message it speaks of is sent.

Decides what an entry says and when the keeper signs: where a message of another sum follows, everything before is
signed first, and at the end. A start signs nothing, but says what an interrupted writer has left. Where a sum is
over and the file is long or old enough, a new file begins with a signed entry about all before it
(`segments.py`).

A start takes the same time whatever the record's history (`segments.py`). What it does not read is for `fedfair
audit verify`, which reads everything. That only one process writes, and stops when it cannot, is
`append_file.py`'s business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.audit import entry as record
from fedfair.audit.append_file import AppendFile
from fedfair.audit.chain import next_chain, sign_chain
from fedfair.audit.head import Head
from fedfair.audit.items import MessageKind
from fedfair.audit.reader import RecordReader
from fedfair.audit.segments import USUAL, Rotation, earlier_path, read_present
from fedfair.errors import AuditError
from fedfair.identity.signing import format_signing_key
from fedfair.ids import AGGREGATOR

Clock = Callable[[], datetime]
"""Returns an aware time."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """The occasion of a message: one attempt at one sum, or only the connection.

    Attributes:
        purpose: of the sum.
        round: of the sum; 0 for the connection.
        attempt: of the sum; 0 for the connection.
    """

    purpose: record.Purpose
    round: int
    attempt: int


AT_CONNECTION = Occasion(record.CONNECTION, 0, 0)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The subject of a record, and its writer.

    Attributes:
        federation: its name.
        participant: whose messages are recorded.
        keeper: who writes: the participant itself, or `aggregator`.
        key: the keeper's signing key.
    """

    federation: str
    participant: str
    keeper: str
    key: Ed25519PrivateKey

    @property
    def names(self) -> tuple[str, str, str]:
        """Return federation, participant and keeper."""
        return self.federation, self.participant, self.keeper

    @property
    def public_key(self) -> str:
        """Return the keeper's public key as it stands in a plan."""
        return format_signing_key(self.key.public_key())


class Keeper:
    """One open record; `close` it at the end. One thread uses it at a time, but for `sync`.

    Args:
        path: the file; made if there is none, continued if there is.
        ownership: whose it is; a record of somebody else is refused.
        plan: digest of the plan that the messages belong to, as people see it.
        clock: tells the time.
        head: the note of how far the record has come; None for none. `close` lets it go.
        rotation: when a new file is begun.

    Raises:
        AuditError: it cannot be used, another process writes it, or it was changed or cut off meanwhile.
    """

    def __init__(
        self,
        path: Path,
        ownership: Ownership,
        plan: str,
        clock: Clock,
        head: Head | None = None,
        rotation: Rotation = USUAL,
    ) -> None:
        self._head = head
        self._rotation = rotation
        self._ownership = ownership
        self._plan = record.checked_plan(plan)
        self._clock = clock
        self._occasion: Occasion | None = None
        self._file = AppendFile(path, "an aggregator" if ownership.keeper == AGGREGATOR else "this site")
        try:
            present = read_present(self._file, head)
            found, self._segment = present.found, present.number
            _check_owner(path, found, ownership)
            self._entries, self._chain, self._unsigned = found.entries, found.chain, found.unsigned > 0
            self._messages, self._bytes = found.total.messages, found.total.bytes
            self._begun = None if found.begun is None else found.begun.time
            self._end = (self._entries, self._chain)
            if head is not None:
                head.begin(self._end)
            if present.is_missing:
                self._continue(present.length, None)
            self._open(found.tail)
        except BaseException:
            self._file.close()
            raise

    def message(self, raw: bytes, what: MessageKind, occasion: Occasion, sha256: bytes = b"") -> bool:
        """Record one message; its entry is with the operating system when this returns.

        Args:
            raw: the message as gRPC gets it.
            what: what it is.
            occasion: what it belongs to.
            sha256: its SHA-256, where it is known; empty to have it computed.

        Returns:
            Whether another sum begins, and what came before it was signed: a good moment to `sync`.

        Raises:
            AuditError: it cannot be recorded, so it must not be sent.
        """
        signed = self._unsigned and occasion != self._occasion
        if signed:
            self._sign(closing=False)
            if self._is_full():
                self._continue(self._file.length, earlier_path(self._file.path.resolve(), self._segment))
        entry, now, of = self._entries + 1, self._clock(), (occasion.purpose, occasion.round, occasion.attempt)
        digest = sha256 or hashlib.sha256(raw).digest()
        self._put(entry, now, record.message_body(entry, now, self._plan, of, what, len(raw), digest))
        self._messages, self._bytes = self._messages + 1, self._bytes + len(raw)
        self._occasion, self._unsigned = occasion, True
        return signed

    def sync(self) -> None:
        """Wait until everything written so far is on the disk; any thread may call this.

        Raises:
            AuditError: the disk fails.
        """
        end = self._end
        self._file.sync()
        if self._head is not None:
            self._head.on_disk(end)

    def close(self) -> None:
        """Sign the end, put it on the disk, and let the file go; after a failure, only let it go."""
        try:
            if self._file.usable:
                self._sign(closing=True)
                self.sync()
        finally:
            self._file.close()
            if self._head is not None:
                self._head.close()

    def _is_full(self) -> bool:
        """Return whether the present file is as long or as old as one may be."""
        terms, begun = self._rotation, self._begun
        return self._file.length >= terms.max_bytes or (begun is not None and self._at - begun >= terms.max_age)

    def _continue(self, length: int, earlier: Path | None) -> None:
        """Begin a new file, with a signed entry about those before it.

        Args:
            length: of the file before.
            earlier: the new name of the file before; None where it has that name already.
        """
        before = {"segment": self._segment + 1, "before": self._chain.hex(), "before_bytes": length}
        counted = {"messages": self._messages, "bytes": self._bytes}
        continued = record.RecordContinued.model_validate({**self._beginning(), **before, **counted})
        self._begin(continued, lambda line: self._file.begin_anew(line, earlier))
        self._segment, self._begun = continued.segment, continued.time
        if self._head is not None:
            self._head.on_disk(self._end)

    def _open(self, torn: bytes) -> None:
        stated = {"torn_bytes": len(torn), "torn_sha256": hashlib.sha256(torn).hexdigest()}
        opened = record.Opened.model_validate(self._beginning() | stated)
        before = record.TORN_END if torn else b""
        self._begin(opened, lambda line: self._file.append(before + line))

    def _beginning(self) -> dict[str, object]:
        """Return what the first entry of a process, or of a file, says of its writer."""
        federation, participant, keeper = self._ownership.names
        names = {"federation": federation, "participant": participant, "keeper": keeper}
        return {"entry": self._entries + 1, "time": self._clock(), **names, "key": self._ownership.public_key}

    def _sign(self, *, closing: bool) -> None:
        entry, now = self._entries + 1, self._clock()
        body = record.signed_body(entry, now, self._messages, self._bytes, closing=closing)
        self._put(entry, now, body, signed=True)
        self._unsigned = False

    def _begin(self, entry: record.Beginning, write: Callable[[bytes], None]) -> None:
        is_signed = isinstance(entry, record.RecordContinued)
        self._put(entry.entry, entry.time, record.body_of(entry), signed=is_signed, write=write)

    def _put(
        self,
        entry: int,
        now: datetime,
        body: bytes,
        *,
        signed: bool = False,
        write: Callable[[bytes], None] | None = None,
    ) -> None:
        """Write an entry and note that it is there.

        Args:
            entry: its number.
            now: its time.
            body: its own fields as they are spelt.
            signed: whether it carries a signature.
            write: puts a line where it belongs; by default at the end of the file.
        """
        chain = next_chain(self._chain, body)
        owner = self._ownership
        signature = sign_chain(owner.key, owner.names, chain) if signed else None
        (write or self._file.append)(record.line_of(body, chain, signature))
        self._entries, self._chain, self._at = entry, chain, now
        self._begun = self._begun or now
        self._end = (entry, chain)
        if self._head is not None:
            self._head.written(self._end)


def _check_owner(path: Path, found: RecordReader, owner: Ownership) -> None:
    """Refuse to continue the record of another participant."""
    if found.opened is None:
        return
    theirs, own = (*found.names, found.opened.key), (*owner.names, owner.public_key)
    if theirs != own:
        raise AuditError(
            f"{path} is the record of {_words(theirs)}; this one would be of {_words(own)}",
            "keep it, and name another file: `egress` in collaborator.yaml, or another folder",
        )


def _words(owner: tuple[str, str, str, str]) -> str:
    federation, participant, keeper, key = owner
    return f"{participant} of '{federation}', kept by {keeper} with the key {key}"
