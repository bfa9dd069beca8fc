"""Envelopes: what one member tells another through an aggregator that must not read it.

Each envelope has a key of its own, derived for (round, sender, receiver), and the associated data repeat what the
key is bound to. A machine that is put back to a snapshot in the middle of a round still seals twice with one key,
and its random numbers may or may not repeat. So the envelope takes no nonce: in AES-SIV the place of the nonce is
taken by a keyed digest of the content. Two contents under one key then show only whether they are equal, where a
constant nonce would show their difference. Decides the layout of the shares inside. Source: RFC 5297.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.keys import Secret
from fedfair.secagg.shamir import SHARE_BYTES, parse_share
from fedfair.secagg.transcript import digest, labelled, u16

AEAD_TAG_BYTES = 16
SHARE_DIGEST_BYTES = 8
"""Of the digest of a share. A share has 255 random bits, so its digest tells nothing of it. A liar that wants
another one of the same digest tries 2^64 of them, and gains that a round fails without a name."""


def envelope_bytes(cohort_size: int) -> int:
    """Return the length of every envelope of a round: b's share, a share for each other member, the tag."""
    return SHARE_BYTES * cohort_size + AEAD_TAG_BYTES


def seal(key: Secret, transcript: bytes, sender: int, receiver: int, shares: Sequence[bytes]) -> bytes:
    """Return the envelope that carries `shares` (32 bytes each).

    Args:
        key: 64 bytes, for this sender and this receiver in this round.
        transcript: of the round, 32 bytes.
        sender: its roster index.
        receiver: its roster index.
        shares: what is told.
    """
    return AESSIV(key.reveal()).encrypt(b"".join(shares), [_associated(transcript, sender, receiver)])


def open_envelope(
    key: Secret, transcript: bytes, sender: int, receiver: int, envelope: bytes, author: str
) -> bytes:
    """Return the shares inside, one after the other.

    Args:
        key: of this one message.
        transcript: T_r.
        sender: roster index.
        receiver: roster index.
        envelope: what arrived.
        author: the sender's name, for messages.

    Raises:
        SecaggError: ENVELOPE: cut, swapped, reflected, altered or of another round; SHARE: a share is not one. It
            accuses the sender.
    """
    try:
        opened = AESSIV(key.reveal()).decrypt(envelope, [_associated(transcript, sender, receiver)])
    except InvalidTag as error:
        raise SecaggError(
            Check.ENVELOPE,
            f"the envelope from {author} does not open",
            f"it was altered on its way, or {author} was shown another round or lies",
            accused=sender,
        ) from error
    whole = len(opened) % SHARE_BYTES == 0
    require(whole, Check.ENVELOPE, f"the envelope of {author} holds no shares", accused=sender)
    try:
        for start in range(0, len(opened), SHARE_BYTES):
            parse_share(opened[start : start + SHARE_BYTES])
    except SecaggError as fault:
        words = f"the envelope of {author} holds {fault.message}"
        raise SecaggError(fault.check, words, accused=sender) from fault
    return opened


def share_digests(transcript: bytes, sender: int, holder: int, shares: Sequence[bytes]) -> bytes:
    """Return the digests of the shares that `sender` gives to `holder`, 8 bytes each, in order of the envelope."""
    return b"".join(share_digest(transcript, sender, holder, at, share) for at, share in enumerate(shares))


def share_digest(transcript: bytes, sender: int, holder: int, position: int, share: bytes) -> bytes:
    """Return the digest (8 bytes) of the share at a position of the envelope from `sender` to `holder`."""
    return digest("share", transcript, u16(sender), u16(holder), u16(position), share)[:SHARE_DIGEST_BYTES]


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
