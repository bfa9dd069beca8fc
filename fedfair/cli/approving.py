"""The steps of an approval, for `fedfair plan approve` and `fedfair join`: show what is agreed to, and sign."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.table import Table
from rich.text import Text

from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import approve
from fedfair.plan.description import summary
from fedfair.plan.schema import Plan
from fedfair.process.terminal import console, say


def show_summary(plan: Plan) -> None:
    """Print what a plan leaves open, what it does, and what its masked sums keep from whom."""
    from fedfair.aggregation.masking_terms import exposures, guarantee, masking_cost

    for sentence in exposures(plan):
        say(f"know first: {sentence}.", "bold")
    table = Table(show_header=False, box=None, pad_edge=False)
    masks = (("guarantee", guarantee(plan)), ("masks", masking_cost(plan)))
    for heading, sentence in (*summary(plan), *masks):
        if sentence:
            table.add_row(Text(heading, style="bold"), Text(sentence))
    console.print(table)


def write_approval(
    target: Path, plan: Plan, plan_digest: bytes, participant: ParticipantId, key: Ed25519PrivateKey
) -> None:
    """Sign a digest and write the approval.

    Args:
        target: its file.
        plan: names the federation.
        plan_digest: 32 bytes, as this site computed it from what was shown.
        participant: who approves.
        key: the one that the plan pins for the participant.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    approval = approve(plan_digest, FederationName(plan.federation.name), participant, key, approved_at=now)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(approval)
