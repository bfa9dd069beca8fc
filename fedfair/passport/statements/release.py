"""Whether the model may leave: how well it keeps who was trained on, and the word that each site has signed."""

from __future__ import annotations

from fedfair.errors import PassportError
from fedfair.passport.document import Figure
from fedfair.passport.evidence import PROOF, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told
from fedfair.results.release import ReleaseFigures, audit_sentences, group_words, with_words, withheld_sentence


def _made(evidence: ModelEvidence) -> Said | None:
    fields = evidence.result.release
    if fields is None:
        return None
    _check_words(evidence, fields)
    figures: dict[str, Figure] = {"state": fields.state}
    if fields.audit is not None:
        figures["epsilon at least"] = fields.audit.epsilon_at_least
        for one in fields.audit.groups:
            about = f"{one.attack}, {group_words(one)}"
            figures[f"AUC: {about}"] = one.auc
            figures[f"found at 1 in 100: {about}"] = one.tpr_at_01.interval[1]
    words = (*withheld_sentence(fields), *audit_sentences(fields))
    signed = told("release", signed=evidence.proof is not None, by=fields.by)
    return Said((*words, *signed), figures, declared=fields.by is not None and evidence.proof is None)


def _check_words(evidence: ModelEvidence, fields: ReleaseFigures) -> None:
    """Refuse a result that says of a site what it has not signed."""
    if evidence.proven is None or fields.by is None:
        return
    said = {str(who): verdict for who, verdict in evidence.proven.signed.items()}
    true = with_words(fields, evidence.agreed.plan.federation.collaborators, said)
    if true is not None and (true.by, true.state) != (fields.by, fields.state):
        raise PassportError(
            "the result says of the release of the model what its sites have not signed",
            "give the result and the transcript of one run",
        )


ROOM = StatementRoom(
    "release",
    "May it leave?",
    (RESULT, PROOF),
    _made,
    "No release audit was made, and no site was asked (`evaluation.release_audit`).",
)
