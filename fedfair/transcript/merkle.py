"""The Merkle tree of RFC 9162, section 2.1, over SHA-256: roots, inclusion proofs, consistency proofs, a frontier.

    MTH({}) = SHA-256()      MTH({d}) = SHA-256(0x00 || d)
    MTH(D[n]) = SHA-256(0x01 || MTH(D[0:k]) || MTH(D[k:n])), k the largest power of two below n

A frontier is all that is kept to take further leaves: the roots of the perfect subtrees that the leaves so far
make up, from the left, one for each bit of their number. Proofs are made of a frontier and of the hashes of the
leaves after it, so nobody needs the leaves before it to prove what came later. Leaves are named by their place.
Which bytes a leaf has is `leaf.py`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256().digest()
"""The root of a tree without leaves."""

_LEAF, _NODE = b"\x00", b"\x01"
MAX_LEAVES = 1 << 63


def leaf_hash(leaf: bytes) -> bytes:
    """Return the 32 bytes that stand for one leaf."""
    return hashlib.sha256(_LEAF + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the 32 bytes of the node above two nodes."""
    return hashlib.sha256(_NODE + left + right).digest()


@dataclass(frozen=True, slots=True)
class MerkleFrontier:
    """A tree to which leaves can be added, and no more of it than that takes.

    Attributes:
        size: leaves so far.
        peaks: 32 bytes for each bit of `size` that is set, the root of the perfect subtree of so many leaves, the
            largest and leftmost first.

    Raises:
        ValueError: the peaks are not those of so many leaves.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Check the number and the length of the peaks."""
        whole = all(isinstance(peak, bytes) and len(peak) == HASH_BYTES for peak in self.peaks)
        if not 0 <= self.size < MAX_LEAVES or self.size.bit_count() != len(self.peaks) or not whole:
            raise ValueError(f"{len(self.peaks)} peaks of a tree of {self.size} leaves")

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes."""
        if not self.peaks:
            return EMPTY_ROOT
        *rest, root = self.peaks
        for peak in reversed(rest):
            root = node_hash(peak, root)
        return root

    def including(self, leaf: bytes) -> MerkleFrontier:
        """Return the tree with one more leaf, in at most log2(size) + 1 hashes.

        Args:
            leaf: the hash of the leaf, 32 bytes.
        """
        peaks, size, node = list(self.peaks), self.size, leaf
        while size & 1:
            node, size = node_hash(peaks.pop(), node), size >> 1
        return MerkleFrontier(self.size + 1, (*peaks, node))

    def subtrees(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield first leaf, number of leaves and root of each perfect subtree, from the left."""
        first = 0
        for peak in self.peaks:
            leaves = 1 << ((self.size - first).bit_length() - 1)
            yield first, leaves, peak
            first += leaves


