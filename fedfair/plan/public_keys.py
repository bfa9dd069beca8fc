"""Public signing keys as text in a plan: "ed25519:" and the base64 of 32 bytes.

Decides the one spelling of a key, as text and as 32 bytes, so that two keys that look different are different. Who
holds which key is the roster's business (`federation.roster`), and keys that sign are `fedfair.identity`'s. Source
for the form of the bytes: RFC 8032, section 5.1.3.
"""

from __future__ import annotations

import base64
import binascii

PREFIX = "ed25519:"
KEY_BYTES = 32

UNPINNED_REMEDY = (
    "at a site, restore plan/roster.yaml, which came with the plan (`fedfair workspace import`, or join again); "
    "the lead pins the key of a new site: `fedfair plan enroll` with its request"
)
"""The remedy where a plan pins no key for somebody."""

_PRIME = 2**255 - 19
_SIGN_BIT = 1 << 255
_SMALL_ORDER = frozenset(
    (
        0,
        1,
        _PRIME - 1,
        *(
            int.from_bytes(bytes.fromhex(y), "little")
            for y in (
                "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
                "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            )
        ),
    )
)
"""The y of the eight points whose order divides 8. A signature under such a key proves nothing."""


def format_public_key(key: bytes) -> str:
    """Return 32 raw bytes as they stand in a plan."""
    return PREFIX + base64.b64encode(key).decode("ascii")


def check_public_key(key: bytes) -> None:
    """Refuse 32 bytes that another spelling of the same key would have, or that are a point of small order.

    Raises:
        ValueError: y is not below 2^255 - 19, or nobody can hold such a key.
    """
    y = int.from_bytes(key, "little") & ~_SIGN_BIT
    if y >= _PRIME or y in _SMALL_ORDER:
        raise ValueError(f"{format_public_key(key)!r} is not the one spelling of a key that somebody holds")


def parse_public_key(text: str) -> bytes:
    """Return the 32 raw bytes of a key.

    Raises:
        ValueError: the text is not "ed25519:" and the canonical base64 of 32 bytes, or they are no key.
    """
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    # Two spellings of one key would look like two keys to a person, so only the canonical one is taken.
    if len(key) != KEY_BYTES or format_public_key(key) != text:
        raise ValueError(f"{text[:80]!r} is not '{PREFIX}' and the base64 of {KEY_BYTES} bytes")
    check_public_key(key)
    return key
