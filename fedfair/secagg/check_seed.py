"""The seeds of the sum check: how the members of a session agree on a key that the aggregator has not.

Site i draws g_i, and its key advertisement carries a commitment to it. Its confirm carries g_i sealed for every
other member. G is made of the g_i of all members that confirmed; `sum_check` makes the key of each round of it.
The commitments are part of the session's name, so all members of one session have the same g_i of each other.
An ML-KEM ciphertext that travels beside a sealed seed is bound to it: whoever alters one is found by the other.

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


def seal_seed(
    seed: Secret, shared: Secret, session_id: bytes, members: tuple[int, int], beside: bytes = b""
) -> bytes:
    """Return a check seed sealed for one member (48 bytes).

    Args:
        seed: g of the sender, 32 bytes.
        shared: the X25519 secret of sender and receiver.
        session_id: 32 bytes.
        members: roster indices of sender and receiver.
        beside: the ML-KEM ciphertext that travels with it; empty where there is none.
    """
    key = _key(shared, session_id, *members)
    sealed = AESSIV(key.reveal()).encrypt(seed.reveal(), [_associated(session_id, members, beside)])
    key.erase()
    return sealed


def open_seed(
    sealed: bytes, shared: Secret, session_id: bytes, members: tuple[int, int], beside: bytes = b""
) -> Secret:
    """Return the check seed that a member has sealed; `check_seed` says whether it is the promised one.

    Args:
        sealed: what arrived, 48 bytes.
        shared: the X25519 secret of sender and receiver.
        session_id: 32 bytes.
        members: roster indices of sender and receiver.
        beside: the ML-KEM ciphertext that arrived with it; empty where there is none.

    Raises:
        SecaggError: CONFIRM: it does not open, because either was altered or made by another.
    """
    key = _key(shared, session_id, *members)
    try:
        return Secret(AESSIV(key.reveal()).decrypt(sealed, [_associated(session_id, members, beside)]))
    except InvalidTag as error:
        words = f"the check seed that member {members[0]} sealed for this site does not open"
        raise SecaggError(Check.CONFIRM, words, "it was altered on its way, or that member lies") from error
    finally:
        key.erase()


def check_seed(seed: Secret, proposal: bytes, sender: int, promised: bytes) -> None:
    """Refuse another check seed than its owner has promised.

    Args:
        seed: what was opened.
        proposal: as it was received.
        sender: roster index of the owner.
        promised: its commitment, 32 bytes.

    Raises:
        SecaggError: CONFIRM.
    """
    require(
        constant_time.bytes_eq(seed_commitment(seed, proposal, sender), promised),
        Check.CONFIRM,
        f"the check seed of member {sender} is not the one that it promised",
        "that member lies",
    )


def session_key(seeds: Mapping[int, Secret], session_id: bytes) -> Secret:
    """Return G (32 bytes), the key that the members of a session have in common.

    Args:
        seeds: g of all members that confirmed the session, by roster index.
        session_id: 32 bytes.
    """
    material = Secret(b"".join(u16(member) + seeds[member].reveal() for member in sorted(seeds)))
    key = derive(material, "check-key", length=CHECK_KEY_BYTES, salt=session_id)
    material.erase()
    return key


def _key(shared: Secret, session_id: bytes, sender: int, receiver: int) -> Secret:
    # One key for one message: a session has one confirm of each member, and two sessions have two names.
    return derive(shared, "check-seed", u16(sender), u16(receiver), length=ENVELOPE_KEY_BYTES, salt=session_id)


def _associated(session_id: bytes, members: tuple[int, int], beside: bytes) -> bytes:
    sender, receiver = members
    return labelled("check-seed", session_id, u16(sender), u16(receiver), beside)
