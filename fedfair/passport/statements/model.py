"""What the model is: its architecture, what it takes and returns, and which of its run's models it is."""

from __future__ import annotations

from fedfair.passport.evidence import MODEL, PLAN, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told
from fedfair.report.model_facts import column_facts, model_facts


def _made(evidence: ModelEvidence) -> Said:
    model, returned = evidence.model, evidence.result.model
    columns = [*column_facts(model)]
    return Said(
        told("model", facts=model_facts(model), columns=columns, digest=evidence.model_digest, returned=returned),
        {"parameters": int(model.saved.model.vector.size), "columns": len(columns)},
    )


ROOM = StatementRoom("model", "The model", (MODEL, RESULT, PLAN), _made)
