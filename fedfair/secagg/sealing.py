"""Envelopes: what one member tells another through an aggregator that must not read it.

Each envelope has a key of its own, derived for (round, sender, receiver), and the associated data repeat what the
key is bound to. A machine that is put back to a snapshot in the middle of a round still seals twice with one key,
and its random numbers may or may not repeat. So the envelope takes no nonce: in AES-SIV the place of the nonce is
taken by a keyed digest of the content. Two contents under one key then show only whether they are equal, where a
constant nonce would show their difference. Source: RFC 5297.

Decides also how a site hands over the masks that it shares with members who have vanished: under its own mask,
which is opened if and only if the site counts as present.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.keys import Secret, derive
from fedfair.secagg.shamir import SECRET_BYTES, SHARE_BYTES, parse_share
from fedfair.secagg.transcript import digest, labelled, u16

AEAD_TAG_BYTES = 16
SHARE_DIGEST_BYTES = 8
"""Of the digest of a share. A share has 255 random bits, so its digest tells nothing of it. A liar that wants
another one of the same digest tries 2^64 of them, and gains that a round fails without a name."""

ENVELOPE_BYTES = SHARE_BYTES + AEAD_TAG_BYTES
"""Of every envelope: one share, of the sender's own mask, and the tag."""


def seal(key: Secret, transcript: bytes, sender: int, receiver: int, share: bytes) -> bytes:
    """Return the envelope that carries a share.

    Args:
        key: 64 bytes, for this sender and this receiver in this round.
        transcript: of the round, 32 bytes.
        sender: its roster index.
        receiver: its roster index.
        share: what is told, 32 bytes.
    """
    return AESSIV(key.reveal()).encrypt(share, [_associated(transcript, sender, receiver)])


def open_envelope(
    key: Secret, transcript: bytes, sender: int, receiver: int, envelope: bytes, author: str
) -> bytes:
    """Return the share inside, 32 bytes.

    Args:
        key: of this one message.
        transcript: T_r.
        sender: roster index.
        receiver: roster index.
        envelope: what arrived.
        author: the sender's name, for messages.

    Raises:
        SecaggError: ENVELOPE: cut, swapped, reflected, altered or of another round; SHARE: what is in it is none.
            It accuses the sender.
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
    right_length = len(opened) == SHARE_BYTES
    require(right_length, Check.ENVELOPE, f"{author} sealed {len(opened)} bytes of shares", accused=sender)
    try:
        parse_share(opened)
    except SecaggError as fault:
        words = f"the envelope of {author} holds {fault.message}"
        raise SecaggError(fault.check, words, accused=sender) from fault
    return opened


def share_digest(transcript: bytes, sender: int, holder: int, share: bytes) -> bytes:
    """Return the digest (8 bytes) of the share that `sender` gives to `holder`."""
    return digest("share", transcript, u16(sender), u16(holder), share)[:SHARE_DIGEST_BYTES]


def wrap_pair_mask(own_seed: Secret, pair_seed: bytes, transcript: bytes, owner: int, gone: int) -> bytes:
    """Return the seed of a pair's mask, readable for whoever opens the owner's own mask; or the seed, if wrapped.

    A pad that is used for this one value is added to it. The seed is checked against its tag by whoever reads it.

    Args:
        own_seed: b of the owner, 31 bytes.
        pair_seed: s of owner and the member that is gone, 31 bytes.
        transcript: of the round, 32 bytes.
        owner: its roster index.
        gone: the other's roster index.
    """
    pad = derive(own_seed, "pair-mask", transcript, u16(owner), u16(gone), length=SECRET_BYTES)
    wrapped = bytes(one ^ other for one, other in zip(pair_seed, pad.reveal(), strict=True))
    pad.erase()
    return wrapped


def seal_masks(key: Secret, transcript: bytes, masks: Mapping[int, Secret]) -> bytes:
    """Return masks as they are kept on the disk of their owner; `key` has 64 bytes and is kept apart."""
    kept = b"".join(u16(peer) + mask.reveal() for peer, mask in masks.items())
    return AESSIV(key.reveal()).encrypt(kept, [labelled("kept-masks", transcript)])


def open_masks(key: bytes, transcript: bytes, kept: bytes) -> Mapping[int, Secret] | None:
    """Return what `seal_masks` has sealed; None where the key is another one, because it was erased since."""
    try:
        opened = AESSIV(key).decrypt(kept, [labelled("kept-masks", transcript)])
    except (InvalidTag, ValueError):
        return None
    step = 2 + SECRET_BYTES
    parts = [opened[at : at + step] for at in range(0, len(opened), step)]
    return {int.from_bytes(part[:2]): Secret(part[2:]) for part in parts}


def _associated(transcript: bytes, sender: int, receiver: int) -> bytes:
    return labelled("env", transcript, u16(sender), u16(receiver))
