"""The Merkle tree against the published vectors, and against the definitions of RFC 9162 written down slowly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.transcript.merkle import (
    EMPTY_ROOT,
    LeafHashes,
    MerkleFrontier,
    leaf_hash,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "merkle.json").read_text(encoding="utf-8"))
INPUTS = [bytes.fromhex(text) for text in VECTORS["inputs"]]
ROOTS = [bytes.fromhex(text) for text in VECTORS["roots"]]
NOTHING = MerkleFrontier()


def slow_root(leaves: Sequence[bytes]) -> bytes:
    """Return MTH of section 2.1.1, word by word."""
    if len(leaves) <= 1:
        return hashlib.sha256(b"\0" + leaves[0] if leaves else b"").digest()
    k = max(2**power for power in range(64) if 2**power < len(leaves))
    return hashlib.sha256(b"\1" + slow_root(leaves[:k]) + slow_root(leaves[k:])).digest()


def grown(leaves: Sequence[bytes], begun: MerkleFrontier = NOTHING) -> MerkleFrontier:
    for leaf in leaves:
        begun = begun.including(leaf_hash(leaf))
    return begun


def known(leaves: Sequence[bytes], before: int = 0) -> LeafHashes:
    return LeafHashes(grown(leaves[:before]), [leaf_hash(leaf) for leaf in leaves[before:]])


def test_the_published_vectors() -> None:
    tree = known(INPUTS)
    assert bytes.fromhex(VECTORS["empty"]) == EMPTY_ROOT == NOTHING.root == tree.root(0)
    for size, root in enumerate(ROOTS, start=1):
        assert tree.root(size) == grown(INPUTS[:size]).root == root


LEAVES = st.lists(st.binary(max_size=3), min_size=1, max_size=70)


@given(LEAVES, st.data())
def test_roots_are_those_of_the_definition_from_whatever_frontier(
    leaves: list[bytes], data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(leaves)))
    before = data.draw(st.integers(0, size))
    assert grown(leaves).root == slow_root(leaves)
    assert known(leaves, before).root(size) == slow_root(leaves[:size])


def test_what_is_not_known_has_no_root() -> None:
    with pytest.raises(ValueError, match="before those"):
        known(INPUTS, before=5).root(3)
    with pytest.raises(ValueError, match="a tree of 9 leaves, 8 are known"):
        known(INPUTS).root(9)


def test_a_frontier_has_a_peak_for_each_bit_of_its_size() -> None:
    for size, peaks in ((1, ()), (3, (bytes(32),)), (2, (bytes(31),)), (-1, ()), (1 << 63, (bytes(32),))):
        with pytest.raises(ValueError, match="peaks of a tree"):
            MerkleFrontier(size, peaks)
    assert [(first, leaves) for first, leaves, _ in grown(INPUTS[:7]).subtrees()] == [(0, 4), (4, 2), (6, 1)]
