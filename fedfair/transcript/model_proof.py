"""The proof of a finished run with every evaluation of the model that it gives out, from its lead's folder."""

from __future__ import annotations

from pathlib import Path

from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose
from fedfair.transcript.evidence import FILE, read_evidence
from fedfair.transcript.leaf_file import FILE as LEAVES
from fedfair.transcript.leaf_file import Leaves
from fedfair.transcript.proof import make_proof, write_proof

EVALUATED = next(purpose.value for purpose in Purpose if purpose.statistic.when is When.EVERY)
"""The kind of the leaves of evaluations."""


def proof_of_model(folder: Path) -> str:
    """Return the text of the proof.

    Args:
        folder: with `transcript.json` and `leaves.bin`.

    Raises:
        AuditError: one is missing, damaged, or of another run than the other.
    """
    evidence, leaves = read_evidence(folder / FILE), Leaves(folder / LEAVES)
    model = None if evidence.present is None else evidence.present.model
    about = [place for place in leaves.places(EVALUATED) if leaves.leaf(place).model == model]
    return write_proof(make_proof(evidence, leaves, about))
