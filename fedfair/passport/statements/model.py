"""What the model is: its architecture, what it takes and returns, and which of its run's models it is."""

from __future__ import annotations

from fedfair.passport.evidence import MODEL, PLAN, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told
from fedfair.report.model_facts import column_facts, model_facts

MAX_COLUMNS = 100
"""Columns that are told one by one; the model's file has all of them."""


def _made(evidence: ModelEvidence) -> Said:
    model, returned = evidence.model, evidence.result.model
    columns = [*column_facts(model)]
    shown = columns[:MAX_COLUMNS]
    return Said(
        told(
            "model",
            facts=model_facts(model),
            columns=shown,
            more=len(columns) - len(shown),
            digest=evidence.model_digest,
            returned=returned,
        ),
        {"parameters": int(model.saved.model.vector.size), "columns": len(columns)},
    )


ROOM = StatementRoom("model", "The model", (MODEL, RESULT, PLAN), _made)
