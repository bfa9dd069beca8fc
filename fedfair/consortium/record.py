"""The record of all acts: a chain that the hub writes and every member can check.

    {"act": "<the act's own text>", "number": 7, "previous": "sha256:...", "signature": "<base64>"}

One line each, in one spelling. `previous` is the SHA-256 of the entry before, as it is written, without its line
end; 32 zeros for entry 1, which is the first list of members. The hub signs the label, the federation, the number,
`previous` and the act, so it can be held to every past that it has shown. Whoever follows keeps what it has
verified, and asks for what comes after:

    record = ActRecord(known=consortium)                     # what this member took from the lead by hand
    for raw in await hub.acts(since=record.number): record.extend(raw)
    record.check_includes(entry_that_the_hub_gave_for_my_act)          # acknowledged, so it has to be there
    record.studies["stroke-2"].phase

An entry is taken whole or not at all, after every check; what refuses it says by which (`faults.RecordCheck`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.consortium.acts import MAX_BYTES as MAX_ACT_BYTES
from fedfair.consortium.acts import NO_ENTRY, Act, ActKind, parse_act, verify_act
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.members import Consortium, Right, parse_consortium
from fedfair.consortium.studies import ConsortiumStudy, follow, without_members
from fedfair.errors import FedfairError, IdentityError
from fedfair.identity.signing import decode_base64
from fedfair.ids import FederationName
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.signed_message import labelled_message

LABEL = "fedfair/record-entry/v1"
MAX_BYTES = 2 * MAX_ACT_BYTES
"""Of one entry; an act is written in it once more, with its quotes escaped."""

_OTHER_PAST = (
    "do not go on: compare the record with another member (`fedfair study record`) and ask the lead; the hub was "
    "set up anew, restored from an older copy, or lies"
)


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One entry.

    Attributes:
        number: from 1.
        previous: SHA-256 of the entry before, 32 bytes.
        act_bytes: the signed act.
        signature: the hub's, 64 bytes.
        act: the same act, parsed.
        digest: SHA-256 of this entry, 32 bytes.
    """

    number: int
    previous: bytes
    act_bytes: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    act: Act
    digest: bytes


def sign_entry(
    number: int, previous: bytes, act: bytes, federation: FederationName, hub_key: Ed25519PrivateKey
) -> bytes:
    """Return the bytes of an entry, without a line end.

    Args:
        number: of the entry, from 1.
        previous: SHA-256 of the entry before, 32 bytes; zeros for the first.
        act: a signed act.
        federation: of the record.
        hub_key: the hub's signing key.
    """
    signature = hub_key.sign(_message(federation, number, previous, act))
    return _written(number, previous, act, signature)


def parse_entry(raw: bytes) -> RecordEntry:
    """Return the entry that bytes say, which may still be signed by anybody.

    Raises:
        ConsortiumError: they are not the one spelling of an entry.
    """
    if len(raw) > MAX_BYTES:
        raise _malformed(f"it has {len(raw)} bytes, at most {MAX_BYTES}")
    try:
        values = json.loads(raw.decode("ascii"))
        if not isinstance(values, dict) or values.keys() != {"act", "number", "previous", "signature"}:
            raise _malformed("it has other fields")
        act, number = values["act"].encode("ascii"), values["number"]
        previous, signature = parse_digest(values["previous"]), decode_base64(values["signature"], "the signature")
    except (ValueError, RecursionError, AttributeError, TypeError, IdentityError) as error:
        raise _malformed("it is not JSON, or a value is of another type") from error
    except ConsortiumError:
        raise
    except FedfairError as error:
        raise _malformed(error.message) from error
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number < 2**53:
        raise _malformed("its number is none")
    if _written(number, previous, act, signature) != raw:
        raise _malformed("it is not in its one spelling")
    return RecordEntry(number, previous, act, signature, parse_act(act), hashlib.sha256(raw).digest())


