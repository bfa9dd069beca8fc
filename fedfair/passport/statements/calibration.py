"""How far the model's probabilities can be taken as such, by its evaluation."""

from __future__ import annotations

from fedfair.passport.evidence import MODEL, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom
from fedfair.report.calibration_lines import calibration_lines


def _made(evidence: ModelEvidence) -> Said | None:
    _ = evidence.model
    lines = calibration_lines(evidence.result)
    return Said(lines) if lines else None


ROOM = StatementRoom(
    "calibration",
    "What its probabilities mean",
    (RESULT, MODEL),
    _made,
    "The run has summed no scores, so nothing is known of probabilities (`evaluation.scores: true`).",
)