class LeafHashes:
    """The hashes of the leaves after a frontier: what proofs are made of.

    Args:
        begun: the tree before the first of them.
        hashes: of the leaves after it, 32 bytes each.
    """

    def __init__(self, begun: MerkleFrontier, hashes: Sequence[bytes]) -> None:
        self._begun, self._hashes = begun, hashes
        self._known = {(first, first + leaves): root for first, leaves, root in begun.subtrees()}

    @property
    def size(self) -> int:
        """Return the number of leaves of the whole tree."""
        return self._begun.size + len(self._hashes)

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first leaves.

        Args:
            size: how many; None for all.

        Raises:
            ValueError: there are fewer, or what it takes of them is not known.
        """
        size = self.size if size is None else size
        return self._hash(0, self._checked(size)) if size else EMPTY_ROOT

    def inclusion(self, leaf: int, size: int) -> list[bytes]:
        """Return the proof that a leaf is in the tree of the first leaves: PATH of RFC 9162, section 2.1.3.1.

        Args:
            leaf: its place, from 0.
            size: of the tree.

        Raises:
            ValueError: there is no such leaf, or it lies before those that are known.
        """
        if not 0 <= leaf < self._checked(size):
            raise ValueError(f"leaf {leaf} of a tree of {size}")
        path = list[bytes]()
        first, end = 0, size
        while end - first > 1:
            middle = first + _split(end - first)
            if leaf < middle:
                path.append(self._hash(middle, end))
                end = middle
            else:
                path.append(self._hash(first, middle))
                first = middle
        return path[::-1]

    def consistency(self, earlier: int, size: int) -> list[bytes]:
        """Return the proof that a tree begins with an earlier one: PROOF of RFC 9162, section 2.1.4.1.

        Args:
            earlier: leaves of the earlier tree, at least 1.
            size: leaves of the later one.

        Raises:
            ValueError: the earlier tree has none or more, or ends before the leaves that are known.
        """
        if not 0 < earlier <= self._checked(size):
            raise ValueError(f"a tree of {size} leaves after one of {earlier}")
        path = list[bytes]()
        first, end, whole = 0, size, True
        while end != earlier:
            middle = first + _split(end - first)
            if earlier <= middle:
                path.append(self._hash(middle, end))
                end = middle
            else:
                path.append(self._hash(first, middle))
                first, whole = middle, False
        if not whole:
            path.append(self._hash(first, end))
        return path[::-1]

    def _checked(self, size: int) -> int:
        if not 0 <= size <= self.size:
            raise ValueError(f"a tree of {size} leaves, {self.size} are known")
        return size

    def _hash(self, first: int, end: int) -> bytes:
        """Return the root over some leaves; recursion is as deep as the tree."""
        known = self._known.get((first, end))
        if known is not None:
            return known
        if end - first > 1:
            middle = first + _split(end - first)
            # Kept, because several proofs of one tree go over the same nodes.
            root = self._known[first, end] = node_hash(self._hash(first, middle), self._hash(middle, end))
            return root
        if first < self._begun.size:
            raise ValueError(f"leaf {first} lies before those that are known")
        return self._hashes[first - self._begun.size]


def _split(leaves: int) -> int:
    """Return the largest power of two below a number of leaves, at least 2."""
    return 1 << ((leaves - 1).bit_length() - 1)


def is_included(leaf: bytes, place: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Return whether a proof shows that a leaf is in the tree of a root: RFC 9162, section 2.1.3.2.

    Args:
        leaf: the hash of the leaf.
        place: where it is, from 0.
        size: leaves of the tree.
        path: the proof; anything that somebody has sent.
        root: of the tree.
    """
    if not 0 <= place < size or any(len(node) != HASH_BYTES for node in path):
        return False
    at, last, found = place, size - 1, leaf
    for node in path:
        if not last:
            return False
        if at & 1 or at == last:
            found = node_hash(node, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, node)
        at, last = at >> 1, last >> 1
    return not last and found == root


def is_consistent(earlier: int, size: int, path: Sequence[bytes], earlier_root: bytes, root: bytes) -> bool:
    """Return whether a proof shows that one tree begins with another: RFC 9162, section 2.1.4.2.

    Args:
        earlier: leaves of the earlier tree, at least 1.
        size: leaves of the later one.
        path: the proof; anything that somebody has sent.
        earlier_root: of the earlier tree.
        root: of the later one.
    """
    if not 0 < earlier <= size or any(len(node) != HASH_BYTES for node in path):
        return False
    if earlier == size:
        return not path and earlier_root == root
    nodes = list(path) if earlier & (earlier - 1) else [earlier_root, *path]
    if not nodes:
        return False
    at, last = earlier - 1, size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    older = newer = nodes[0]
    for node in nodes[1:]:
        if not last:
            return False
        if at & 1 or at == last:
            older, newer = node_hash(node, older), node_hash(node, newer)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            newer = node_hash(newer, node)
        at, last = at >> 1, last >> 1
    return not last and older == earlier_root and newer == root
