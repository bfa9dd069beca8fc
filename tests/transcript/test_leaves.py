"""The leaves of a run: one for each opened sum, in every actor's state alike, and a file of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from fedfair.errors import AuditError
from fedfair.plan.digest import canonical_plan
from fedfair.run.packed_state import pack_state, unpack_state
from fedfair.statistics.statistic import When
from fedfair.statistics.table import purpose_named
from fedfair.transcript.checkpoints import IN_A_RUN, Checkpoints
from fedfair.transcript.leaf import BEGIN, LEAF_BYTES, NO_PLAN, AddedLeaves, TranscriptLeaf, decode_leaf
from fedfair.transcript.leaf_file import LeafFile, Leaves
from fedfair.transcript.merkle import MerkleFrontier, leaf_hash
from tests.transcript.played import LAYOUT, SITES, Play, plan_of

LEAF = TranscriptLeaf("training", 7, 3, *(bytes([number]) * 32 for number in (1, 2, 3, 4, 5)))


def tree_of(leaves: list[TranscriptLeaf]) -> MerkleFrontier:
    tree = MerkleFrontier()
    for leaf in leaves:
        tree = tree.including(leaf_hash(leaf.encode()))
    return tree


def test_every_fact_of_a_leaf_is_in_its_bytes_and_comes_back() -> None:
    assert decode_leaf(LEAF.encode()) == LEAF
    assert len(LEAF.encode()) == LEAF_BYTES
    others = [
        replace(
            LEAF, **{one.name: bytes([9]) * 32 if one.type == "bytes" else 8 if one.type == "int" else "slices"}
        )
        for one in fields(LEAF)
    ]
    assert len({leaf.encode() for leaf in (LEAF, *others)}) == len(fields(LEAF)) + 1
    raw = LEAF.encode()
    for wrong in (raw[:-1], raw + b"\0", b"x" + raw[1:], raw[:30] + b"\xff" + raw[31:]):
        with pytest.raises(ValueError, match=r"leaf|decode"):
            decode_leaf(wrong)


def test_a_run_has_a_leaf_for_its_beginning_and_for_each_sum() -> None:
    play = Play()
    begun = play.run.state.digest(NO_PLAN)
    assert play.run.state.tree is None
    play.finish()
    first, *sums = play.leaves
    assert sums[-1].model == play.run.state.model.vector_sha256 != first.model
    assert (first.kind, first.state, first.totals) == (BEGIN, begun, LAYOUT.digest)
    assert first.request == hashlib.sha256(canonical_plan(play.plan)).digest()
    assert [(leaf.kind, leaf.round, leaf.contributors) for leaf in sums] == [
        ("evaluation", 0, 2), ("training", 1, 2), ("training", 2, 2), ("evaluation", 2, 2), ("training", 3, 2),
        ("evaluation", 3, 2),
    ]  # fmt: skip
    assert sums[0].state == begun
    assert len({leaf.state for leaf in sums}) == len(sums)
    assert play.run.state.tree == tree_of(play.leaves)


@pytest.mark.parametrize(
    ("scale", "members"), [(1.0 + 2**-52, SITES), (1.0, SITES[:1])], ids=["another total", "other members"]
)
def test_two_actors_that_were_told_anything_else_have_other_roots(scale: float, members: tuple[str, ...]) -> None:
    one, other = Play(), Play()
    for play, told in ((one, (1.0, SITES)), (other, (scale, members))):
        play.sum()
        play.sum(*told)
    assert one.leaves[:2] == other.leaves[:2]
    assert one.run.state.tree != other.run.state.tree
    assert one.replica.digest != other.replica.digest


def test_the_transcript_is_in_the_state_that_a_late_site_takes() -> None:
    play = Play()
    play.sum()
    play.sum()
    packed = b"".join(pack_state(play.run.state))
    assert unpack_state(packed, play.run.initial).tree == play.run.state.tree
    late = Play()
    late.replica.offer(packed)
    late.replica.take_vouched(play.replica.digest)
    assert late.replica.digest == play.replica.digest
    for one in (play, late):
        one.sum()
    assert late.run.state.tree == play.run.state.tree
    # Another history that leads to the same model is another state, which nobody has signed.
    forged = json.dumps([peak.hex() for peak in play.run.state.tree.peaks]) if play.run.state.tree else ""
    assert forged
    other = Play()
    swapped = replace(play.run.state, tree=tree_of([LEAF, LEAF, LEAF, LEAF]))
    other.replica.offer(b"".join(pack_state(swapped)))
    with pytest.raises(Exception, match="was sent no copy of theirs"):
        other.replica.take_vouched(play.replica.digest)


# ------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize(
    ("rounds", "every"), [(1, 1), (3, 2), (50, 1), (51, 1), (1000, 7), (1000, 300), (10**4, 1)]
)
def test_there_are_some_fifty_checkpoints_and_each_is_an_evaluation(rounds: int, every: int) -> None:
    checkpoints = Checkpoints(plan_of(rounds, every))
    evaluated = [done for done in range(rounds + 1) if done % every == 0 or done == rounds]
    due = [done for done in evaluated if checkpoints.is_due(replace(LEAF, kind="evaluation", round=done))]
    assert due[0] == 0
    assert len(due) <= IN_A_RUN + 2
    interval = max(every, -(-rounds // IN_A_RUN))
    assert max(right - left for left, right in zip(due, [*due[1:], rounds], strict=True)) <= interval + every
    assert not checkpoints.is_due(replace(LEAF, round=0))
    assert not checkpoints.is_due(replace(LEAF, kind=BEGIN, round=0))
    assert purpose_named("evaluation").statistic.when is When.EVERY


# ------------------------------------------------------------------ the file


def added(leaves: list[TranscriptLeaf], start: int, stop: int) -> AddedLeaves:
    return AddedLeaves(tree_of(leaves[:start]), tuple(leaves[start:stop]))


MANY = [replace(LEAF, round=number) for number in range(12)]


def test_a_file_of_leaves_is_continued_cut_or_begun_anew_where_the_run_stands(tmp_path: Path) -> None:
    path = tmp_path / "leaves.bin"
    file = LeafFile(path)
    for number in range(7):
        file.append(added(MANY, number, number + 1))
    file.sync()
    # Killed in the middle of a record.
    with path.open("ab") as torn:
        torn.write(MANY[7].encode()[:50])
    again = LeafFile(path)
    again.append(added(MANY, 7, 9))
    assert Leaves(path).raw == [leaf.encode() for leaf in MANY[:9]]
    # Put back to an earlier state.
    LeafFile(path).append(added(MANY, 5, 6))
    found = Leaves(path)
    assert found.raw == [leaf.encode() for leaf in MANY[:6]]
    assert (found.leaf(5), found.hashes.root()) == (MANY[5], tree_of(MANY[:6]).root)
    # A state was taken over: what came before is put aside, and the file begins at its frontier.
    late = LeafFile(path)
    late.append(added(MANY, 10, 12))
    found = Leaves(path)
    assert (found.begun, found.raw) == (tree_of(MANY[:10]), [leaf.encode() for leaf in MANY[10:]])
    assert found.hashes.root() == tree_of(MANY).root
    assert found.leaf(11) == MANY[11]
    assert len(Leaves(tmp_path / "leaves-10.bin").raw) == 6
    with pytest.raises(ValueError, match="leaf 9 is not among 10 to 12"):
        found.leaf(9)
    # Leaves of another run are not continued, however many they are.
    LeafFile(path).append(added(MANY, 0, 6))
    other = [replace(leaf, contributors=9) for leaf in MANY]
    LeafFile(path).append(added(other, 3, 4))
    found = Leaves(path)
    assert (found.begun, found.raw) == (tree_of(other[:3]), [other[3].encode()])
    LeafFile(path).append(added(other, 0, 2))
    assert Leaves(path).raw == [leaf.encode() for leaf in other[:2]]


@pytest.mark.parametrize("content", [None, b"", b"x" * 40, b"fedfair/leaves/1" + b"\0" * 7 + b"\1"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "leaves.bin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AuditError, match=r"leaves\.bin cannot be read"):
        Leaves(path)
    LeafFile(path).append(added(MANY, 0, 1))
    assert Leaves(path).raw == [MANY[0].encode()]
