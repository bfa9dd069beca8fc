"""Public signing keys as text in a plan: "ed25519:" and the base64 of 32 bytes.

Decides the one spelling of a key. Who holds which key is the roster's business (`federation.roster`), and keys
that sign are `fedfair.identity`'s.
"""

from __future__ import annotations

import base64
import binascii

PREFIX = "ed25519:"
KEY_BYTES = 32


def format_public_key(key: bytes) -> str:
    """Return 32 raw bytes as they stand in a plan."""
    return PREFIX + base64.b64encode(key).decode("ascii")


def parse_public_key(text: str) -> bytes:
    """Return the 32 raw bytes of a key.

    Raises:
        ValueError: the text is not "ed25519:" and the canonical base64 of 32 bytes.
    """
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    # Two spellings of one key would look like two keys to a person, so only the canonical one is taken.
    if len(key) != KEY_BYTES or format_public_key(key) != text:
        raise ValueError(f"{text[:80]!r} is not '{PREFIX}' and the base64 of {KEY_BYTES} bytes")
    return key
