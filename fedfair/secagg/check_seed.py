"""The seeds of the sum check: how the members of a session come to have a key that the aggregator has not.

Site i draws g_i, and its key advertisement carries a commitment to it. Its confirm carries g_i sealed for every
other member. G is made of the g_i of everybody who confirmed; `sum_check` makes the key of each round of it. The
commitments are part of the session's name, so all members of one session have the same g_i of each other.

In a hybrid session, too, X25519 alone seals g_i. G keeps a sum from being claimed falsely while the run lasts, and
from being claimed only: whoever breaks X25519 in twenty years learns from G nothing about any contribution,
because what a tag depends on beside G is the opened sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import constant_time
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.keys import ENVELOPE_KEY_BYTES, Secret, derive
from fedfair.secagg.sealing import AEAD_TAG_BYTES
from fedfair.secagg.sum_check import CHECK_KEY_BYTES
from fedfair.secagg.transcript import digest, labelled, u16

SEED_BYTES = 32
SEALED_SEED_BYTES = SEED_BYTES + AEAD_TAG_BYTES


def seed_commitment(seed: Secret, proposal: bytes, member: int) -> bytes:
    """Return the promise (32 bytes) of a member's check seed in the set-up that a proposal began."""
    return digest("seed-commitment", digest("proposal", proposal), u16(member), seed.reveal())


def seal_seed(seed: Secret, shared: Secret, session_id: bytes, sender: int, receiver: int) -> bytes:
    """Return a check seed sealed for one member (48 bytes).

    Args:
        seed: g of the sender, 32 bytes.
        shared: the X25519 secret of sender and receiver.
        session_id: 32 bytes.
        sender: its roster index.
        receiver: its roster index.
    """
    key = _key(shared, session_id, sender, receiver)
    sealed = AESSIV(key.reveal()).encrypt(seed.reveal(), [_associated(session_id, sender, receiver)])
    key.erase()
    return sealed


def open_seed(
    sealed: bytes, shared: Secret, session_id: bytes, members: tuple[int, int], promised: bytes, proposal: bytes
) -> Secret:
    """Return the check seed of a member, which is the one that it has promised.

    Args:
        sealed: what arrived, 48 bytes.
        shared: the X25519 secret of sender and receiver.
        session_id: 32 bytes.
        members: roster indices of sender and receiver.
        promised: the sender's commitment, 32 bytes.
        proposal: as it was received.

    Raises:
        SecaggError: CONFIRM: it does not open, or is another seed than was promised.
    """
    sender, receiver = members
    key = _key(shared, session_id, sender, receiver)
    try:
        seed = Secret(
            AESSIV(key.reveal()).decrypt(sealed, [_associated(session_id, sender, receiver)]),
        )
    except InvalidTag as error:
        words = f"the check seed that member {sender} sealed for this site does not open"
        raise SecaggError(Check.CONFIRM, words, "it was altered on its way, or that member lies") from error
    finally:
        key.erase()
    require(
        constant_time.bytes_eq(seed_commitment(seed, proposal, sender), promised),
        Check.CONFIRM,
        f"the check seed of member {sender} is not the one that it promised",
        "that member lies",
    )
    return seed


def session_key(seeds: Mapping[int, Secret], session_id: bytes) -> Secret:
    """Return G (32 bytes), the key that the members of a session have in common.

    Args:
        seeds: g of everybody who confirmed the session, by roster index.
        session_id: 32 bytes.
    """
    material = Secret(b"".join(u16(member) + seeds[member].reveal() for member in sorted(seeds)))
    key = derive(material, "check-key", length=CHECK_KEY_BYTES, salt=session_id)
    material.erase()
    return key


def _key(shared: Secret, session_id: bytes, sender: int, receiver: int) -> Secret:
    # One key for one message: a session has one confirm of each member, and two sessions have two names.
    return derive(shared, "check-seed", u16(sender), u16(receiver), length=ENVELOPE_KEY_BYTES, salt=session_id)


def _associated(session_id: bytes, sender: int, receiver: int) -> bytes:
    return labelled("check-seed", session_id, u16(sender), u16(receiver))
