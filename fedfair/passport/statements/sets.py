"""What may well be true of a person: the promise of the model's prediction sets, and their sizes."""

from __future__ import annotations

from fedfair.conformal.prediction_sets import PredictionSets
from fedfair.errors import PassportError
from fedfair.passport.evidence import MODEL, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom
from fedfair.report.set_section import set_lines
from fedfair.results.prediction_sets import set_figures


def _made(evidence: ModelEvidence) -> Said | None:
    model, found = evidence.model, evidence.result.sets
    if found is None:
        return None
    own = set_figures(model.saved.sets, {}, model.origin.description.record_loss)
    if own != found.model_copy(update={"splits": {}}):
        raise PassportError(
            "the result promises other prediction sets than the model's file", "give the result of this model"
        )
    told = {"records": found.records, "group size": found.group_size, "missed": found.missed}
    promised = isinstance(model.saved.sets, PredictionSets)
    return Said(set_lines(evidence.result), told if promised else {})


ROOM = StatementRoom(
    "sets",
    "What may well be true of a person",
    (RESULT, MODEL),
    _made,
    "The plan asks for no prediction sets (`evaluation.sets`).",
)
