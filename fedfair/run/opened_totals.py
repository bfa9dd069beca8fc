"""An opened sum in the clear as bytes, for the sites of a plan whose sums are plain.

Under masks the opened sum travels as the ring numbers that were opened (`secagg`), and every site checks it. In
the clear a site takes the totals on the aggregator's word, as everything else under such a plan. No torch.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np

from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.spec import HEADER_DTYPE, SumSpec
from fedfair.errors import RemoteProtocolError

_DIGEST_BYTES = 32
MAX_WORDS_BYTES = 1 << 16
"""Of everything but the numbers: the names of two hundred members have a fifth of it."""


@dataclass(frozen=True, slots=True)
class OpenedTotals:
    """One opened sum.

    Attributes:
        state: 32 bytes, digest of the state of the run that it is about.
        members: who contributed.
        totals: the sums over them.
    """

    state: bytes
    members: tuple[str, ...]
    totals: Totals

    def encode(self) -> bytes:
        """Return the bytes that travel."""
        totals = self.totals
        words = _words(self.state, self.members, totals.contributors)
        header = np.ascontiguousarray(totals.header, HEADER_DTYPE).tobytes()
        body = np.ascontiguousarray(totals.body, totals.body.dtype.newbyteorder("<")).tobytes()
        return struct.pack("<I", len(words)) + words + header + body


def _words(state: bytes, members: tuple[str, ...], contributors: int) -> bytes:
    return json.dumps([state.hex(), list(members), contributors]).encode()


def totals_bytes(spec: SumSpec, members: tuple[str, ...]) -> int:
    """Return the length of an opened sum to which all of these contributed."""
    return 4 + len(_words(bytes(32), members, len(members))) + spec.upload_bytes


def decode_totals(raw: bytes | bytearray | memoryview, spec: SumSpec) -> OpenedTotals:
    """Return the opened sum.

    Args:
        raw: the bytes; anything that a peer has sent.
        spec: the shape of the sum that is due.

    Raises:
        RemoteProtocolError: they are not an opened sum of this shape.
    """
    view = memoryview(raw).cast("B")
    try:
        (length,) = struct.unpack_from("<I", view)
        state, members, contributors = json.loads(bytes(view[4 : 4 + min(length, MAX_WORDS_BYTES)]))
        digest = bytes.fromhex(state)
    except (struct.error, ValueError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"an opened sum cannot be read: {error}") from error
    named = isinstance(members, list) and all(isinstance(name, str) for name in members)
    named = named and isinstance(contributors, int)
    # Each of them is named once, and counted once.
    if not named or not 0 < len(set(members)) == len(members) == contributors or len(digest) != _DIGEST_BYTES:
        raise RemoteProtocolError(f"an opened sum is of {contributors!r} contributors, and names {members!r:.100}")
    numbers = view[4 + length :]
    if len(numbers) != spec.upload_bytes:
        raise RemoteProtocolError(
            f"an opened sum has {len(numbers)} bytes of numbers, the {spec.purpose.value} sum has "
            f"{spec.upload_bytes}",
            "compare the plan digests and the versions of fedfair on both sides",
        )
    first = spec.header_length * HEADER_DTYPE.itemsize
    header = np.frombuffer(numbers[:first], HEADER_DTYPE).astype(np.float64)
    body = np.frombuffer(numbers[first:], spec.body_dtype).astype(spec.body_dtype.newbyteorder("="))
    return OpenedTotals(digest, tuple(members), Totals(header, body, len(members)))
