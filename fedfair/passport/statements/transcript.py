"""Who vouches for the run: the sites that signed its transcript, with this model, and the sums that are in it."""

from __future__ import annotations

import numpy as np

from fedfair.aggregation.evaluation_file import EvaluatedModel, evaluation_record
from fedfair.errors import PassportError
from fedfair.passport.evidence import EVALUATION, MODEL, PLAN, PROOF, SUM, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told
from fedfair.plan.derived import is_noised
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.transcript.leaf import TranscriptLeaf, totals_digest
from fedfair.transcript.model_proof import EVALUATED
from fedfair.transcript.proof_check import ProvenRun


def _made(evidence: ModelEvidence) -> Said | None:
    proof, found = evidence.proof, evidence.proven
    if proof is None or found is None:
        return None
    evaluated = evaluation_leaf(evidence, found)
    signed = {who: verdict.release.value for who, verdict in found.signed.items()}
    return Said(
        told("transcript", found=found, root=format_digest(proof.root), evaluated=evaluated),
        {"leaves": found.leaves, "signed": len(signed), "not signed": len(found.unsigned) + len(found.gone)},
    )


def evaluation_leaf(evidence: ModelEvidence, found: ProvenRun) -> int | None:
    """Return which leaf is the evaluation of this model, after comparing it with the sums at hand.

    Args:
        evidence: of the passport.
        found: what its proof proves.

    Returns:
        The place of the leaf; None where the proof has none.

    Raises:
        PassportError: the sums at hand are others than those that the sites have signed.
    """
    model = parse_digest(evidence.model_digest)
    places = [
        place for place, leaf in sorted(found.sums.items()) if leaf.kind == EVALUATED and leaf.model == model
    ]
    if evidence.opened is None or not places:
        return places[-1] if places else None
    fitting = [place for place in places if _is_opened(evidence, found.sums[place])]
    if not fitting:
        raise PassportError(
            f"{SUM.file} is no sum of this model that the sites have signed", "give the files of one run"
        )
    _check_record(evidence, found.sums[fitting[-1]])
    return fitting[-1]


def _is_opened(evidence: ModelEvidence, leaf: TranscriptLeaf) -> bool:
    opened = evidence.opened
    body = np.zeros(0, evidence.model.saved.model.vector.dtype)
    return opened is not None and totals_digest(opened, body) == leaf.totals


def _check_record(evidence: ModelEvidence, leaf: TranscriptLeaf) -> None:
    """Refuse an evaluation that does not follow from the opened sum; under noise it is another one."""
    record, opened, agreed = evidence.evaluation, evidence.opened, evidence.agreed
    if record is None or opened is None or is_noised(agreed.plan):
        return
    about = (
        parse_digest(evidence.model_digest),
        record.threshold,
        record.round,
        leaf.contributors,
        record.replaced,
    )
    true = evaluation_record(
        agreed.plan,
        parse_digest(agreed.digest),
        agreed.schema,
        EvaluatedModel(opened, *about),
        masked=record.masked,
    )
    if true != record:
        raise PassportError(
            f"{EVALUATION.file} does not follow from the sum that the sites have signed",
            "give the save/evaluation.json of this run as it was written",
        )


ROOM = StatementRoom(
    "transcript",
    "Who vouches for the run",
    (PROOF, SUM, EVALUATION, MODEL, PLAN),
    _made,
    "No site has signed what the run came to, or its proof was left out (`fedfair audit prove`).",
)
