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

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.keys import Secret, derive
from fedfair.secagg.shamir import SECRET_BYTES, SHARE_BYTES, parse_share
from fedfair.secagg.transcript import labelled, u16, u32

AEAD_TAG_BYTES = 16
SHARE_DIGEST_BYTES = 8
"""Of the digest of a share. A share has 255 random bits, so its digest tells nothing of it. A liar that wants
another one of the same digest tries 2^64 of them, and gains that a round fails without a name."""

ENVELOPE_BYTES = SHARE_BYTES + AEAD_TAG_BYTES
"""Of every envelope: one share, of the sender's own mask, and the tag."""

_SHARE = struct.Struct(">IHIHI")
"""Sender and holder of a share with the lengths of their bytes, and the length of the share."""

_PAD_BYTES = 32
"""Two blocks of the cipher for each place in the roster; the seed of a pair's mask takes 31 bytes of them."""


def seal(key: Secret, transcript: bytes, sender: int, receiver: int, share: bytes) -> bytes:
    """Return the envelope that carries a share.

    Args:
        key: 64 bytes, for this sender and this receiver in this round.
        transcript: of the round, 32 bytes.
        sender: its roster index.
        receiver: its roster index.
        share: the share itself, 32 bytes.
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


def share_digests(
    transcript: bytes, shares: Iterable[tuple[tuple[int, int], bytes]]
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield the digests (8 bytes) of shares of one round, each with (sender, holder).

    A round has as many shares as its cohort has pairs, so what is the same in all of them is written once.
    """
    head = labelled("share", transcript, b"", b"", b"")[: -3 * len(u32(0))]
    for (sender, holder), share in shares:
        fields = _SHARE.pack(2, sender, 2, holder, len(share))
        yield (sender, holder), hashlib.sha256(head + fields + share).digest()[:SHARE_DIGEST_BYTES]


def wrap_pair_masks(
    own_seed: Secret, transcript: bytes, owner: int, pair_seeds: Mapping[int, bytes]
) -> dict[int, bytes]:
    """Return seeds of masks of pairs, readable for whoever opens the owner's own mask; or the seeds, if wrapped.

    Every place in the roster has a pad of its own, which is used for this one value. Each seed is checked against
    its tag by whoever reads it.

    Args:
        own_seed: b of the owner, 31 bytes.
        transcript: of the round, 32 bytes.
        owner: its roster index.
        pair_seeds: s of the owner and another member, 31 bytes, by the roster index of that member.
    """
    key = derive(own_seed, "pair-masks", transcript, u16(owner), length=_PAD_BYTES)
    counter = Cipher(algorithms.AES(key.reveal()), modes.CTR(bytes(16))).encryptor()
    key.erase()
    pads = counter.update(bytes(_PAD_BYTES * (max(pair_seeds, default=0) + 1)))
    return {
        other: _exclusive_or(seed, pads[_PAD_BYTES * other : _PAD_BYTES * other + SECRET_BYTES])
        for other, seed in pair_seeds.items()
    }


def _exclusive_or(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


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
