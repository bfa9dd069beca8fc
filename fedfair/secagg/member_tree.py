"""One digest of what all members of a set-up have advertised, and short proofs of what some of them have.

A binary tree over the members in order of the roster. Whoever knows the root and who is in the tree can check what
any of them has advertised, given the digests of those parts of the tree in which no member is shown: about
m log2(n / m) of them for m of n members. With all members shown there is none, and the root is checked all the
same. Leaves and nodes have labels of their own, and the places are those of the members, so one root has one
reading. Who must be shown to whom is for `session_graph` to say. Source: Merkle 1987; labels as in RFC 6962.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.transcript import digest, u16


def leaf(member: int, advertised: Iterable[bytes]) -> bytes:
    """Return the digest (32 bytes) of what a member has advertised."""
    return digest("member", u16(member), *advertised)


class MemberTree:
    """The whole tree, in the hands of whoever has everything that was advertised.

    Args:
        leaves: `leaf` of every member, by roster index; at least one.

    Attributes:
        members: who is in it, increasing.
        root: 32 bytes.
    """

    __slots__ = ("_nodes", "members", "root")

    def __init__(self, leaves: Mapping[int, bytes]) -> None:
        self.members = tuple(sorted(leaves))
        self._nodes: dict[tuple[int, int], bytes] = {}
        self.root = self._digest(0, len(self.members), leaves)

    def proof(self, shown: Sequence[int]) -> tuple[bytes, ...]:
        """Return what `root_of` needs beside the leaves of those shown, who are members, increasing."""
        places = [bisect_left(self.members, member) for member in shown]
        return tuple(self._hidden(0, len(self.members), places))

    def _digest(self, start: int, stop: int, leaves: Mapping[int, bytes]) -> bytes:
        if stop - start == 1:
            found = leaves[self.members[start]]
        else:
            middle = (start + stop) // 2
            left, right = self._digest(start, middle, leaves), self._digest(middle, stop, leaves)
            found = digest("members", left, right)
        self._nodes[start, stop] = found
        return found

    def _hidden(self, start: int, stop: int, places: Sequence[int]) -> Iterator[bytes]:
        if not _any_within(places, start, stop):
            yield self._nodes[start, stop]
        elif stop - start > 1:
            middle = (start + stop) // 2
            yield from self._hidden(start, middle, places)
            yield from self._hidden(middle, stop, places)


def root_of(members: Sequence[int], leaves: Mapping[int, bytes], proof: Sequence[bytes]) -> bytes:
    """Return the one root (32 bytes) under which these members have these leaves.

    Args:
        members: who is in the tree, increasing; at least one.
        leaves: `leaf` of those who are shown, all of them members, by roster index.
        proof: of the parts of the tree in which no member is shown, from left to right.

    Raises:
        SecaggError: ENCODING: another number of digests is due.
    """
    places = [bisect_left(members, member) for member in sorted(leaves)]
    hidden = iter(proof)

    def fold(start: int, stop: int) -> bytes:
        if not _any_within(places, start, stop):
            found = next(hidden, b"")
            if not found:
                raise SecaggError(Check.ENCODING, f"a proof of {len(proof)} digests about {len(members)} members")
            return found
        if stop - start == 1:
            return leaves[members[start]]
        middle = (start + stop) // 2
        return digest("members", fold(start, middle), fold(middle, stop))

    root = fold(0, len(members))
    words = f"a proof of {len(proof)} digests about {len(members)} members, of whom {len(leaves)} are shown"
    require(next(hidden, None) is None, Check.ENCODING, words)
    return root


def _any_within(places: Sequence[int], start: int, stop: int) -> bool:
    found = bisect_left(places, start)
    return found < len(places) and places[found] < stop
