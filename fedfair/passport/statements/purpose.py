"""What the model is for and who oversees it, in the words of its provider: nothing in fedfair can show that."""

from __future__ import annotations

from fedfair.passport.evidence import WORDS, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told


def _made(evidence: ModelEvidence) -> Said | None:
    words = evidence.declarations
    return None if words is None else Said(told("purpose", words=words), {"version": words.version})


ROOM = StatementRoom(
    "purpose",
    "Purpose, limits of use, and oversight",
    (WORDS,),
    _made,
    "Nobody has declared what the model is for: the provider writes it (`fedfair passport words`).",
    declared=True,
)
