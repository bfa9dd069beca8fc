"""An aggregator, or who holds its files, claims another history of a run: who has the sites' keys believes none.

Two sites that were shown different sums, a site that signs another root, and statements that are old or of another
run are in `tests/transcript/test_witnessed_run.py`; here is what the evidence itself cannot be made to say later.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedfair.errors import AuditError
from fedfair.transcript.evidence import read_evidence
from fedfair.transcript.leaf import AddedLeaves, TranscriptLeaf
from fedfair.transcript.leaf_file import LeafFile, Leaves
from fedfair.transcript.merkle import MerkleFrontier
from fedfair.transcript.proof import RunProof, make_proof
from fedfair.transcript.proof_check import check_proof
from tests.transcript.played import Play, plan_of
from tests.transcript.test_witnessed_run import PUBLIC, Federation


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    found = Federation(tmp_path_factory.mktemp("run"), plan_of(rounds=6, every=2))
    found.finish()
    return found


def claimed(run: Federation, leaves: list[TranscriptLeaf], folder: Path, *places: int) -> RunProof:
    """Return what the holder of the evidence makes of another list of leaves, with roots that fit it."""
    path = folder / "leaves.bin"
    LeafFile(path).append(AddedLeaves(MerkleFrontier(), tuple(leaves)))
    evidence, forged = read_evidence(run.folder / "save" / "transcript.json"), Leaves(path)
    assert evidence.present is not None
    evidence.present = replace(evidence.present, leaves=len(leaves), root=forged.hashes.root())
    return make_proof(evidence, forged, places)


def changed(run: Federation, how: str) -> list[TranscriptLeaf]:
    leaves = list(run.lead.leaves)
    match how:
        case "a sum is dropped":
            del leaves[4]
        case "a sum is repeated":
            leaves.insert(4, leaves[4])
        case "two sums change places":
            leaves[3], leaves[4] = leaves[4], leaves[3]
        case "another total":
            leaves[4] = replace(leaves[4], totals=bytes(32))
        case "another site is in it":
            leaves[4] = replace(leaves[4], members=bytes(32))
        case "another plan":
            leaves[0] = replace(leaves[0], request=bytes(32))
        case _:
            leaves.append(leaves[-1])
    return leaves


@pytest.mark.parametrize(
    "how",
    ["a sum is dropped", "a sum is repeated", "two sums change places", "another total", "another site is in it",
     "another plan", "a sum more"],
)  # fmt: skip
def test_no_other_history_has_the_root_that_the_sites_have_signed(
    run: Federation, tmp_path: Path, how: str
) -> None:
    assert check_proof(claimed(run, run.lead.leaves, tmp_path, 4), PUBLIC, plan=run.lead.plan).signed
    leaves = changed(run, how)
    proof = claimed(run, leaves, tmp_path, 4)
    with pytest.raises(AuditError, match="root: clinic-a has signed the root"):
        check_proof(proof, PUBLIC)
    # With the true root in front, the leaves do not lead to it.
    honest = claimed(run, run.lead.leaves, tmp_path, 4)
    mixed = replace(honest, sums=proof.sums[-1:])
    if proof.sums[-1].raw != run.lead.leaves[4].encode() or proof.leaves != honest.leaves:
        with pytest.raises(AuditError, match="sum: leaf 4 is not in the tree"):
            check_proof(mixed, PUBLIC)


def test_a_model_that_was_replaced_after_the_end_is_not_the_run_s(run: Federation) -> None:
    evidence = read_evidence(run.folder / "save" / "transcript.json")
    assert evidence.present is not None
    evidence.present = replace(evidence.present, model=bytes(32))
    proof = make_proof(evidence, Leaves(run.folder / "save" / "leaves.bin"))
    with pytest.raises(AuditError, match="root: clinic-a has signed another model"):
        check_proof(proof, PUBLIC, model=bytes(32))
    with pytest.raises(AuditError, match="model: this model is"):
        check_proof(replace(proof, model=run.lead.run.model.vector_sha256), PUBLIC, model=bytes(32))


def test_a_history_that_was_rewritten_after_a_checkpoint_does_not_continue_from_it(run: Federation) -> None:
    other = Play(run.lead.plan)
    other.sum(3.0)
    other.finish()
    honest = make_proof(
        read_evidence(run.folder / "save" / "transcript.json"),
        Leaves(run.folder / "save" / "leaves.bin"),
        since=[5],
    )
    assert check_proof(honest, PUBLIC).signed
    tree = MerkleFrontier()
    for added in (one.added for one in other.progress[:4]):
        assert added is not None
        tree = added.tree
    rewritten = replace(honest.earlier[0], root=tree.root)
    assert (tree.size, tree.root != honest.earlier[0].root) == (5, True)
    with pytest.raises(AuditError, match="earlier: the run does not continue from the given root of 5"):
        check_proof(replace(honest, earlier=(rewritten,)), PUBLIC)
