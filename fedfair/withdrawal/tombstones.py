"""The record of the persons who have withdrawn at one site: appended to, chained, and never undone.

    {"at": "2026-01-31T12:00:00+00:00", "chain": "<hex>", "person": "<hex>", "reference": "letter 7"}

`person` is the keyed hash of the identifier (`owners.py`), `reference` what the site itself calls the request.
Every entry's chain value covers all before it, so an entry that was changed, removed or moved is found. One that
was cut off at the end is found by the next start, which remembers how far the record had come.

    chain(0) = 32 zero bytes;  chain(n) = SHA-256(label "fedfair/withdrawn/v1", chain(n-1), person, at, reference)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from fedfair.errors import DataError, StateError
from fedfair.signed_message import labelled_message
from fedfair.withdrawal.owners import name_of

START = bytes(32)
HASH_BYTES = 32
MAX_BYTES = 4096
MAX_REFERENCE = 200
"""Characters of what a site calls a request."""

_FIELDS = ("at", "chain", "person", "reference")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One person who has withdrawn.

    Attributes:
        person: keyed hash of the identifier, 32 bytes.
        at: when it was recorded, ISO 8601 in UTC.
        reference: what this site calls the request; empty for none.
    """

    person: bytes = field(repr=False)
    at: str
    reference: str = ""

    def __post_init__(self) -> None:
        if len(self.reference) > MAX_REFERENCE or not self.reference.isprintable():
            raise DataError(
                f"the reference of a request has {len(self.reference)} characters, at most {MAX_REFERENCE} on one "
                "line",
                "state a number or a date by which this site finds the request",
            )

    def chained(self, before: bytes) -> bytes:
        """Return the chain value of this entry, 32 bytes, behind that of the one before it."""
        fields = [before, self.person, self.at.encode(), self.reference.encode()]
        return hashlib.sha256(labelled_message("fedfair/withdrawn/v1", fields)).digest()


@dataclass(frozen=True, slots=True)
class Tombstones:
    """All entries, and the chain value of the last one."""

    entries: tuple[Tombstone, ...] = ()
    head: bytes = START

    @property
    def names(self) -> frozenset[int]:
        """Return the names of everybody who has withdrawn."""
        return frozenset(name_of(entry.person) for entry in self.entries)

    @property
    def persons(self) -> frozenset[bytes]:
        """Return the keyed hash of everybody who has withdrawn."""
        return frozenset(entry.person for entry in self.entries)

    def is_after(self, count: int, head: bytes) -> bool:
        """Return whether this record continues the one that had so many entries and this chain value."""
        if len(self.entries) < count:
            return False
        chain = START
        for entry in self.entries[:count]:
            chain = entry.chained(chain)
        return chain == head

    def with_more(self, found: Iterable[Tombstone]) -> tuple[Tombstones, tuple[bytes, ...]]:
        """Return the record with further entries, and their lines; a person who is in it is not added again."""
        entries, chain, known, lines = list(self.entries), self.head, set(self.persons), []
        for entry in found:
            if entry.person in known:
                continue
            known.add(entry.person)
            chain = entry.chained(chain)
            entries.append(entry)
            lines.append(_line(entry, chain))
        return Tombstones(tuple(entries), chain), tuple(lines)


def parse_tombstones(lines: Iterable[bytes]) -> Tombstones:
    """Return a record by its lines.

    Raises:
        StateError: a line is no entry, or does not continue those before it; the message has its number.
    """
    entries, chain = [], START
    for number, line in enumerate(lines, 1):
        try:
            entry, stated = _parse(line)
        except (ValueError, KeyError, TypeError, RecursionError, DataError) as error:
            raise StateError(f"line {number} is no entry of a withdrawal") from error
        chain = entry.chained(chain)
        if stated != chain:
            raise StateError(f"line {number} does not continue those before it: something was changed or removed")
        entries.append(entry)
    return Tombstones(tuple(entries), chain)


def _line(entry: Tombstone, chain: bytes) -> bytes:
    stated = {"at": entry.at, "chain": chain.hex(), "person": entry.person.hex(), "reference": entry.reference}
    return json.dumps(stated, sort_keys=True).encode("ascii")


def _parse(line: bytes) -> tuple[Tombstone, bytes]:
    found = json.loads(line)
    if tuple(sorted(found)) != _FIELDS or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("other fields")
    person, chain = bytes.fromhex(found["person"]), bytes.fromhex(found["chain"])
    if len(person) != HASH_BYTES:
        raise ValueError("a hash of another length")
    return Tombstone(person, found["at"], found["reference"]), chain
