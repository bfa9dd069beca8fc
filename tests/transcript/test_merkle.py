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
    is_consistent,
    is_included,
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


def slow_path(m: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Return PATH of section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = max(2**power for power in range(64) if 2**power < len(leaves))
    if m < k:
        return [*slow_path(m, leaves[:k]), slow_root(leaves[k:])]
    return [*slow_path(m - k, leaves[k:]), slow_root(leaves[:k])]


def slow_proof(m: int, leaves: Sequence[bytes], *, whole: bool = True) -> list[bytes]:
    """Return SUBPROOF of section 2.1.4.1."""
    if m == len(leaves):
        return [] if whole else [slow_root(leaves)]
    k = max(2**power for power in range(64) if 2**power < len(leaves))
    if m <= k:
        return [*slow_proof(m, leaves[:k], whole=whole), slow_root(leaves[k:])]
    return [*slow_proof(m - k, leaves[k:], whole=False), slow_root(leaves[:k])]


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
    for leaf, size, path in VECTORS["inclusion"]:
        found = tree.inclusion(leaf, size)
        assert [node.hex() for node in found] == path
        assert is_included(leaf_hash(INPUTS[leaf]), leaf, size, found, ROOTS[size - 1])
    for earlier, size, path in VECTORS["consistency"]:
        proof = tree.consistency(earlier, size)
        assert [node.hex() for node in proof] == path
        assert is_consistent(earlier, size, proof, ROOTS[earlier - 1], ROOTS[size - 1])


LEAVES = st.lists(st.binary(max_size=3), min_size=1, max_size=70)


@given(LEAVES, st.data())
def test_proofs_are_those_of_the_definition_from_whatever_frontier_they_are_made(
    leaves: list[bytes], data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(leaves)))
    leaf, earlier = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    before = data.draw(st.integers(0, min(leaf, earlier)))
    tree, root = known(leaves, before), slow_root(leaves[:size])
    assert grown(leaves).root == slow_root(leaves) == tree.root()
    path, proof = tree.inclusion(leaf, size), tree.consistency(earlier, size)
    assert path == slow_path(leaf, leaves[:size])
    assert proof == slow_proof(earlier, leaves[:size])
    assert is_included(leaf_hash(leaves[leaf]), leaf, size, path, root)
    assert is_consistent(earlier, size, proof, slow_root(leaves[:earlier]), root)


@given(LEAVES, st.data())
def test_no_changed_proof_is_believed(leaves: list[bytes], data: st.DataObject) -> None:
    size, tree = len(leaves), known(leaves)
    leaf, earlier = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    path, proof, root = tree.inclusion(leaf, size), tree.consistency(earlier, size), tree.root()
    other = data.draw(st.binary(min_size=32, max_size=32))

    def changed(nodes: list[bytes]) -> list[list[bytes]]:
        swapped = [[*nodes[:at], other, *nodes[at + 1 :]] for at in range(len(nodes))]
        cut = [nodes[:at] + nodes[at + 1 :] for at in range(len(nodes))]
        return [*swapped, *cut, [*nodes, other], [other, *nodes], [*nodes, b"short"]]

    for wrong in changed(path):
        assert not is_included(leaf_hash(leaves[leaf]), leaf, size, wrong, root)
    for wrong in changed(proof):
        assert not is_consistent(earlier, size, wrong, tree.root(earlier), root)
    assert not is_included(other, leaf, size, path, root)
    assert not is_included(leaf_hash(leaves[leaf]), leaf, size, path, other)
    assert not is_included(leaf_hash(leaves[leaf]), size, size, path, root)
    assert not is_included(leaf_hash(leaves[leaf]), -1, size, path, root)
    assert not is_consistent(earlier, size, proof, other, root)
    assert not is_consistent(earlier, size, proof, tree.root(earlier), other)
    assert not is_consistent(0, size, [], EMPTY_ROOT, root)
    assert not is_consistent(size + 1, size, [], root, root)


def test_a_proof_for_a_smaller_tree_is_none_for_a_larger_one() -> None:
    tree, leaf = known(INPUTS), leaf_hash(INPUTS[0])
    path, proof = tree.inclusion(0, 4), tree.consistency(2, 4)
    assert is_included(leaf, 0, 4, path, ROOTS[3])
    assert not is_included(leaf, 0, 8, path, ROOTS[3])
    assert not is_included(leaf, 0, 2, path, ROOTS[3])
    assert is_consistent(2, 4, proof, ROOTS[1], ROOTS[3])
    assert not is_consistent(2, 8, proof, ROOTS[1], ROOTS[3])


def test_what_is_not_known_is_not_proven() -> None:
    tree = known(INPUTS, before=5)
    for leaf in range(5):
        # The fifth leaf is a perfect subtree by itself, and a part of no larger one yet.
        if leaf < 4:
            with pytest.raises(ValueError, match="before those that are known"):
                tree.inclusion(leaf, 8)
    for leaf, size in ((8, 8), (0, 9), (-1, 8)):
        with pytest.raises(ValueError, match=r"leaves|of a tree"):
            tree.inclusion(leaf, size)
    for earlier, size in ((0, 8), (8, 7), (3, 9)):
        with pytest.raises(ValueError, match="leaves"):
            tree.consistency(earlier, size)
    with pytest.raises(ValueError, match="before those"):
        tree.root(3)


def test_a_frontier_has_a_peak_for_each_bit_of_its_size() -> None:
    for size, peaks in ((1, ()), (3, (bytes(32),)), (2, (bytes(31),)), (-1, ()), (1 << 63, (bytes(32),))):
        with pytest.raises(ValueError, match="peaks of a tree"):
            MerkleFrontier(size, peaks)
    assert [(first, leaves) for first, leaves, _ in grown(INPUTS[:7]).subtrees()] == [(0, 4), (4, 2), (6, 1)]
