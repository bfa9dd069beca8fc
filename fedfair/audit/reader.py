"""Reading a record from its first line to its last, believing nothing: the first entry that is wrong is named.

A record of several files is read in their order, and each says which one it continues. Only the process that goes
on writing begins behind a signature of its own (`resume`) and leaves what stands before it to an audit.

What a writer leaves that is killed in the middle of a line, or whose disk is full, is no entry. The process that
writes next begins with an `opened` entry that states how many such bytes stand before it, and their SHA-256; then,
and only then, they are passed over, and reported. Such an entry was never sent: a message goes out after its line
is written. Decides what a whole record is; files are `keeper.py`'s and the command's.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from fedfair.audit import entry as record
from fedfair.audit.chain import START, next_chain, verify_chain_signature
from fedfair.errors import AuditError, IdentityError
from fedfair.identity.signing import parse_signing_key

MAX_TORN_BYTES = 64 << 10
"""The most that an interrupted writer leaves. A killed process leaves less than a line; a machine that loses its
power may leave a few blocks of the disk."""

_REMEDY = "keep the file as evidence, and ask who had access to it; a record that was not touched verifies"


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes that are no entry, left by a writer that was interrupted.

    Attributes:
        after: the number of the last entry before them; 0 where there is none.
        length: how many.
        sha256: of them, in hex.
    """

    after: int
    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Messages that are counted together: all of one sum that are the same thing."""

    plan: str
    purpose: str
    round: int
    attempt: int
    what: str


@dataclass(slots=True)
class MessageTally:
    """The number of messages, and their length together."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, length: int) -> None:
        """Count more of them."""
        self.messages += messages
        self.bytes += length


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message by what two records of it have in common."""

    plan: str
    bytes: int
    sha256: str


class CutOffError(AuditError):
    """A record is shorter than it was."""


class RecordReader:
    """A record that is being read; every attribute is about what was read so far.

    Attributes:
        opened: the first entry; None before it.
        begun: the first entry of the file that was read last; None before it.
        entries: how many.
        chain: of the last entry.
        total: all messages.
        groups: the same by sum and kind.
        sent: the same one by one; equal ones are counted.
        signatures: how many signatures verified, under the key that the record states.
        unsigned: how many entries stand behind the last signature.
        closed: whether the last entry says that its process ended cleanly.
        torn: what interrupted writers left between entries.
        tail: what stands behind the last entry and is none: a writer is writing, or was interrupted.

    Args:
        checkpoints: the number and the chain value of each entry that the record must still have; None for none.
        by_sum: whether messages are counted by sum and kind too, which takes memory for every sum.
        by_message: whether they are counted one by one too, which takes memory for every message.
    """

    def __init__(
        self, *checkpoints: tuple[int, bytes] | None, by_sum: bool = True, by_message: bool = True
    ) -> None:
        self._checkpoints = {known for known in checkpoints if known is not None}
        self._by_sum, self._by_message = by_sum, by_message
        self.opened: record.Beginning | None = None
        self.begun: record.Beginning | None = None
        self.entries = 0
        self.chain = START
        self.total = MessageTally()
        self.groups: dict[MessageGroup, MessageTally] = {}
        self.sent: Counter[SentMessage] = Counter()
        self.signatures = 0
        self.unsigned = 0
        self.closed = False
        self.torn: list[Torn] = []
        self.tail = b""
        self._fault: AuditError | None = None
        self._resumed = False
        self._segment = 0
        self._length = 0
        self._earlier_length = 0

    @property
    def names(self) -> tuple[str, str, str]:
        """Return federation, participant and keeper.

        Raises:
            AuditError: nothing was read.
        """
        if self.opened is None:
            raise AuditError("the record is empty", "is it the file that a collaborator or an aggregator wrote?")
        return self.opened.names

    def read(self, *files: Iterator[bytes]) -> None:
        """Read the lines of files to their end, the earliest file first.

        Raises:
            AuditError: the first entry that is wrong, by its number.
        """
        for lines in files:
            self._begin_file()
            for line in lines:
                self._take(line)
                self._length += len(line)
        if self._fault is not None and self.tail.endswith(b"\n") and not self.tail.endswith(record.TORN_END):
            raise self._fault
        for once, _ in self._checkpoints:
            if self.entries < once:
                raise CutOffError(
                    f"the record ends with entry {self.entries}, it once had {once}: its end was cut off", _REMEDY
                )

    def resume(self, begun: record.Beginning, signed: record.RecordLine, length: int) -> None:
        """Begin behind a signed entry, and leave what stands before it to an audit.

        Args:
            begun: the first entry of the file.
            signed: the line of a later entry, `signed` or `continued`.
            length: bytes of the file up to and with that line.

        Raises:
            AuditError: the entry is not signed by the keeper that the file names.
        """
        entry = signed.entry
        if not isinstance(entry, record.Signed | record.RecordContinued) or signed.signature is None:
            raise AuditError("it has no signature")
        self._check_noted(signed)
        verify_chain_signature(begun.key, begun.names, signed.chain, signed.signature)
        self.opened = self.begun = begun
        self._segment = begun.segment
        self.entries, self.chain, self.signatures = entry.entry, signed.chain, 1
        self.total = MessageTally(entry.messages, entry.bytes)
        self.closed = isinstance(entry, record.Signed) and entry.closing
        self._length, self._resumed = length, True

    def _begin_file(self) -> None:
        """Note that a file follows; the one before it must be whole."""
        if self._resumed:
            self._resumed = False
            return
        if self._segment and (self._fault is not None or self.tail or self.unsigned):
            raise self._fault or AuditError(
                f"file {self._segment} ends with entry {self.entries}, which is not signed: its end was cut off",
                _REMEDY,
            )
        self._earlier_length, self._length = self._length, 0
        self._segment += 1

    def _take(self, line: bytes) -> None:
        # Only this writer begins a later file, so its first line must be an entry.
        is_first = self._length == 0 and self._segment > 1
        try:
            found = record.parse_line(line)
            self._check(found, is_first=is_first)
        except AuditError as fault:
            told = AuditError(f"entry {self.entries + 1} is wrong: {fault.message}", _REMEDY)
            if is_first:
                raise told from fault
            self._fault = self._fault or told
            self.tail += line
            if len(self.tail) > MAX_TORN_BYTES:
                raise self._fault from fault
        else:
            self._commit(found)

    def _check(self, found: record.RecordLine, *, is_first: bool) -> None:
        entry = found.entry
        if is_first and not isinstance(entry, record.RecordContinued):
            raise AuditError("it does not say which file it continues: a file is missing, or of another record")
        if entry.entry != self.entries + 1:
            raise AuditError(f"it has number {entry.entry}: an entry was removed, inserted or moved")
        if next_chain(self.chain, found.body) != found.chain:
            raise AuditError(
                "its chain value does not follow from it and the entry before it: one of them changed"
            )
        self._check_noted(found)
        if isinstance(entry, record.Opened):
            self._check_opened(entry)
        elif isinstance(entry, record.RecordContinued):
            self._check_continued(entry, found)
        elif self.opened is None:
            raise AuditError("the record does not begin with who writes it")
        elif self._fault is not None:
            raise AuditError("it follows what is no entry")
        elif self.closed:
            raise AuditError("it follows an entry that says that its process had ended")
        if isinstance(entry, record.Signed):
            self._check_signed(entry, found)

    def _check_noted(self, found: record.RecordLine) -> None:
        noted = self._checkpoints
        if any(number == found.entry.entry and chain != found.chain for number, chain in noted):
            raise AuditError("it is not the entry that the checkpoint tells of: the record was rewritten")

    def _check_opened(self, entry: record.Opened) -> None:
        torn = self.tail.removesuffix(record.TORN_END)
        stated = (entry.torn_bytes, entry.torn_sha256) == (len(torn), hashlib.sha256(torn).hexdigest())
        if not stated or len(self.tail) != len(torn) + len(record.TORN_END) * bool(torn):
            raise AuditError(
                f"it states {entry.torn_bytes} torn bytes before it, there are {len(torn)}, or others"
            )
        self._check_writer(entry)

    def _check_writer(self, entry: record.Beginning) -> None:
        try:
            parse_signing_key(entry.key)
        except IdentityError as error:
            raise AuditError("its key is no signing key") from error
        first = self.opened or entry
        if (entry.federation, entry.participant, entry.keeper, entry.key) != (*first.names, first.key):
            raise AuditError(f"it was opened by another writer: {entry.keeper}, for {entry.participant}")

    def _check_continued(self, entry: record.RecordContinued, found: record.RecordLine) -> None:
        if self._length or self.opened is None:
            raise AuditError(f"it begins file {entry.segment} of the record, and does not stand at its beginning")
        self._check_writer(entry)
        stated = (entry.segment, entry.before, entry.before_bytes, entry.messages, entry.bytes)
        counted = (self.total.messages, self.total.bytes)
        if stated != (self._segment, self.chain.hex(), self._earlier_length, *counted):
            raise AuditError(
                f"it continues file {entry.segment - 1} of {entry.before_bytes} bytes with other entries than the "
                "file before it has"
            )
        if found.signature is None:
            raise AuditError("it has no signature")
        verify_chain_signature(entry.key, entry.names, found.chain, found.signature)

    def _check_signed(self, entry: record.Signed, found: record.RecordLine) -> None:
        counted = (self.total.messages, self.total.bytes)
        if (entry.messages, entry.bytes) != counted:
            raise AuditError(
                f"it states {entry.messages} messages of {entry.bytes} bytes, "
                f"before it are {counted[0]} of {counted[1]}"
            )
        if self.opened is None or found.signature is None:
            raise AuditError("it has no signature")
        verify_chain_signature(self.opened.key, self.names, found.chain, found.signature)

    def _commit(self, found: record.RecordLine) -> None:
        entry = found.entry
        if isinstance(entry, record.Opened):
            self.opened = self.opened or entry
            if self.tail:
                self.torn.append(Torn(self.entries, entry.torn_bytes, entry.torn_sha256))
            self.begun = self.begun or entry
            self.tail, self._fault = b"", None
        elif isinstance(entry, record.RecordContinued):
            self.begun, self.signatures = entry, self.signatures + 1
        elif isinstance(entry, record.Message):
            self._count(entry)
        else:
            self.signatures += 1
        self.entries, self.chain = entry.entry, found.chain
        self.unsigned = 0 if isinstance(entry, record.Signed | record.RecordContinued) else self.unsigned + 1
        self.closed = isinstance(entry, record.Signed) and entry.closing

    def _count(self, entry: record.Message) -> None:
        purpose = entry.purpose if isinstance(entry.purpose, str) else entry.purpose.value
        self.total.add(1, entry.bytes)
        if self._by_sum:
            group = MessageGroup(entry.plan, purpose, entry.round, entry.attempt, entry.what.value)
            self.groups.setdefault(group, MessageTally()).add(1, entry.bytes)
        if self._by_message:
            self.sent[SentMessage(entry.plan, entry.bytes, entry.sha256)] += 1


def bounded_lines(source: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file with their ends; what is longer than any entry comes in pieces."""
    while line := source.readline(record.MAX_LINE_BYTES + 1):
        yield line
