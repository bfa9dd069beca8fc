"""The bytes that a signature covers, for every kind of signature.

Every signed message begins with a label of its own, and its fields are counted and length-prefixed, so that a
signature made for one purpose, or over other fields that happen to join to the same bytes, never verifies for
another. Requests, certificate bindings and approvals are signed in this form.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_U32 = struct.Struct(">I").pack


def labelled_message(label: str, fields: Sequence[bytes | memoryview]) -> bytes:
    """Return the bytes to sign: label, 0x00, u32 count of fields, then u32 length and bytes of each field.

    Args:
        label: ASCII, one per purpose and version, such as "fedfair/approval/v1".
        fields: what is signed, in a fixed order.
    """
    parts: list[bytes | memoryview] = [label.encode("ascii"), b"\0", _U32(len(fields))]
    for field in fields:
        parts += (_U32(len(field)), field)
    return b"".join(parts)
