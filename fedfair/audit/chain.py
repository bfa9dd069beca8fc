"""Chains a record: each entry's chain value covers every entry before it, and the keeper signs it.

    chain(0) = 32 zero bytes
    chain(n) = SHA-256(label "fedfair/egress-entry/v1", chain(n-1), the entry's own fields as they are spelt)
    signature = Ed25519(label "fedfair/egress-signature/v1", federation, participant, keeper, chain(n))

An entry that is changed, removed, inserted or moved gives another value to itself or the next one, and to all that
follow; an attacker can recompute them, but not sign them. What neither shows is a tail that was cut off behind a
signature: that takes a second copy (`summary.py`) or a note of an earlier end (`reader.py`, checkpoint).
"""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.errors import AuditError
from fedfair.identity.signing import parse_signing_key
from fedfair.signed_message import labelled_message

ENTRY_LABEL = "fedfair/egress-entry/v1"
SIGNATURE_LABEL = "fedfair/egress-signature/v1"
START = bytes(32)


def next_chain(before: bytes, body: bytes) -> bytes:
    """Return the chain value of an entry.

    Args:
        before: of the entry before it; `START` before the first.
        body: the entry's own fields as they are spelt.
    """
    return hashlib.sha256(labelled_message(ENTRY_LABEL, [before, body])).digest()


def sign_chain(key: Ed25519PrivateKey, names: tuple[str, str, str], chain: bytes) -> bytes:
    """Return the keeper's signature, 64 bytes.

    Args:
        key: the keeper's signing key.
        names: federation, participant and keeper.
        chain: of the entry that the signature stands in.
    """
    return key.sign(_message(names, chain))


def verify_chain_signature(key: str, names: tuple[str, str, str], chain: bytes, signature: bytes) -> None:
    """Check a keeper's signature.

    Args:
        key: the keeper's public key as it stands in a plan.
        names: federation, participant and keeper.
        chain: of the entry that the signature stands in.
        signature: as found.

    Raises:
        AuditError: it was not made with that key over that chain value.
        IdentityError: the key is malformed.
    """
    try:
        parse_signing_key(key).verify(signature, _message(names, chain))
    except InvalidSignature as error:
        raise AuditError(f"its signature was not made with {key} over what stands before it") from error


def _message(names: tuple[str, str, str], chain: bytes) -> bytes:
    return labelled_message(SIGNATURE_LABEL, [*(name.encode("ascii") for name in names), chain])
