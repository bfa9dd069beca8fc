"""Whose records: each site's own signed description, and how many records were evaluated in all."""

from __future__ import annotations

from fedfair.passport.evidence import DATA, PLAN, RESULT, ModelEvidence
from fedfair.passport.site_description import SiteWords
from fedfair.passport.statement import Said, StatementRoom, told


def _made(evidence: ModelEvidence) -> Said | None:
    found, names = evidence.descriptions, evidence.agreed.plan.federation.collaborators
    if not found:
        return None
    headings = {name: words.description or name for name, words in SiteWords.model_fields.items()}
    splits = {name: risk.n for name, risk in evidence.result.splits.items() if risk is not None}
    missing = [name for name in names if name not in found]
    return Said(
        told("data", found=[*found.items()], missing=missing, headings=headings, splits=splits),
        {
            "described": len(found),
            "sites": len(names),
            **{f"{name} records": count for name, count in splits.items()},
        },
    )


ROOM = StatementRoom(
    "data",
    "Whose records",
    (DATA, PLAN, RESULT),
    _made,
    "No site has described its records: each signs a description (`fedfair data describe`).",
)
