"""What a witnessed transcript costs: a leaf for every opened sum, and proofs of a run of very many sums.

    python benchmarks/transcript.py [--sums 100000] [--folder DIR]

Grows the transcript of a run whose leaves are those of a small model, in a file in DIR, and signs it by 3 and by
100 sites. Says the median time of making the leaf of a sum, of adding it to the tree and of appending it to the
file; the leaf of a model of a million parameters; the time of proving one sum and the end, and of checking that;
and how many bytes the proof has, whole and for one more sum.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from machine import report

from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.spec import SumSpec
from fedfair.ids import FederationName, ParticipantId, RoundNumber
from fedfair.plan.approval import approve
from fedfair.statistics.table import Purpose
from fedfair.transcript.evidence import Place, RunEvidence
from fedfair.transcript.leaf import AddedLeaves, TranscriptLeaf, leaf_of_sum
from fedfair.transcript.leaf_file import LeafFile, Leaves
from fedfair.transcript.merkle import MerkleFrontier
from fedfair.transcript.proof import make_proof, read_proof, write_proof
from fedfair.transcript.proof_check import check_proof
from fedfair.transcript.statement import SiteStatement, StatementKind, approval_digest, sign_statement

FEDERATION, PLAN, RUN = FederationName("heart"), bytes(32), "0f" * 16
REPEATS = 25


def leaf(number: int, values: int = 31) -> TranscriptLeaf:
    spec = SumSpec(Purpose.TRAINING, 2, values, np.dtype("<f8"))
    request = SumRequest(Purpose.TRAINING, RoundNumber(number), 1, spec)
    totals = Totals(np.array([3.0, number]), np.full(values, float(number)), 3)
    state, model = number.to_bytes(32, "big"), number.to_bytes(32, "little")
    return leaf_of_sum(request, totals, ("clinic-a", "clinic-b", "clinic-c"), state, model)


def median(work: Callable[[], object], repeats: int = REPEATS) -> float:
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def signed_by(sites: int, place: Place) -> tuple[RunEvidence, dict[ParticipantId, Ed25519PrivateKey]]:
    """Return what so many sites have signed of the end of a run, and their keys."""
    keys = {
        ParticipantId(f"clinic-{number}"): Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big"))
        for number in range(sites)
    }
    evidence = RunEvidence(FEDERATION, PLAN, RUN, present=place)
    for name, key in keys.items():
        approval = approve(PLAN, FEDERATION, name, key, approved_at="2031-05-04T12:00:00+00:00")
        about = (place.rounds, place.state, place.model, place.threshold, place.leaves, place.root)
        facts = (FEDERATION, name, PLAN, RUN, StatementKind.FINAL, *about, approval_digest(approval))
        evidence.approvals[name] = approval.decode()
        evidence.statements[name] = sign_statement(SiteStatement(*facts), key).decode()
    return evidence, keys


def grown(path: Path, sums: int) -> dict[str, float]:
    """Grow the transcript in a file; return the median microseconds of its steps."""
    file, tree, taken = LeafFile(path), MerkleFrontier(), list[tuple[float, float, float]]()
    for number in range(1, sums + 1):
        started = time.perf_counter()
        made = leaf(number)
        added = AddedLeaves(tree, (made,))
        between = time.perf_counter()
        tree = added.tree
        grew = time.perf_counter()
        file.append(added)
        taken.append((between - started, grew - between, time.perf_counter() - grew))
    file.sync()
    names = ("leaf_us", "tree_us", "file_us")
    return {
        name: statistics.median(each) * 1e6 for name, each in zip(names, zip(*taken, strict=True), strict=True)
    }


def proven(leaves: Leaves, sums: int, sites: int) -> dict[str, float]:
    """Return times and bytes of proofs of one sum and the end, signed by so many sites."""
    place = Place(sums, sums, bytes(32), bytes(32), 0.5, leaves.hashes.root())
    evidence, keys = signed_by(sites, place)
    known = {name: key.public_key() for name, key in keys.items()}
    one = write_proof(make_proof(evidence, leaves, [sums // 3])).encode()
    two = write_proof(make_proof(evidence, leaves, [sums // 3, sums // 2])).encode()
    return {
        f"proof_bytes_{sites}_sites": len(one),
        f"bytes_of_one_more_sum_{sites}_sites": len(two) - len(one),
        f"prove_s_{sites}_sites": median(lambda: make_proof(evidence, leaves, [sums // 3]), 3),
        f"check_ms_{sites}_sites": median(lambda: check_proof(read_proof(one, "proof"), known)) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sums", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="on the disk that would hold the leaves")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        path = Path(name) / "leaves.bin"
        figures = grown(path, options.sums)
        read = median(lambda: Leaves(path), 3)
        leaves = Leaves(path)
        report(
            "transcript",
            sums=options.sums,
            file_bytes=path.stat().st_size,
            **figures,
            leaf_of_a_million_parameters_ms=median(lambda: leaf(1, 1_000_000)) * 1e3,
            read_s=read,
            **proven(leaves, options.sums, 3),
            **proven(leaves, options.sums, 100),
        )


if __name__ == "__main__":
    main()
