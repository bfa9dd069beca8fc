"""The roster of members, and signatures that cannot be moved to another place.

The roster is pinned: it is part of what every site approved, so neither an authority nor the aggregator can add
or replace a member. A signature covers a label and length-prefixed fields, always the raw bytes that travelled.
Source: RFC 8032 (Ed25519).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import PlanError
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.params import MAX_MEMBERS
from fedfair.secagg.transcript import digest, labelled, u16

SIGNATURE_BYTES = 64
PUBLIC_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Member:
    """One collaborator of the consortium.

    Attributes:
        index: 1 to n; its evaluation point in every sharing.
        name: how people call it.
        public_key: 32 bytes, Ed25519; pinned.
    """

    index: int
    name: str
    public_key: bytes


class Roster:
    """All members, by index; immutable.

    Args:
        members: at most MAX_MEMBERS, with distinct indices, names and keys.

    Raises:
        PlanError: they are not.
    """

    __slots__ = ("_keys", "_members", "digest")

    def __init__(self, members: Iterable[Member]) -> None:
        ordered = sorted(members, key=lambda member: member.index)
        for what, values in (
            ("index", [member.index for member in ordered]),
            ("name", [member.name for member in ordered]),
            ("public key", [member.public_key for member in ordered]),
        ):
            if len(set(values)) != len(values):
                raise PlanError(f"two members of the roster have the same {what}")
        if not 2 <= len(ordered) <= MAX_MEMBERS:
            raise PlanError(f"a roster of {len(ordered)} members, 2 to {MAX_MEMBERS} can aggregate securely")
        for member in ordered:
            if not 1 <= member.index <= 0xFFFF or len(member.public_key) != PUBLIC_KEY_BYTES:
                raise PlanError(f"roster entry {member.name!r} has no usable index or no 32-byte public key")
        self._members = {member.index: member for member in ordered}
        self._keys = dict[int, Ed25519PublicKey]()
        fields = [part for m in ordered for part in (u16(m.index), m.name.encode("utf-8"), m.public_key)]
        self.digest = digest("roster", *fields)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, index: int) -> bool:
        return index in self._members

    @property
    def indices(self) -> tuple[int, ...]:
        """Return every index, increasing."""
        return tuple(self._members)

    def name(self, index: int) -> str:
        """Return the name behind an index, for a person."""
        return self._members[index].name if index in self._members else f"member {index}"

    def check_pinned(self, index: int) -> None:
        """Refuse a number that is nobody's.

        Raises:
            SecaggError: MEMBERSHIP: no member has this index.
        """
        require(index in self._members, Check.MEMBERSHIP, f"member {index} is not in the pinned roster")

    def verify(self, index: int, signature: bytes, label: str, *fields: bytes) -> None:
        """Check a member's signature over `fields` under `label`.

        Raises:
            SecaggError: MEMBERSHIP: no member has this index; SIGNATURE: it does not verify.
        """
        self.check_pinned(index)
        if index not in self._keys:
            self._keys[index] = Ed25519PublicKey.from_public_bytes(self._members[index].public_key)
        try:
            self._keys[index].verify(signature, labelled(label, *fields))
        except InvalidSignature as error:
            raise SecaggError(
                Check.SIGNATURE,
                f"the {label} that bears the name of {self.name(index)} was not signed with its pinned key",
                "somebody between you and that site is lying; do not continue",
            ) from error


def sign(key: Ed25519PrivateKey, label: str, *fields: bytes) -> bytes:
    """Return the signature (64 bytes) over `fields` under `label`."""
    return key.sign(labelled(label, *fields))
