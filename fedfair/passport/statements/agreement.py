"""What the sites agreed to: the plan, by the digest that each of them approved, in words."""

from __future__ import annotations

from fedfair.passport.evidence import PLAN, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told
from fedfair.plan.description import summary


def _made(evidence: ModelEvidence) -> Said:
    agreed = evidence.agreed
    plan, pinned = agreed.plan, agreed.plan.federation.roster
    return Said(
        told("agreement", plan=plan, digest=agreed.digest, pinned=sorted(pinned.items()), summary=summary(plan)),
        {"sites": len(plan.federation.collaborators), "rounds": plan.training.rounds},
    )


ROOM = StatementRoom("agreement", "What the sites agreed to", (PLAN,), _made)
