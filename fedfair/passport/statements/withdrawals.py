"""Whether records that counted in the model have been withdrawn since, by the sites' signed notices."""

from __future__ import annotations

from fedfair.passport.evidence import WITHDRAWAL, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom
from fedfair.plan.derived import earlier_plans
from fedfair.plan.digest import format_digest
from fedfair.run.initial_model import vector_digest
from fedfair.withdrawal.notice import withdrawal_sentences


def _made(evidence: ModelEvidence) -> Said | None:
    notices = evidence.withdrawals
    if not notices:
        return None
    weights = format_digest(vector_digest(evidence.model.saved.model.vector))
    agreed = evidence.agreed
    found = withdrawal_sentences(notices, weights, (*earlier_plans(agreed.plan), agreed.digest))
    given = ", ".join(f"{notice.participant} on {notice.day}" for notice in notices)
    return Said((*(f"{sentence}." for sentence in found), f"Notices were given by {given}."))


ROOM = StatementRoom(
    "withdrawals",
    "Who has withdrawn since",
    (WITHDRAWAL,),
    _made,
    "No site has given a notice of withdrawals (`fedfair data withdrawal-notice`).",
)
