"""The values that each member of a cohort has for others, in little more bytes than they take.

A round has a tag, an envelope and the digest of a share for every ordered pair of members that share a mask. As
objects they would take ten times as much memory as on their way. Decides no meaning of the values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence


class MemberTable:
    """Values of one length, by owner and other member.

    Args:
        holders: from an owner to itself and all members for whom it has values, increasing.
        size: bytes of every value.
    """

    __slots__ = ("_holders", "_rows", "_size")

    def __init__(self, holders: Callable[[int], Sequence[int]], size: int) -> None:
        self._holders = holders
        self._size = size
        self._rows: dict[int, bytes] = {}

    def put(self, owner: int, values: Sequence[tuple[int, bytes]]) -> None:
        """Keep the values of one owner, in place of earlier ones.

        Args:
            owner: whose they are.
            values: for every holder in order, or for every one but the owner.
        """
        row, holders = b"".join(value for _, value in values), self._holders(owner)
        if len(values) < len(holders):
            own = self._size * bisect_left(holders, owner)
            row = row[:own] + bytes(self._size) + row[own:]
        self._rows[owner] = row

    def get(self, owner: int, other: int) -> bytes:
        """Return one value, for a holder; zeros where `put` had none."""
        start = self._size * bisect_left(self._holders(owner), other)
        return self._rows[owner][start : start + self._size]
