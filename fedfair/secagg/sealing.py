"""Envelopes: what one member tells another through an aggregator that must not read it.

Each envelope has a key of its own, derived for (round, sender, receiver), so the nonce may be constant; the
associated data repeat what the key is bound to. Decides the layout of the shares inside. Source: RFC 8439.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.keys import Secret
from fedfair.secagg.shamir import SHARE_BYTES, parse_share
from fedfair.secagg.transcript import labelled, u16

AEAD_TAG_BYTES = 16
_NONCE = bytes(12)


def envelope_bytes(cohort_size: int) -> int:
    """Return the length of every envelope of a round: b's share, a share for each other member, the tag."""
    return SHARE_BYTES * cohort_size + AEAD_TAG_BYTES


def seal(key: Secret, transcript: bytes, sender: int, receiver: int, shares: Sequence[bytes]) -> bytes:
    """Return the envelope that carries `shares` (32 bytes each); the key must never seal anything else."""
    return ChaCha20Poly1305(key.reveal()).encrypt(
        _NONCE, b"".join(shares), _associated(transcript, sender, receiver)
    )


def open_envelope(key: Secret, transcript: bytes, sender: int, receiver: int, envelope: bytes) -> bytes:
    """Return the shares inside, one after the other.

    Raises:
        SecaggError: ENVELOPE: cut, swapped, reflected, altered or of another round; SHARE: a share is not one.
    """
    try:
        opened = ChaCha20Poly1305(key.reveal()).decrypt(
            _NONCE, envelope, _associated(transcript, sender, receiver)
        )
    except InvalidTag as error:
        raise SecaggError(
            Check.ENVELOPE, f"the envelope from member {sender} to member {receiver} does not open"
        ) from error
    require(len(opened) % SHARE_BYTES == 0, Check.ENVELOPE, f"the envelope of member {sender} holds no shares")
    for start in range(0, len(opened), SHARE_BYTES):
        parse_share(opened[start : start + SHARE_BYTES])
    return opened


def share_of_own_mask(shares: bytes) -> bytes:
    """Return the share of the sender's b."""
    return shares[:SHARE_BYTES]


def shares_of_pair_masks(shares: bytes, sender: int, cohort: Sequence[int]) -> Mapping[int, bytes]:
    """Return {peer: share of s between sender and peer}; they follow b's share, in order of the cohort."""
    peers = [member for member in cohort if member != sender]
    return {
        peer: shares[SHARE_BYTES * position : SHARE_BYTES * (position + 1)]
        for position, peer in enumerate(peers, start=1)
    }


def _associated(transcript: bytes, sender: int, receiver: int) -> bytes:
    return labelled("env", transcript, u16(sender), u16(receiver))