class ActRecord:
    """A verified record, and what follows from it.

    Args:
        known: a list of members that this side took by hand and holds the record to; None at the hub, which reads
            its own record.

    Attributes:
        studies: all studies by name, in the order in which they were submitted.
    """

    def __init__(self, known: Consortium | None = None) -> None:
        self._known = known
        self._consortium: Consortium | None = None
        self._digests: list[bytes] = []
        self._acts: set[bytes] = set()
        self._studies: dict[str, ConsortiumStudy] = {}

    @property
    def number(self) -> int:
        """How many entries there are."""
        return len(self._digests)

    @property
    def head(self) -> tuple[int, bytes]:
        """Number and digest of the newest entry; `acts.NO_ENTRY` where there is none."""
        return (self.number, self._digests[-1]) if self._digests else NO_ENTRY

    @property
    def consortium(self) -> Consortium:
        """The present members: of the record, or what was taken by hand where that is later.

        Raises:
            ConsortiumError: neither exists yet.
        """
        known, present = self._known, self._consortium
        if present is None or (known is not None and known.number > present.number):
            present = known
        if present is None:
            raise ConsortiumError(
                RecordCheck.MEMBERS,
                "the record has no list of members yet",
                "the hub's operator runs `fedfair hub create`",
            )
        return present

    @property
    def studies(self) -> Mapping[str, ConsortiumStudy]:
        """All studies by name, in the order in which they were submitted."""
        return MappingProxyType(self._studies)

    def digest_of(self, number: int) -> bytes:
        """Return the SHA-256 of an entry, 32 bytes.

        Args:
            number: from 1 to `number`.
        """
        return self._digests[number - 1]

    def extend(self, raw: bytes, keep: Callable[[bytes], None] = lambda _: None) -> RecordEntry:
        """Take the next entry, after every check, and return it.

        Args:
            raw: the entry.
            keep: called with it after the checks; where it raises, the record is as it was.

        Raises:
            ConsortiumError: a check refuses it; the record is as it was.
        """
        entry = parse_entry(raw)
        self._check_place(entry)
        consortium = self._consortium_after(entry)
        signer = (self._consortium or consortium).hub
        _check_signature(entry, signer.public_key, consortium.federation)
        studies = self._after(entry.act_bytes, entry.act, entry.number, consortium)
        keep(raw)
        self._digests.append(entry.digest)
        self._acts.add(hashlib.sha256(entry.act_bytes).digest())
        self._consortium, self._studies = consortium, studies
        return entry

    def extend_all(self, entries: Iterable[bytes]) -> None:
        """Take entries in their order; those before a refused one stay.

        Raises:
            ConsortiumError: a check refuses one.
        """
        for raw in entries:
            self.extend(raw)

    def check_act(self, raw: bytes) -> Act:
        """Return an act that may come next; what the hub asks of each before it writes it.

        Raises:
            ConsortiumError: a check refuses it.
        """
        act = parse_act(raw)
        consortium = self._members_after(act)
        self._after(raw, act, self.number + 1, consortium)
        return act

    def check_includes(self, entry: bytes) -> RecordEntry:
        """Return an entry that the hub gave as the answer to an act, after a look whether the record has it.

        Raises:
            ConsortiumError: it has another one in its place, or none.
        """
        given = parse_entry(entry)
        if given.number > self.number:
            raise ConsortiumError(
                RecordCheck.LEFT_OUT,
                f"the hub acknowledged entry {given.number}, and shows a record of {self.number} entries",
                _OTHER_PAST,
            )
        self._check_seen(given.number, given.digest, "an entry that the hub acknowledged")
        return given

    def _check_place(self, entry: RecordEntry) -> None:
        if entry.number != self.number + 1:
            raise ConsortiumError(
                RecordCheck.NUMBER,
                f"entry {entry.number} comes after entry {self.number}: one is left out, or comes twice",
                _OTHER_PAST,
            )
        if entry.previous != self.head[1]:
            raise ConsortiumError(
                RecordCheck.CHAIN,
                f"entry {entry.number} follows another entry {self.number} than the one that is known here",
                _OTHER_PAST,
            )

    def _consortium_after(self, entry: RecordEntry) -> Consortium:
        consortium = self._members_after(entry.act)
        known = self._known
        if known is not None and consortium is not self._consortium and self._contradicts(consortium, known):
            raise ConsortiumError(
                RecordCheck.MEMBERS,
                f"the record's list {consortium.number} of members is not the one that the lead gave by hand",
                _OTHER_PAST,
            )
        return consortium

    def _contradicts(self, found: Consortium, known: Consortium) -> bool:
        before = 0 if self._consortium is None else self._consortium.number
        if found.federation != known.federation:
            return True
        if found.number == known.number:
            return found.raw != known.raw
        return before < known.number < found.number

    def _members_after(self, act: Act) -> Consortium:
        """Return the members after an act, whose author and signature were verified."""
        present = self._consortium
        if act.kind is not ActKind.MEMBERS:
            if present is None:
                raise ConsortiumError(
                    RecordCheck.MEMBERS, "the record does not begin with a list of members", _OTHER_PAST
                )
            self._check_author(act, present)
            return present
        if present is not None:
            self._check_author(act, present)
        try:
            found = parse_consortium(act.payload, signed_by=None if present is None else present.lead)
        except ConsortiumError:
            raise
        except FedfairError as error:
            raise ConsortiumError(RecordCheck.PAYLOAD, error.message, error.remedy) from error
        if present is None:
            self._check_author(act, found)
        else:
            found.check_follows(present)
        return found

    @staticmethod
    def _check_author(act: Act, consortium: Consortium) -> None:
        if act.federation != consortium.federation:
            raise ConsortiumError(
                RecordCheck.FEDERATION,
                f"an act in {act.federation} is none in {consortium.federation}",
                "ask the lead",
            )
        author = consortium.member(act.by)
        if act.kind is ActKind.MEMBERS and not author.may(Right.CHANGE_MEMBERS):
            raise ConsortiumError(
                RecordCheck.ROLE,
                f"{author.name} ({author.role.value}) may not {Right.CHANGE_MEMBERS.value}",
                "the lead does it",
            )

    def _after(self, raw: bytes, act: Act, number: int, consortium: Consortium) -> dict[str, ConsortiumStudy]:
        """Return the studies after an act that may stand at `number`."""
        before = self._consortium or consortium
        verify_act(raw, before.member(act.by).public_key)
        if hashlib.sha256(raw).digest() in self._acts:
            raise ConsortiumError(
                RecordCheck.REPLAY,
                f"this act of {act.by} is in the record already",
                "it has had its effect: do nothing",
            )
        self._check_seen(*act.seen, f"what {act.by} had seen")
        if act.kind is ActKind.MEMBERS:
            return without_members(self._studies, consortium)
        study = follow(self._studies, act, number, consortium)
        return {**self._studies, study.name: study}

    def _check_seen(self, number: int, digest: bytes, whose: str) -> None:
        known = bytes(32) if not number else self._digests[number - 1] if number <= self.number else None
        if known != digest:
            raise ConsortiumError(
                RecordCheck.PAST,
                f"{whose}, entry {number} of {format_digest(digest)}, is not in this record: there are two pasts",
                _OTHER_PAST,
            )


def _check_signature(entry: RecordEntry, hub_key: Ed25519PublicKey, federation: FederationName) -> None:
    try:
        hub_key.verify(entry.signature, _message(federation, entry.number, entry.previous, entry.act_bytes))
    except InvalidSignature as error:
        raise ConsortiumError(
            RecordCheck.SIGNATURE,
            f"entry {entry.number} of the record is not signed with the hub's key",
            "ask the lead whether the hub has a new key",
        ) from error


def _message(federation: FederationName, number: int, previous: bytes, act: bytes) -> bytes:
    return labelled_message(LABEL, [federation.encode("ascii"), number.to_bytes(8, "big"), previous, act])


def _written(number: int, previous: bytes, act: bytes, signature: bytes) -> bytes:
    values = {
        "act": act.decode("ascii"),
        "number": number,
        "previous": format_digest(previous),
        "signature": base64.b64encode(signature).decode("ascii"),
    }
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")


def _malformed(reason: str) -> ConsortiumError:
    return ConsortiumError(RecordCheck.FORM, f"this is no entry of a record: {reason}", "is it a fedfair hub?")
