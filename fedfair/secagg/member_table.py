"""The values that each member of a cohort has for each other one, in little more bytes than they take.

A round has a tag, an envelope and the digest of a share for every ordered pair of its cohort. As objects they
would take ten times as much memory as on their way. Decides no meaning of the values.
"""

from __future__ import annotations

from collections.abc import Sequence


class MemberTable:
    """Values of one length, by owner and other member.

    Args:
        members: who may be the other one, increasing.
        size: bytes of every value.
    """

    __slots__ = ("_places", "_rows", "_size")

    def __init__(self, members: Sequence[int], size: int) -> None:
        self._places = {member: place for place, member in enumerate(members)}
        self._size = size
        self._rows: dict[int, bytes] = {}

    def put(self, owner: int, values: Sequence[tuple[int, bytes]]) -> None:
        """Keep the values of one owner, in place of earlier ones.

        Args:
            owner: whose they are.
            values: for every member in order, or for every one but the owner.
        """
        row = b"".join(value for _, value in values)
        if len(values) < len(self._places):
            own = self._size * self._places[owner]
            row = row[:own] + bytes(self._size) + row[own:]
        self._rows[owner] = row

    def get(self, owner: int, other: int) -> bytes:
        """Return one value; zeros where `put` had none."""
        start = self._size * self._places[other]
        return self._rows[owner][start : start + self._size]
