"""What masks and noise promise to the people whose records trained the model."""

from __future__ import annotations

from fedfair.passport.document import Figure
from fedfair.passport.evidence import PLAN, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom
from fedfair.report.sentences import privacy_sentences, protection_sentences, reveal_sentences


def _made(evidence: ModelEvidence) -> Said:
    result = evidence.result
    promised: dict[str, Figure] = {}
    for level in (result.privacy.sample_level, result.privacy.collaborator_level):
        if level is not None:
            promised |= {"epsilon": level.epsilon, "delta": level.delta}
    protection = result.secure_aggregation
    masked = protection is not None and protection.masked
    words = (*protection_sentences(result), *reveal_sentences(result), *privacy_sentences(result))
    return Said(words, {"masked": masked, **promised})


ROOM = StatementRoom("privacy", "What is promised to those whose records trained it", (RESULT, PLAN), _made)
