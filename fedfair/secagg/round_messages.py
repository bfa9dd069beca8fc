"""The messages of a round, from its start over masks with the missing, votes and shares to the opened sum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedfair.secagg.keys import TAG_BYTES
from fedfair.secagg.messages import Kind, Pairs, begin, open_message
from fedfair.secagg.sealing import ENVELOPE_BYTES, SHARE_DIGEST_BYTES
from fedfair.secagg.shamir import SECRET_BYTES, SHARE_BYTES
from fedfair.secagg.shape import MAX_MASKED_HEADER_VALUES
from fedfair.secagg.signing import SIGNATURE_BYTES
from fedfair.secagg.transcript import DIGEST_BYTES, RoundSubject, digest_by_member, indices, u16

MAX_PURPOSE_BYTES = 40
MAX_GROUPS = 4096


@dataclass(frozen=True)
class RoundStart:
    """Aggregator to the cohort: contribute to this sum."""

    session_id: bytes
    round: int
    purpose: str
    cohort: tuple[int, ...]
    threshold: int
    subject: RoundSubject
    clips: tuple[float, ...]

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        writer = begin(Kind.ROUND_START).fixed(self.session_id).number(self.round, 8)
        writer.sized(self.purpose.encode("ascii")).member_set(self.cohort).number(self.threshold, 2)
        writer.fixed(self.subject.state_digest).fixed(self.subject.request_digest).number(len(self.clips), 2)
        for clip in self.clips:
            writer.real(clip)
        return writer.done()

    @classmethod
    def decode(cls, raw: bytes) -> RoundStart:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.ROUND_START)
        head = (reader.fixed(DIGEST_BYTES), reader.number(8), reader.text(MAX_PURPOSE_BYTES))
        body = (reader.member_set(), reader.number(2))
        subject = RoundSubject(reader.fixed(DIGEST_BYTES), reader.fixed(DIGEST_BYTES))
        groups = reader.number(2)
        if groups > MAX_GROUPS:
            raise reader.refuse(f"{groups} clips")
        message = cls(*head, *body, subject, tuple(reader.real() for _ in range(groups)))
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Upload:
    """Member to aggregator: beside the masked vector, all that makes its own mask recoverable by enough members.

    `share_digests` has, for each member of the cohort, the digest of the share that it holds: a member that
    answers with another share than it was given is known at once. The masks that members share cancel; those with
    members who vanish follow in `PairMasks`, if it comes to that.
    """

    transcript: bytes
    member: int
    vector_digest: bytes
    commitment: bytes
    tags: Pairs
    envelopes: Pairs
    share_digests: Pairs
    signature: bytes

    def signed_fields(self) -> tuple[bytes, ...]:
        """Return what the signature covers."""
        carried = (("tags", self.tags), ("envelopes", self.envelopes), ("share digests", self.share_digests))
        digests = (digest_by_member(label, pairs) for label, pairs in carried)
        return (self.transcript, u16(self.member), self.vector_digest, self.commitment, *digests)

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = begin(Kind.UPLOAD).fixed(self.transcript).number(self.member, 2).fixed(self.vector_digest)
        writer.fixed(self.commitment).by_member(self.tags).by_member(self.envelopes)
        writer.by_member(self.share_digests)
        return writer.fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> Upload:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.UPLOAD)
        message = cls(
            reader.fixed(DIGEST_BYTES),
            reader.number(2),
            reader.fixed(DIGEST_BYTES),
            reader.fixed(DIGEST_BYTES),
            reader.by_member(TAG_BYTES),
            reader.by_member(ENVELOPE_BYTES),
            reader.by_member(SHARE_DIGEST_BYTES),
            reader.fixed(SIGNATURE_BYTES),
        )
        if any(len(tag) != TAG_BYTES for _, tag in message.tags):
            raise reader.refuse("a tag of the wrong length")
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class PairMasksRequest:
    """Aggregator to the survivors: these have contributed; hand over the masks that you share with the others."""

    transcript: bytes
    survivors: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return begin(Kind.PAIR_MASKS_REQUEST).fixed(self.transcript).member_set(self.survivors).done()

    @classmethod
    def decode(cls, raw: bytes) -> PairMasksRequest:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.PAIR_MASKS_REQUEST)
        message = cls(reader.fixed(DIGEST_BYTES), reader.member_set())
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class PairMasks:
    """Member to aggregator: my masks with all that are no survivors, readable once my own mask is open."""

    transcript: bytes
    member: int
    survivors: tuple[int, ...]
    masks: Pairs

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = begin(Kind.PAIR_MASKS).fixed(self.transcript).number(self.member, 2)
        return writer.member_set(self.survivors).by_member(self.masks).done()

    @classmethod
    def decode(cls, raw: bytes) -> PairMasks:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.PAIR_MASKS)
        head = (reader.fixed(DIGEST_BYTES), reader.number(2), reader.member_set())
        message = cls(*head, reader.by_member(SECRET_BYTES))
        if any(len(mask) != SECRET_BYTES for _, mask in message.masks):
            raise reader.refuse("a mask of the wrong length")
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class Survivors:
    """Aggregator to the survivors: these have contributed; vote."""

    transcript: bytes
    survivors: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return begin(Kind.SURVIVORS).fixed(self.transcript).member_set(self.survivors).done()

    @classmethod
    def decode(cls, raw: bytes) -> Survivors:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.SURVIVORS)
        message = cls(reader.fixed(DIGEST_BYTES), reader.member_set())
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class ConsistencyCheck:
    """Member to aggregator: my one vote of this round is for this set."""

    transcript: bytes
    member: int
    survivors: tuple[int, ...]
    signature: bytes

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = (
            begin(Kind.CONSISTENCY_CHECK).fixed(self.transcript).number(self.member, 2).member_set(self.survivors)
        )
        return writer.fixed(self.signature).done()

    @classmethod
    def decode(cls, raw: bytes) -> ConsistencyCheck:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.CONSISTENCY_CHECK)
        message = cls(
            reader.fixed(DIGEST_BYTES), reader.number(2), reader.member_set(), reader.fixed(SIGNATURE_BYTES)
        )
        reader.end()
        return message


def consistency_fields(transcript: bytes, survivors: tuple[int, ...], member: int) -> tuple[bytes, ...]:
    """Return what a vote's signature covers."""
    return (transcript, indices(survivors), u16(member))


