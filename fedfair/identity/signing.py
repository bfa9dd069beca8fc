"""Ed25519 signing keys as values.

A signing key outlives every certificate: the plan pins its public half, and it signs requests, bindings and
approvals. What is signed is `request.py`'s and `roster.py`'s business; how a key is spelt, `plan.public_keys`'s.
"""

from __future__ import annotations

import base64
import binascii

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedfair.errors import IdentityError
from fedfair.plan.public_keys import format_public_key, parse_public_key

SIGNATURE_BYTES = 64


def format_signing_key(key: Ed25519PublicKey) -> str:
    """Return a public signing key as it stands in a plan: "ed25519:" and base64 of its 32 bytes."""
    return format_public_key(key.public_bytes_raw())


def parse_signing_key(text: str) -> Ed25519PublicKey:
    """Return the public signing key that `text` spells.

    Args:
        text: "ed25519:" and the canonical base64 of 32 bytes, 52 characters in all.

    Raises:
        IdentityError: `text` is anything else.
    """
    try:
        return Ed25519PublicKey.from_public_bytes(parse_public_key(text))
    except ValueError as error:
        raise IdentityError(str(error), "copy the whole line of the site's signing.pub") from error


def decode_base64(text: str, what: str) -> bytes:
    """Return the bytes of `text`, which must be the one canonical base64 spelling of them.

    Raises:
        IdentityError: a character does not belong there, or another spelling of the same bytes was used.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise IdentityError(f"{what} is not base64: {text[:80]!r}") from error
    # Two spellings of one value would let two texts that look different mean the same key.
    if base64.b64encode(raw).decode("ascii") != text:
        raise IdentityError(f"{what} is not canonical base64: {text[:80]!r}")
    return raw
