"""Unambiguous bytes for everything that is hashed, signed or bound to a key.

Every use has a label of its own, and fields carry their lengths, so two different things never have the same
bytes: prefix, label, zero byte, u32 count, then u32 length and bytes of each field; integers big-endian.
Decides what a session and a round *are*: two members agree on a round exactly when they agree on its transcript.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedfair.signed_message import labelled_message

PREFIX = "fedfair/secagg/v2/"
DIGEST_BYTES = 32
_MEMBER = struct.Struct(">IHI")
"""Length and bytes of a roster index, and the length of the field behind it."""

NO_STATE = bytes(DIGEST_BYTES)
"""The state digest of a member that holds no state of the run; no digest is equal to it."""


def labelled(label: str, *fields: bytes | memoryview) -> bytes:
    """Return the bytes that stand for `fields` under `label`."""
    return labelled_message(PREFIX + label, fields)


def digest(label: str, *fields: bytes | memoryview) -> bytes:
    """Return the SHA-256 (32 bytes) of `fields` under `label`."""
    return hashlib.sha256(labelled_message(PREFIX + label, fields)).digest()


def digest_by_member(label: str, pairs: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the SHA-256 (32 bytes) of roster indices in 2 bytes, each followed by what belongs to it."""
    parts = [part for member, value in pairs for part in (_MEMBER.pack(2, member, len(value)), value)]
    head = labelled(label)[:-4] + u32(2 * len(pairs))
    return hashlib.sha256(head + b"".join(parts)).digest()


def u16(value: int) -> bytes:
    """Return `value` in 2 bytes."""
    return struct.pack(">H", value)


def u32(value: int) -> bytes:
    """Return `value` in 4 bytes."""
    return struct.pack(">I", value)


def u64(value: int) -> bytes:
    """Return `value` in 8 bytes."""
    return struct.pack(">Q", value)


def f64(value: float) -> bytes:
    """Return `value` in 8 bytes."""
    return struct.pack(">d", value)


def indices(members: Iterable[int]) -> bytes:
    """Return roster indices in 2 bytes each, in the order given."""
    ordered = tuple(members)
    return struct.pack(f">{len(ordered)}H", *ordered)


def session_identity(proposal: bytes, members: Iterable[int], root: bytes) -> bytes:
    """Return session_id (32 bytes): the proposal, who has answered it, and what they have advertised.

    Args:
        proposal: the proposal as it was received.
        members: roster indices, increasing.
        root: of the tree over what each of them has advertised, 32 bytes (`member_tree`).
    """
    return digest("session", proposal, indices(members), root)


@dataclass(frozen=True, slots=True)
class RoundSubject:
    """The subject of a round; each side computes it from what it holds itself, and never takes it from the other.

    Attributes:
        state_digest: 32 bytes, of the state of the run that contributions depend on.
        request_digest: 32 bytes, which sum of which run this is, however often it is attempted.
    """

    state_digest: bytes
    request_digest: bytes


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """Everything that must be the same for all members in one round.

    Attributes:
        session_id: 32 bytes; it binds the plan, the roster, the mode, the ring and the greatest weight.
        round: number of the round within its session, from 1; every attempt has a number of its own.
        purpose: why something is summed.
        cohort: roster indices, increasing: who is asked to contribute (P_r in the specification).
        threshold: shares that open a mask (t).
        subject: what the round is about.
        clips: one bound C for each group of the body.
        shape_digest: 32 bytes, of header and body.
    """

    session_id: bytes
    round: int
    purpose: str
    cohort: tuple[int, ...]
    threshold: int
    subject: RoundSubject
    clips: tuple[float, ...]
    shape_digest: bytes

    def transcript(self) -> bytes:
        """Return T_r (32 bytes), which every seed, tag, envelope, vote and answer of the round is bound to."""
        return digest(
            "round",
            self.session_id,
            u64(self.round),
            self.purpose.encode("utf-8"),
            indices(self.cohort),
            u32(self.threshold),
            self.subject.state_digest,
            self.subject.request_digest,
            b"".join(f64(clip) for clip in self.clips),
            self.shape_digest,
        )


def root_digest(length: int, frames: Sequence[bytes]) -> bytes:
    """Return the digest of a vector of `length` bytes from those of its frames, in order (`vector_digest`)."""
    return digest("vector", u64(length), b"".join(frames))
