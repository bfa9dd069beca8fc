"""Every message of the protocol: a frozen value and its bytes.

Decides layouts and caps only; whether a well-formed message is acceptable *now* is for `session`, `client` and
`server`. A message is: version, type, fields. It is encoded once, by its author; signatures cover the bytes that
travelled. The masked vector itself is not a message: it travels beside `Upload`, which carries its digest.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Protocol

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.codec import Reader, Writer
from fedfair.secagg.keys import KEM_CIPHERTEXT_BYTES, KEM_PUBLIC_BYTES, TAG_BYTES, X25519_BYTES
from fedfair.secagg.params import MAX_MEMBERS, RING_BITS, Mode, SessionTerms, Suite
from fedfair.secagg.sealing import envelope_bytes
from fedfair.secagg.shamir import SHARE_BYTES
from fedfair.secagg.signing import SIGNATURE_BYTES
from fedfair.secagg.transcript import DIGEST_BYTES, digest, indices, u16

VERSION = 1
NONCE_BYTES = 32
MAX_PURPOSE_BYTES = 40
MAX_GROUPS = 4096
MAX_PUBLIC_KEY_BYTES = X25519_BYTES + KEM_PUBLIC_BYTES
MAX_MESSAGE_BYTES = 1 << 21
"""Enough for the envelopes of 200 members (199 of 6416 bytes); anything longer is refused unread."""


class Kind(enum.IntEnum):
    """Types of messages, as they travel."""

    PROPOSAL = 1
    ADVERT = 2
    ADVERTS = 3
    CONFIRM = 4
    CONFIRMS = 5
    ROUND_START = 6
    UPLOAD = 7
    SURVIVORS = 8
    VOTE = 9
    OPEN = 10
    ANSWER = 11


class Message(Protocol):
    """What all messages can do."""

    def encode(self) -> bytes:
        """Return the bytes that travel."""


Pairs = tuple[tuple[int, bytes], ...]


def kind_of(raw: bytes) -> Kind:
    """Return what kind of message `raw` claims to be.

    Raises:
        SecaggError: ENCODING: no version 1 message, or longer than any.
    """
    require(len(raw) <= MAX_MESSAGE_BYTES, Check.ENCODING, f"a message of {len(raw)} bytes is longer than any")
    require(len(raw) >= 2 and raw[0] == VERSION, Check.ENCODING, "not a message of secure aggregation version 1")
    try:
        return Kind(raw[1])
    except ValueError as error:
        raise SecaggError(Check.ENCODING, f"no message has type {raw[1]}") from error


def _begin(kind: Kind) -> Writer:
    return Writer().number(VERSION, 1).number(kind, 1)


def _open(raw: bytes, kind: Kind) -> Reader:
    found = kind_of(raw)
    require(found is kind, Check.ENCODING, f"a message of type {found.name} where {kind.name} is due")
    reader = Reader(raw, kind.name.lower().replace("_", " "))
    reader.fixed(2)
    return reader


@dataclass(frozen=True, slots=True)
class Proposal:
    """Aggregator to all: let us agree on keys under these terms."""

    terms: SessionTerms
    roster_digest: bytes
    layout_digest: bytes
    nonce: bytes

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        terms = self.terms
        writer = _begin(Kind.PROPOSAL).number(terms.mode is Mode.MALICIOUS, 1).number(terms.suite.value, 1)
        writer.number(terms.colluders, 2).number(terms.threshold, 2).number(terms.ring_bits, 1)
        writer.number(terms.greatest_weight, 8)
        return writer.fixed(self.roster_digest).fixed(self.layout_digest).fixed(self.nonce).done()

    @classmethod
    def decode(cls, raw: bytes) -> Proposal:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.PROPOSAL)
        mode, suite = reader.number(1), reader.number(1)
        if mode > 1 or suite not in (1, 2):
            raise reader.refuse(f"mode {mode} and suite {suite}")
        terms = SessionTerms(
            mode=Mode.MALICIOUS if mode else Mode.SEMI_HONEST,
            suite=Suite(suite),
            colluders=reader.number(2),
            threshold=reader.number(2),
            ring_bits=reader.number(1),
            greatest_weight=reader.number(8),
        )
        if terms.ring_bits not in RING_BITS:
            raise reader.refuse(f"a ring of {terms.ring_bits} bits")
        message = cls(terms, reader.fixed(DIGEST_BYTES), reader.fixed(DIGEST_BYTES), reader.fixed(NONCE_BYTES))
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Advert:
    """Member to all: my public key for this proposal, signed with my pinned key."""

    member: int
    public_key: bytes
    nonce: bytes
    signature: bytes

    def signed_fields(self, proposal: bytes) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        return (digest("proposal", proposal), u16(self.member), self.public_key, self.nonce)

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = _begin(Kind.ADVERT).number(self.member, 2).sized(self.public_key)
        return writer.fixed(self.nonce).fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> Advert:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.ADVERT)
        message = cls(
            reader.number(2),
            reader.sized(MAX_PUBLIC_KEY_BYTES),
            reader.fixed(NONCE_BYTES),
            reader.fixed(SIGNATURE_BYTES),
        )
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Adverts:
    """Aggregator to all: every advert, byte for byte, by roster index."""

    adverts: Pairs

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return _begin(Kind.ADVERTS).by_member(self.adverts).done()

    @classmethod
    def decode(cls, raw: bytes) -> Adverts:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.ADVERTS)
        message = cls(reader.by_member(MAX_PUBLIC_KEY_BYTES + 256))
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Confirm:
    """Member to all: I am in exactly this session.

    In a hybrid session it also carries an ML-KEM ciphertext for every later member. The signature covers their
    digests, so the aggregator can forward to each member only what was sealed for it.
    """

    member: int
    session_id: bytes
    sealed: Pairs
    ciphertexts: Pairs
    signature: bytes

    def signed_fields(self) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        carried = [part for peer, found in self.sealed for part in (u16(peer), found)]
        return (self.session_id, u16(self.member), digest("sealed", *carried))

    def only_for(self, receiver: int) -> Confirm:
        """Return the same confirm without what was sealed for others."""
        kept = tuple((peer, ciphertext) for peer, ciphertext in self.ciphertexts if peer == receiver)
        return replace(self, ciphertexts=kept)

    def ciphertext_for(self, receiver: int) -> bytes:
        """Return what was sealed for `receiver`, checked against its signed digest; empty where nothing was."""
        ciphertext = dict(self.ciphertexts).get(receiver, b"")
        expected = dict(self.sealed).get(receiver, b"")
        intact = (digest("sealed", ciphertext) if ciphertext else b"") == expected
        require(intact, Check.CONFIRM, f"what member {self.member} sealed for member {receiver} was altered")
        return ciphertext

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = _begin(Kind.CONFIRM).number(self.member, 2).fixed(self.session_id)
        return writer.by_member(self.sealed).by_member(self.ciphertexts).fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> Confirm:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.CONFIRM)
        message = cls(
            reader.number(2),
            reader.fixed(DIGEST_BYTES),
            reader.by_member(DIGEST_BYTES),
            reader.by_member(KEM_CIPHERTEXT_BYTES),
            reader.fixed(SIGNATURE_BYTES),
        )
        if any(len(ciphertext) != KEM_CIPHERTEXT_BYTES for _, ciphertext in message.ciphertexts):
            raise reader.refuse("a ciphertext of the wrong length")
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Confirms:
    """Aggregator to one member: the confirms of the others, with what was sealed for this member."""

    session_id: bytes
    confirms: Pairs

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return _begin(Kind.CONFIRMS).fixed(self.session_id).by_member(self.confirms).done()

    @classmethod
    def decode(cls, raw: bytes) -> Confirms:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.CONFIRMS)
        message = cls(reader.fixed(DIGEST_BYTES), reader.by_member(MAX_MESSAGE_BYTES))
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class RoundStart:
    """Aggregator to the cohort: contribute to this sum."""

    session_id: bytes
    round: int
    purpose: str
    cohort: tuple[int, ...]
    threshold: int
    model_digest: bytes
    clips: tuple[float, ...]

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = _begin(Kind.ROUND_START).fixed(self.session_id).number(self.round, 8)
        writer.sized(self.purpose.encode("ascii")).members(self.cohort).number(self.threshold, 2)
        writer.fixed(self.model_digest).number(len(self.clips), 2)
        for clip in self.clips:
            writer.real(clip)
        return writer.done()

    @classmethod
    def decode(cls, raw: bytes) -> RoundStart:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.ROUND_START)
        head = (reader.fixed(DIGEST_BYTES), reader.number(8), reader.text(MAX_PURPOSE_BYTES))
        body = (reader.members(), reader.number(2), reader.fixed(DIGEST_BYTES))
        groups = reader.number(2)
        if groups > MAX_GROUPS:
            raise reader.refuse(f"{groups} clips")
        message = cls(*head, *body, tuple(reader.real() for _ in range(groups)))
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Upload:
    """Member to aggregator: beside the masked vector, all that makes its masks recoverable by enough members."""

    transcript: bytes
    member: int
    vector_digest: bytes
    commitment: bytes
    tags: Pairs
    envelopes: Pairs
    signature: bytes

    def signed_fields(self) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        tags = digest("tags", *(part for peer, tag in self.tags for part in (u16(peer), tag)))
        sealed = digest("envelopes", *(part for peer, box in self.envelopes for part in (u16(peer), box)))
        return (self.transcript, u16(self.member), self.vector_digest, self.commitment, tags, sealed)

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = _begin(Kind.UPLOAD).fixed(self.transcript).number(self.member, 2).fixed(self.vector_digest)
        writer.fixed(self.commitment).by_member(self.tags).by_member(self.envelopes)
        return writer.fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> Upload:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.UPLOAD)
        message = cls(
            reader.fixed(DIGEST_BYTES),
            reader.number(2),
            reader.fixed(DIGEST_BYTES),
            reader.fixed(DIGEST_BYTES),
            reader.by_member(TAG_BYTES),
            reader.by_member(envelope_bytes(MAX_MEMBERS)),
            reader.fixed(SIGNATURE_BYTES),
        )
        if any(len(tag) != TAG_BYTES for _, tag in message.tags):
            raise reader.refuse("a tag of the wrong length")
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Survivors:
    """Aggregator to the survivors: these have contributed; vote."""

    transcript: bytes
    survivors: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return _begin(Kind.SURVIVORS).fixed(self.transcript).members(self.survivors).done()

    @classmethod
    def decode(cls, raw: bytes) -> Survivors:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.SURVIVORS)
        message = cls(reader.fixed(DIGEST_BYTES), reader.members())
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Vote:
    """Member to aggregator: my one vote of this round is for this set."""

    transcript: bytes
    member: int
    survivors: tuple[int, ...]
    signature: bytes

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = _begin(Kind.VOTE).fixed(self.transcript).number(self.member, 2).members(self.survivors)
        return writer.fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> Vote:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.VOTE)
        message = cls(
            reader.fixed(DIGEST_BYTES), reader.number(2), reader.members(), reader.fixed(SIGNATURE_BYTES)
        )
        reader.end()
        return message


def vote_fields(transcript: bytes, survivors: tuple[int, ...], member: int) -> tuple[bytes, ...]:
    """Return what a vote's signature covers."""
    return (transcript, indices(survivors), u16(member))


