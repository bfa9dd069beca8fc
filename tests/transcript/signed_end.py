"""What the evidence of a finished run must show, wherever the run was driven."""

from __future__ import annotations

from pathlib import Path

from fedfair.identity.roster import parse_roster
from fedfair.plan.loading import load_plan
from fedfair.transcript.evidence import read_evidence
from fedfair.transcript.leaf_file import Leaves
from fedfair.transcript.proof import make_proof
from fedfair.transcript.proof_check import ProvenRun, check_proof


def proven_end(save: Path, plan_file: Path) -> ProvenRun:
    """Return what a proof of the run shows that all sites of a plan have signed, with keys of the plan alone."""
    evidence, leaves = read_evidence(save / "transcript.json"), Leaves(save / "leaves.bin")
    assert evidence.differing == {}
    assert evidence.present is not None
    assert (leaves.hashes.size, leaves.hashes.root()) == (evidence.present.leaves, evidence.present.root)
    plan = load_plan(plan_file)
    return check_proof(make_proof(evidence, leaves), parse_roster(plan.federation.roster), plan=plan)
