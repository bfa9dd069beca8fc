"""Records answered requests as rows of a table: one row for each fact, found by its key and never forgotten.

A fact is a number, a text, or a member of a set; a set's size is a number of its own. Rows hold whole values, not
changes, and those of one answer are written together: after a crash all of them are there, or none. Reads nothing
but the rows that a request needs, and writes nothing: the owner of the rows does. A new kind of fact is a key
with a kind of its own.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from fedfair.signed_message import labelled_message

Rows = tuple[tuple[bytes, bytes], ...]


class FactTable(Protocol):
    """Rows by key; a dict has this interface too."""

    def get(self, key: bytes, /) -> bytes | None:
        """Return the value of a key; None where there is none."""


def key(kind: str, *fields: str | int, near: int = 0) -> bytes:
    """Return the 36 bytes by which a fact is found: in a table, and of another fact never the same.

    Args:
        kind: of fact; fields of one kind are always as many, and of the same types.
        fields: which fact of its kind.
        near: 0 to 2**32 - 1, such as the round. Facts with the same number lie side by side in a sorted
            table, so that what is written together costs few pages of the disk.
    """
    message = labelled_message(f"fedfair/answered/v1/{kind}", [str(field).encode() for field in fields])
    return near.to_bytes(4) + hashlib.sha256(message).digest()


class AnsweredFacts:
    """The facts in one table.

    Args:
        table: read and never written here.
    """

    def __init__(self, table: FactTable) -> None:
        self._table = table

    def number(self, fact: bytes) -> int:
        """Return a number; 0 where there is none."""
        return int.from_bytes(self._table.get(fact) or b"")

    def text(self, fact: bytes) -> str | None:
        """Return a text; None where there is none. What is no text is one that equals no other."""
        found = self._table.get(fact)
        return None if found is None else found.decode(errors="replace")

    def has(self, member: bytes) -> bool:
        """Return whether a set has a member; the key of the member says which set it is."""
        return self._table.get(member) is not None

    def added(self, size: bytes, member: bytes) -> Rows:
        """Return the rows that add a member to the set whose size is the fact `size`; none where it is there."""
        return () if self.has(member) else ((member, b""), number_row(size, self.number(size) + 1))


def number_row(fact: bytes, value: int) -> tuple[bytes, bytes]:
    """Return the row of a number from 0 to 2**64 - 1."""
    return fact, value.to_bytes(8)


def text_row(fact: bytes, value: str) -> tuple[bytes, bytes]:
    """Return the row of a text."""
    return fact, value.encode()
