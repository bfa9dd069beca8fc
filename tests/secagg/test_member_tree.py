"""The digest of all members, and the proofs of what some of them have advertised."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.member_tree import MemberTree, leaf, root_of
from fedfair.secagg.message_costs import _proof
from fedfair.secagg.transcript import DIGEST_BYTES, digest


def leaves_of(members: list[int]) -> dict[int, bytes]:
    return {member: leaf(member, (b"key %d" % member,)) for member in members}


some_members = st.lists(st.integers(1, 1000), min_size=1, max_size=40, unique=True).map(sorted)


def test_a_tree_of_three_by_hand() -> None:
    one, two, three = (leaf(member, (b"k",)) for member in (2, 5, 9))
    tree = MemberTree({2: one, 5: two, 9: three})
    assert tree.root == digest("members", one, digest("members", two, three))
    assert tree.proof((5,)) == (one, three)
    assert tree.proof((2,)) == (digest("members", two, three),)
    assert tree.proof((2, 5, 9)) == ()


@given(some_members, st.data())
def test_whoever_is_shown_some_members_finds_the_one_root(members: list[int], data: st.DataObject) -> None:
    leaves = leaves_of(members)
    tree = MemberTree(leaves)
    shown = sorted(data.draw(st.sets(st.sampled_from(members), min_size=1)))
    proof = tree.proof(shown)
    assert root_of(members, {one: leaves[one] for one in shown}, proof) == tree.root
    assert DIGEST_BYTES * len(proof) <= _proof(len(members), len(shown))


@given(some_members, st.data())
def test_another_advertisement_another_proof_or_another_member_gives_another_root(
    members: list[int], data: st.DataObject
) -> None:
    leaves = leaves_of(members)
    tree = MemberTree(leaves)
    shown = sorted(data.draw(st.sets(st.sampled_from(members), min_size=1)))
    known, proof = {one: leaves[one] for one in shown}, tree.proof(shown)
    liar = data.draw(st.sampled_from(shown))
    assert root_of(members, {**known, liar: leaf(liar, (b"another key",))}, proof) != tree.root
    assert leaf(liar, (b"key",)) != leaf(liar + 1, (b"key",))
    for place in range(len(proof)):
        changed = (*proof[:place], hashlib.sha256(proof[place]).digest(), *proof[place + 1 :])
        assert root_of(members, known, changed) != tree.root
    for wrong in (proof[:-1] if proof else (bytes(DIGEST_BYTES),), (*proof, bytes(DIGEST_BYTES))):
        with pytest.raises(SecaggError) as refused:
            root_of(members, known, wrong)
        assert refused.value.check is Check.ENCODING


def test_a_node_is_no_leaf() -> None:
    # Two members that advertised what looks like a node would otherwise stand for four.
    leaves = leaves_of([1, 2, 3, 4])
    tree = MemberTree(leaves)
    left, right = tree.proof((3, 4))[0], tree.proof((1, 2))[0]
    assert MemberTree({1: left, 2: right}).root == tree.root
    assert leaf(1, (leaves[1], leaves[2])) != left