@dataclass(frozen=True, slots=True)
class Open:
    """Aggregator to one survivor: open the masks of this set; here are the envelopes for you.

    `votes` holds the signatures of voters; it is empty where the whole cohort survived or the session is
    semi-honest.
    """

    transcript: bytes
    survivors: tuple[int, ...]
    votes: Pairs
    envelopes: Pairs

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = _begin(Kind.OPEN).fixed(self.transcript).members(self.survivors)
        return writer.by_member(self.votes).by_member(self.envelopes).done()

    @classmethod
    def decode(cls, raw: bytes) -> Open:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.OPEN)
        message = cls(
            reader.fixed(DIGEST_BYTES),
            reader.members(),
            reader.by_member(SIGNATURE_BYTES),
            reader.by_member(envelope_bytes(MAX_MEMBERS)),
        )
        if any(len(vote) != SIGNATURE_BYTES for _, vote in message.votes):
            raise reader.refuse("a vote of the wrong length")
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Answer:
    """Member to aggregator: my shares, for each survivor: of its own mask, then of its masks with the dropped."""

    transcript: bytes
    member: int
    survivors: tuple[int, ...]
    shares: Pairs

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = _begin(Kind.ANSWER).fixed(self.transcript).number(self.member, 2)
        return writer.members(self.survivors).by_member(self.shares).done()

    @classmethod
    def decode(cls, raw: bytes) -> Answer:
        """Return the message, or refuse it."""
        reader = _open(raw, Kind.ANSWER)
        message = cls(
            reader.fixed(DIGEST_BYTES),
            reader.number(2),
            reader.members(),
            reader.by_member(SHARE_BYTES * MAX_MEMBERS),
        )
        reader.end()
        return message
