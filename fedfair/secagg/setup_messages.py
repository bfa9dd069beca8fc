"""The messages of a session's set-up: proposal, key advertisements, confirms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedfair.secagg.check_seed import SEALED_SEED_BYTES
from fedfair.secagg.checks import Check, require
from fedfair.secagg.codec import MessageWriter
from fedfair.secagg.keys import KEM_CIPHERTEXT_BYTES, KEM_PUBLIC_BYTES, X25519_BYTES
from fedfair.secagg.messages import MAX_MESSAGE_BYTES, Kind, Pairs, begin, open_message
from fedfair.secagg.params import RING_BITS, Mode, SessionTerms, Suite
from fedfair.secagg.signing import SIGNATURE_BYTES
from fedfair.secagg.transcript import DIGEST_BYTES, digest, digest_by_member, u16

NONCE_BYTES = 32
MAX_PUBLIC_KEY_BYTES = X25519_BYTES + KEM_PUBLIC_BYTES


@dataclass(frozen=True, slots=True)
class Proposal:
    """Aggregator to all: let us agree on keys under these terms, for this plan.

    The name of the session is a digest of the proposal's bytes, so members of one session have approved one plan.
    """

    terms: SessionTerms
    plan_digest: bytes
    roster_digest: bytes
    layout_digest: bytes
    nonce: bytes

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        terms = self.terms
        writer = begin(Kind.PROPOSAL).number(terms.mode is Mode.MALICIOUS, 1).number(terms.suite.value, 1)
        writer.number(terms.colluders, 2).number(terms.threshold, 2).number(terms.ring_bits, 1)
        writer.number(terms.greatest_weight, 8).number(terms.check_sums, 1).number(terms.neighbours, 2)
        writer.fixed(self.plan_digest).fixed(self.roster_digest).fixed(self.layout_digest)
        return writer.fixed(self.nonce).done()

    @classmethod
    def decode(cls, raw: bytes) -> Proposal:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.PROPOSAL)
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
            check_sums=reader.flag(),
            neighbours=reader.number(2),
        )
        if terms.ring_bits not in RING_BITS:
            raise reader.refuse(f"a ring of {terms.ring_bits} bits")
        plan, roster, layout = (reader.fixed(DIGEST_BYTES) for _ in range(3))
        message = cls(terms, plan, roster, layout, reader.fixed(NONCE_BYTES))
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class KeyAdvertisement:
    """Member to all: my public key for this proposal, signed with my pinned key.

    With it come a commitment to my check seed and the digest of the state of the run that I hold. Where sessions
    may have a sparse graph, `nonce` is the commitment to another one, which follows in `Reveal` if I am drawn.
    """

    member: int
    public_key: bytes
    nonce: bytes
    seed_commitment: bytes
    state_digest: bytes
    signature: bytes

    @property
    def advertised(self) -> tuple[bytes, ...]:
        """Return what the digest of all members, and so the name of the session, is bound to."""
        return (self.public_key, self.nonce, self.seed_commitment, self.state_digest)

    @property
    def agreement_key(self) -> bytes:
        """Return the X25519 part of the public key."""
        return self.public_key[:X25519_BYTES]

    def signed_fields(self, proposal: bytes) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        return (digest("proposal", proposal), u16(self.member), *self.advertised)

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = begin(Kind.KEY_ADVERTISEMENT).number(self.member, 2).sized(self.public_key)
        writer.fixed(self.nonce).fixed(self.seed_commitment).fixed(self.state_digest)
        return writer.fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> KeyAdvertisement:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.KEY_ADVERTISEMENT)
        message = cls(
            reader.number(2),
            reader.sized(MAX_PUBLIC_KEY_BYTES),
            reader.fixed(NONCE_BYTES),
            reader.fixed(DIGEST_BYTES),
            reader.fixed(DIGEST_BYTES),
            reader.fixed(SIGNATURE_BYTES),
        )
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class MemberList:
    """Aggregator to whoever draws the order of a sparse graph: these have advertised keys, you among them.

    `proof` goes with this member's own advertisement, and gives the digest of all advertisements (`member_tree`).
    """

    members: tuple[int, ...]
    proof: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return begin(Kind.MEMBER_LIST).member_set(self.members).digests(self.proof).done()

    @classmethod
    def decode(cls, raw: bytes) -> MemberList:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.MEMBER_LIST)
        message = cls(reader.member_set(), reader.digests())
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Reveal:
    """Member to aggregator: no key can be advertised in this session any more; here is the nonce that I promised.

    Each member signs this for one session of a set-up.
    """

    member: int
    session_id: bytes
    nonce: bytes
    signature: bytes

    @property
    def signed_nonce(self) -> bytes:
        """Return what all members receive of it."""
        return self.nonce + self.signature

    def signed_fields(self) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        return (self.session_id, u16(self.member), self.nonce)

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = begin(Kind.REVEAL).number(self.member, 2).fixed(self.session_id)
        return writer.fixed(self.nonce).fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> Reveal:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.REVEAL)
        head = reader.number(2), reader.fixed(DIGEST_BYTES)
        message = cls(*head, reader.fixed(NONCE_BYTES), reader.fixed(SIGNATURE_BYTES))
        reader.end()
        return message

    @classmethod
    def forwarded(cls, member: int, session_id: bytes, signed_nonce: bytes) -> Reveal:
        """Return what a member has revealed in a session, from the nonce and the signature that travel further."""
        return cls(member, session_id, signed_nonce[:NONCE_BYTES], signed_nonce[NONCE_BYTES:])


@dataclass(frozen=True, slots=True)
class KeyAdvertisements:
    """Aggregator to one member: who has advertised keys, and the advertisements that this member needs.

    They travel byte for byte. With `proof` they give the digest of all advertisements (`member_tree`), which all
    members of a session have in common. In a sparse graph `nonces` are those that its order was drawn with, each
    followed by its owner's signature; in a complete one there is none, and all advertisements are here.
    """

    members: tuple[int, ...]
    adverts: Pairs
    proof: tuple[bytes, ...] = ()
    nonces: Pairs = ()

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = begin(Kind.KEY_ADVERTISEMENTS).member_set(self.members).by_member(self.adverts)
        return writer.digests(self.proof).by_member(self.nonces).done()

    @classmethod
    def decode(cls, raw: bytes) -> KeyAdvertisements:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.KEY_ADVERTISEMENTS)
        head = reader.member_set(), reader.by_member(MAX_PUBLIC_KEY_BYTES + 256)
        message = cls(*head, reader.digests(), reader.by_member(NONCE_BYTES + SIGNATURE_BYTES))
        if any(len(nonce) != NONCE_BYTES + SIGNATURE_BYTES for _, nonce in message.nonces):
            raise reader.refuse("a nonce of the wrong length")
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Confirm:
    """Member to all: I am in exactly this session.

    It carries a ciphertext for every other member; in a sparse graph for my neighbours, or for all others if I
    deal. That is my check seed, sealed; in a hybrid session, before it, the ML-KEM ciphertext for a later member
    or neighbour. The signature covers one digest of them all, which the aggregator checks, and with which it can
    show later that it forwarded what this member had signed. It forwards to each member only what was sealed for
    it; that member sees by opening it that nobody else made it (`check_seed`).
    """

    member: int
    session_id: bytes
    sealed_digest: bytes
    ciphertexts: Pairs
    signature: bytes

    def signed_fields(self) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        return (self.session_id, u16(self.member), self.sealed_digest)

    def forwarding(self) -> Callable[[int], bytes]:
        """Return a function of a roster index: the bytes of this confirm without what was sealed for others."""
        head, carried = self._head().done(), dict(self.ciphertexts)

        def forwarded(receiver: int) -> bytes:
            kept = ((receiver, carried[receiver]),) if receiver in carried else ()
            return MessageWriter().fixed(head).by_member(kept).fixed(self.signature).done()

        return forwarded

    def ciphertext_for(self, receiver: int) -> bytes:
        """Return what was sealed for the member with this roster index; empty where nothing was."""
        return dict(self.ciphertexts).get(receiver, b"")

    def check_sealed(self, lengths: Mapping[int, int], author: str) -> None:
        """Refuse a confirm that does not carry one signed ciphertext for each of its receivers and nobody else.

        Args:
            lengths: bytes of the ciphertext for each receiver, by roster index, increasing.
            author: the member's name, for the message.

        Raises:
            SecaggError: CONFIRM.
        """
        receivers, expected = [receiver for receiver, _ in self.ciphertexts], list(lengths)
        require(
            receivers == expected,
            Check.CONFIRM,
            f"{author} confirms with ciphertexts for the members {receivers}, due are {expected}",
        )
        for receiver, ciphertext in self.ciphertexts:
            words = f"{author} sealed {len(ciphertext)} bytes for member {receiver}, due are {lengths[receiver]}"
            require(len(ciphertext) == lengths[receiver], Check.CONFIRM, words)
        signed = sealed_digest(self.ciphertexts) == self.sealed_digest
        require(signed, Check.CONFIRM, f"{author} signed other ciphertexts than it sent")

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return self._head().by_member(self.ciphertexts).fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> Confirm:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.CONFIRM)
        message = cls(
            reader.number(2),
            reader.fixed(DIGEST_BYTES),
            reader.fixed(DIGEST_BYTES),
            reader.by_member(KEM_CIPHERTEXT_BYTES + SEALED_SEED_BYTES),
            reader.fixed(SIGNATURE_BYTES),
        )
        lengths = (SEALED_SEED_BYTES, KEM_CIPHERTEXT_BYTES + SEALED_SEED_BYTES)
        if any(len(ciphertext) not in lengths for _, ciphertext in message.ciphertexts):
            raise reader.refuse("a ciphertext of the wrong length")
        reader.end()
        return message

    def _head(self) -> MessageWriter:
        writer = begin(Kind.CONFIRM).number(self.member, 2).fixed(self.session_id)
        return writer.fixed(self.sealed_digest)


def sealed_digest(ciphertexts: Pairs) -> bytes:
    """Return the digest (32 bytes) of everything that a confirm carries, by roster index."""
    return digest_by_member("sealed", ciphertexts)


@dataclass(frozen=True, slots=True)
class Confirms:
    """Aggregator to one member: the confirms of the others, with what was sealed for this member."""

    session_id: bytes
    confirms: Pairs

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return begin(Kind.CONFIRMS).fixed(self.session_id).by_member(self.confirms).done()

    @classmethod
    def decode(cls, raw: bytes) -> Confirms:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.CONFIRMS)
        message = cls(reader.fixed(DIGEST_BYTES), reader.by_member(MAX_MESSAGE_BYTES))
        reader.end()
        return message
