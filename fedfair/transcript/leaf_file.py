"""The leaves of a run's transcript in a file: at the aggregator, and in each site's own folder of the run.

    magic, number of leaves before the first record (8 bytes, big-endian), their peaks, then leaf after leaf

The frontier of a run's state says which leaves there must be. A file that has more, because what came after them
was not kept, is cut; one that lacks some, or is of another run, is put aside, and a new one begins at the present
frontier: from it every later leaf can be proven.
"""

from __future__ import annotations

import struct
from pathlib import Path

from fedfair.errors import AuditError
from fedfair.store.fixed_records import FixedRecords, read_records
from fedfair.transcript.leaf import LEAF_BYTES, AddedLeaves, TranscriptLeaf, decode_leaf, summed_in
from fedfair.transcript.merkle import HASH_BYTES, LeafHashes, MerkleFrontier, leaf_hash

MAGIC = b"fedfair/leaves/1"
FILE = "leaves.bin"
_SIZE = struct.Struct(">Q")


class Leaves:
    """The leaves of a file.

    Attributes:
        begun: the tree before the first of them.
        raw: their bytes, in order.

    Raises:
        AuditError: there is no such file, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.begun = _frontier(path)
        try:
            self.raw = list(read_records(path, _header_bytes(self.begun), LEAF_BYTES))
        except OSError as error:
            raise _unreadable(path, str(error)) from error

    @property
    def hashes(self) -> LeafHashes:
        """Return what proofs are made of."""
        return LeafHashes(self.begun, [leaf_hash(raw) for raw in self.raw])

    def places(self, kind: str, number: int | None = None) -> list[int]:
        """Return the places of the leaves of a kind, in order.

        Args:
            kind: of `TranscriptLeaf`.
            number: their round; None for any.
        """
        found = enumerate(map(summed_in, self.raw), start=self.begun.size)
        return [place for place, (word, done) in found if word == kind and number in (None, done)]

    def leaf(self, place: int) -> TranscriptLeaf:
        """Return a leaf by its place in the whole tree, from 0.

        Raises:
            ValueError: it is not in the file, or is damaged.
        """
        at = place - self.begun.size
        if not 0 <= at < len(self.raw):
            raise ValueError(f"leaf {place} is not among {self.begun.size} to {self.begun.size + len(self.raw)}")
        return decode_leaf(self.raw[at])


def _header(begun: MerkleFrontier) -> bytes:
    return MAGIC + _SIZE.pack(begun.size) + b"".join(begun.peaks)


def _header_bytes(begun: MerkleFrontier) -> int:
    return len(MAGIC) + _SIZE.size + len(begun.peaks) * HASH_BYTES


def _frontier(path: Path) -> MerkleFrontier:
    """Return the tree before the first leaf of a file."""
    try:
        with path.open("rb") as source:
            if source.read(len(MAGIC)) != MAGIC:
                raise _unreadable(path, "it is no file of leaves, or one of another version of fedfair")
            (size,) = _SIZE.unpack(source.read(_SIZE.size))
            peaks = [source.read(HASH_BYTES) for _ in range(size.bit_count())]
    except (OSError, struct.error) as error:
        raise _unreadable(path, str(error)) from error
    try:
        return MerkleFrontier(size, tuple(peaks))
    except ValueError as error:
        raise _unreadable(path, str(error)) from error


class LeafFile:
    """The file of leaves of a run that is under way.

    Args:
        path: where it is; its folder exists when the first leaf comes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree: MerkleFrontier | None = None
        self._records: FixedRecords | None = None

    def append(self, added: AddedLeaves) -> None:
        """Append what a sum has added; where the file ends elsewhere, it is cut, or begun anew.

        Raises:
            OSError: it cannot be written; the next leaves are tried again.
        """
        if self._records is None or self._tree != added.before:
            self._records = _continued(self._path, added.before) or _begun(self._path, added.before)
        self._tree = None
        self._records.append([leaf.encode() for leaf in added.leaves])
        self._tree = added.tree

    def sync(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            OSError: the disk fails.
        """
        if self._records is not None:
            self._records.sync()


def _continued(path: Path, tree: MerkleFrontier) -> FixedRecords | None:
    """Return a file, cut to the leaves of a tree; None where it is not a file of this tree."""
    try:
        found = Leaves(path)
    except AuditError:
        return None
    count = tree.size - found.begun.size
    if not 0 <= count <= len(found.raw):
        return None
    grown = found.begun
    for raw in found.raw[:count]:
        grown = grown.including(leaf_hash(raw))
    if grown != tree:
        return None
    return FixedRecords(path, LEAF_BYTES, _header_bytes(found.begun), count)


def _begun(path: Path, tree: MerkleFrontier) -> FixedRecords:
    """Return a new file after a tree; one that was there before is put aside."""
    if path.exists():
        path.replace(path.with_name(f"{path.stem}-{tree.size}{path.suffix}"))
    return FixedRecords.begun(path, LEAF_BYTES, _header(tree))


def _unreadable(path: Path, why: str) -> AuditError:
    return AuditError(f"{path} cannot be read: {why}", "take the leaves of the run from whoever has them whole")