@dataclass(frozen=True, slots=True)
class UnmaskRequest:
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
        writer = begin(Kind.UNMASK_REQUEST).fixed(self.transcript).member_set(self.survivors)
        return writer.by_member(self.votes).by_member(self.envelopes).done()

    @classmethod
    def decode(cls, raw: bytes) -> UnmaskRequest:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.UNMASK_REQUEST)
        message = cls(
            reader.fixed(DIGEST_BYTES),
            reader.member_set(),
            reader.by_member(SIGNATURE_BYTES),
            reader.by_member(ENVELOPE_BYTES),
        )
        if any(len(vote) != SIGNATURE_BYTES for _, vote in message.votes):
            raise reader.refuse("a consistency signature of the wrong length")
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class UnmaskShares:
    """Member to aggregator: my share of each survivor's own mask."""

    transcript: bytes
    member: int
    survivors: tuple[int, ...]
    shares: Pairs

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        writer = begin(Kind.UNMASK_SHARES).fixed(self.transcript).number(self.member, 2)
        return writer.member_set(self.survivors).by_member(self.shares).done()

    @classmethod
    def decode(cls, raw: bytes) -> UnmaskShares:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.UNMASK_SHARES)
        message = cls(
            reader.fixed(DIGEST_BYTES),
            reader.number(2),
            reader.member_set(),
            reader.by_member(SHARE_BYTES),
        )
        reader.end()
        return message


@dataclass(frozen=True, slots=True)
class OpenedMessage:
    """Aggregator to the cohort: this is the sum; check it. The words of its body travel beside it.

    `header` holds the words of the masked header without the masks, u64 in little-endian order, the check tag's
    included.
    """

    transcript: bytes
    survivors: tuple[int, ...]
    header: bytes

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        return begin(Kind.OPENED).fixed(self.transcript).member_set(self.survivors).sized(self.header).done()

    @classmethod
    def decode(cls, raw: bytes) -> OpenedMessage:
        """Return the message, or refuse it."""
        reader = open_message(raw, Kind.OPENED)
        message = cls(reader.fixed(DIGEST_BYTES), reader.member_set(), reader.sized(8 * MAX_MASKED_HEADER_VALUES))
        reader.end()
        return message
