"""Reading and writing the bytes of messages: fixed order, explicit lengths, nothing left over.

A reader takes nothing on trust: it never allocates more than it was given, refuses what is cut off, padded,
out of range or out of order, and names the message in every refusal. Integers are big-endian.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.params import MAX_MEMBERS
from fedfair.secagg.transcript import DIGEST_BYTES

_INDEX_AND_LENGTH = struct.Struct(">HI")


@lru_cache(maxsize=16)
def _bits_of(members: tuple[int, ...]) -> bytes:
    bits = bytearray(max(members, default=-1) // 8 + 1)
    for member in members:
        bits[member // 8] |= 1 << member % 8
    return bytes(bits)


@lru_cache(maxsize=16)
def _members_of(bits: bytes) -> tuple[int, ...] | None:
    """Return the members of a set; None where it has no right spelling. All members receive the same few sets."""
    number = int.from_bytes(bits, "little")
    if (bits and not bits[-1]) or number & 1 or number.bit_length() > MAX_MEMBERS + 1:
        return None
    return tuple(place for place, bit in enumerate(reversed(f"{number:b}")) if bit == "1")


class MessageWriter:
    """Collects the parts of one message."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def number(self, value: int, size: int) -> MessageWriter:
        """Append an unsigned integer of `size` bytes."""
        self._parts.append(value.to_bytes(size, "big"))
        return self

    def real(self, value: float) -> MessageWriter:
        """Append a float64."""
        self._parts.append(struct.pack(">d", value))
        return self

    def fixed(self, value: bytes) -> MessageWriter:
        """Append bytes whose length the reader knows."""
        self._parts.append(value)
        return self

    def sized(self, value: bytes) -> MessageWriter:
        """Append bytes with their length."""
        self._parts += (len(value).to_bytes(4, "big"), value)
        return self

    def members(self, values: Sequence[int]) -> MessageWriter:
        """Append roster indices."""
        return self.number(len(values), 2).fixed(struct.pack(f">{len(values)}H", *values))

    def member_set(self, values: Sequence[int]) -> MessageWriter:
        """Append a set of roster indices, one bit for each place up to the last of them."""
        bits = _bits_of(tuple(values))
        return self.number(len(bits), 2).fixed(bits)

    def by_member(self, values: Iterable[tuple[int, bytes]]) -> MessageWriter:
        """Append (roster index, bytes) pairs."""
        pairs = tuple(values)
        self.number(len(pairs), 2)
        self._parts += [
            part for index, value in pairs for part in (_INDEX_AND_LENGTH.pack(index, len(value)), value)
        ]
        return self

    def digests(self, values: Sequence[bytes]) -> MessageWriter:
        """Append digests of 32 bytes each."""
        return self.number(len(values), 2).fixed(b"".join(values))

    def done(self) -> bytes:
        """Return the message."""
        return b"".join(self._parts)


class MessageReader:
    """Takes one message apart.

    Args:
        raw: the message.
        name: what to call it in a refusal.
    """

    __slots__ = ("_at", "_name", "_raw")

    def __init__(self, raw: bytes, name: str) -> None:
        self._raw = raw
        self._name = name
        self._at = 0

    def fixed(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        start, end = self._at, self._at + size
        if end > len(self._raw):
            words = f"{self._name} is cut off: {len(self._raw)} bytes, needs {end}"
            raise SecaggError(Check.ENCODING, words)
        self._at = end
        return self._raw[start:end]

    def number(self, size: int) -> int:
        """Return an unsigned integer of `size` bytes."""
        return int.from_bytes(self.fixed(size), "big")

    def flag(self) -> bool:
        """Return a truth value, in one byte that is 0 or 1."""
        value = self.number(1)
        require(value <= 1, Check.ENCODING, f"{self._name} holds {value} where 0 or 1 is due")
        return bool(value)

    def real(self) -> float:
        """Return a float64 that is finite."""
        value: float = struct.unpack(">d", self.fixed(8))[0]
        require(math.isfinite(value), Check.ENCODING, f"{self._name} holds a number that is not finite")
        return value

    def sized(self, greatest: int) -> bytes:
        """Return bytes that carry their length, at most `greatest`."""
        size = self.number(4)
        if size > greatest:
            words = f"{self._name} declares {size} bytes where {greatest} are allowed"
            raise SecaggError(Check.ENCODING, words)
        return self.fixed(size)

    def text(self, greatest: int) -> str:
        """Return a word of at most `greatest` bytes of ASCII."""
        raw = self.sized(greatest)
        require(raw.isascii(), Check.ENCODING, f"{self._name} holds a word that is not ASCII")
        return raw.decode("ascii")

    def members(self) -> tuple[int, ...]:
        """Return roster indices, strictly increasing and from 1, at most MAX_MEMBERS of them."""
        count = self._count()
        values: tuple[int, ...] = struct.unpack(f">{count}H", self.fixed(2 * count))
        self._increasing(values)
        return values

    def member_set(self) -> tuple[int, ...]:
        """Return a set of roster indices, from 1 to MAX_MEMBERS and increasing; a set has one spelling."""
        size = self.number(2)
        require(size <= MAX_MEMBERS // 8 + 1, Check.ENCODING, f"{self._name} has a set of members in {size} bytes")
        members = _members_of(self.fixed(size))
        words = f"{self._name} has a set with member 0, one beyond {MAX_MEMBERS}, or padding"
        require(members is not None, Check.ENCODING, words)
        return members or ()

    def by_member(self, greatest: int) -> tuple[tuple[int, bytes], ...]:
        """Return (roster index, bytes) pairs with strictly increasing indices."""
        count = self._count()
        pairs = self._of_one_length(count, greatest)
        if pairs is None:
            pairs = tuple((self.number(2), self.sized(greatest)) for _ in range(count))
        self._increasing([index for index, _ in pairs])
        return pairs

    def digests(self) -> tuple[bytes, ...]:
        """Return digests of 32 bytes each, at most MAX_MEMBERS of them."""
        return tuple(self.fixed(DIGEST_BYTES) for _ in range(self._count()))

    def _of_one_length(self, count: int, greatest: int) -> tuple[tuple[int, bytes], ...] | None:
        """Return pairs whose bytes are all as long as the first; None where they are not, or something is amiss.

        Nearly all are. A round has as many of them as its cohort has pairs, so they are taken apart in one step.
        """
        head = self._raw[self._at + 2 : self._at + 6]
        size = int.from_bytes(head, "big")
        end = self._at + count * (6 + size)
        if not count or len(head) < 4 or size > greatest or end > len(self._raw):
            return None
        rows = list(struct.iter_unpack(f">HI{size}s", memoryview(self._raw)[self._at : end]))
        if any(found != size for _, found, _ in rows):
            return None
        self._at = end
        return tuple([(index, value) for index, _, value in rows])

    def end(self) -> None:
        """Refuse anything that is left.

        Raises:
            SecaggError: ENCODING.
        """
        left = len(self._raw) - self._at
        require(not left, Check.ENCODING, f"{self._name} has {left} bytes too many")

    def refuse(self, what: str) -> SecaggError:
        """Return the refusal of a value that cannot be, to be raised."""
        return SecaggError(Check.ENCODING, f"{self._name} holds {what}")

    def _count(self) -> int:
        count = self.number(2)
        require(count <= MAX_MEMBERS, Check.ENCODING, f"{self._name} lists {count} members, at most {MAX_MEMBERS}")
        return count

    def _increasing(self, values: Sequence[int]) -> None:
        increasing = all(map(operator.lt, (0, *values), values))
        require(increasing, Check.ENCODING, f"{self._name} lists a member twice, out of order or as number 0")
