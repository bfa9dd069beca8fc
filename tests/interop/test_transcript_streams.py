"""All sites of a federation sign one transcript, in the clear and under masks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fedfair.aggregation import model_file
from fedfair.aggregation.requests import vector_sha256
from fedfair.cli.loopback import prepare
from fedfair.identity.roster import parse_roster
from fedfair.plan.loading import load_plan
from fedfair.transcript.evidence import read_evidence
from fedfair.transcript.leaf_file import Leaves
from fedfair.transcript.proof import leaves_of, make_proof
from fedfair.transcript.proof_check import check_proof
from fedfair.transcript.statement import StatementKind, approval_digest, verify_statement
from tests.interop.federation_kit import NAMES, Federation, play
from tests.plans import small_plan

MASKED: Mapping[str, object] = {"mode": "malicious"}


@pytest.mark.parametrize("protection", [MASKED, None], ids=["masked", "in the clear"])
def test_every_site_signs_the_transcript_of_the_run_and_keeps_its_own(
    tmp_path: Path, protection: Mapping[str, object] | None
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=3, protection=protection))
    assert play(workspace, Federation.everybody).state.value == "finished"
    roster = parse_roster(load_plan(workspace.plan).federation.roster)
    found, leaves = read_evidence(tmp_path / "save" / "transcript.json"), Leaves(tmp_path / "save" / "leaves.bin")
    assert found.present is not None
    assert found.statements.keys() == set(NAMES) == found.approvals.keys()
    for name, raw in found.statements.items():
        said = verify_statement(raw.encode(), roster[name])
        assert (said.kind, said.same_run, said.same_state) == (
            StatementKind.FINAL, found.same_run, found.present.same_state,
        )  # fmt: skip
        assert said.approval == approval_digest(found.approvals[name].encode())
        kept = tmp_path / "runs" / name / found.run
        assert Leaves(kept / "leaves.bin").raw == leaves.raw
        first, *_, last = (kept / "statements.jsonl").read_text().splitlines()
        assert last == raw
        assert verify_statement(first.encode(), roster[name]).kind is StatementKind.CHECKPOINT
    assert (len(leaves.raw), leaves.hashes.root()) == (found.present.leaves, found.present.root)
    assert found.differing == {}
    # And a verifier who has plan and model finds both in the proof.
    model = vector_sha256(model_file.load(tmp_path / "save" / "last.safetensors")[1])
    proof = make_proof(found, leaves, leaves_of(leaves, "training", 2))
    proven = check_proof(proof, roster, plan=load_plan(workspace.plan), model=model)
    assert (list(proven.signed), proven.members[max(proven.sums)]) == (list(NAMES), NAMES)
