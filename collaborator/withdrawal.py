"""How a site withdraws: what it records, and what the aggregator receives of it.

A site that withdraws records the refusal and tells the aggregator, during a run or before it. The aggregator
receives the reason from a closed list (`refusal_reasons`), so that its operator need not wait and
wonder. The words, which may hold values of this site, stay in its own log. A site that refuses a plan before it
has anything to do with the run introduces itself without an approval: it has perhaps not approved the plan. Its
certificate is bound to its pinned key all the same, so nobody else refuses for it. That the aggregator cannot be
told is no fault: the refusal stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from collaborator.egress import EgressRecord
from collaborator.link import Link, open_link
from collaborator.preparation import PreparedSite, computation_of, introduction
from collaborator.records import SiteLogs
from fedfair.errors import ApprovalError, FedfairError, PrivacyError
from fedfair.identity.preflight import preflight
from fedfair.identity.tls import channel_credentials
from fedfair.ids import SumNumber
from fedfair.news.processors import text_lines
from fedfair.news.site import AggregatorUntold, PlanRefused
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.refusal import Refusal
from fedfair.policy.refusal_reasons import RefusalReason, reason_for
from fedfair.policy.terms import CODE_TERMS
from fedfair.secagg.checks import SecaggError
from fedfair.wire.calling import Address
from fedfair.wire.frames import Abstain

TELL_SECONDS = 20.0
"""How long a site that does not come tries to say so."""


def refusals_of(fault: FedfairError) -> Iterator[Refusal]:
    """Yield what is written down about a refusal: one for each term of the policy that it names."""
    if isinstance(fault, SecaggError):
        yield Refusal(fault.message, f"secure aggregation: {fault.check.value}")
        return
    if not isinstance(fault, PolicyError):
        yield Refusal(fault.message, "approval" if isinstance(fault, ApprovalError) else "protocol")
        return
    for term in fault.broken:
        yield Refusal(term.fault, term.key, term.asked, term.allowed)


def abstention_reason(fault: FedfairError) -> RefusalReason:
    """Return what the aggregator is notified of: of several broken terms, the first."""
    if isinstance(fault, PrivacyError):
        return RefusalReason.BUDGET
    return reason_for(next(refusals_of(fault)).term)


async def send_withdrawal(link: Link, reason: RefusalReason) -> None:
    """Say as the last word on a stream why this site goes, and wait until the aggregator has closed it.

    Raises:
        FedfairError: the stream is broken.
    """
    await link.send(Abstain(SumNumber(0), reason, leaving=True))
    await link.finish()
    async for _ in link.frames():
        pass


def withdraw(site: PreparedSite, address: Address, logs: Path, fault: PolicyError | PrivacyError) -> None:
    """Record why this site does not take part, and notify the aggregator if it can be reached.

    Of what a policy or a ledger holds the aggregator learns nothing but which of them refuses.
    """
    records = SiteLogs(logs, site.participant)
    note = text_lines(records.append_note)
    try:
        for refusal in refusals_of(fault):
            records.refused(refusal, None)
        note(PlanRefused(fault.message))
        if isinstance(fault, PolicyError) and any(term.key in CODE_TERMS for term in fault.broken):
            # What is sent is recorded under the plan's digest, and for that its code would have to run.
            note(AggregatorUntold("nothing can be sent in the name of a plan whose code must not run"))
            return
        asyncio.run(asyncio.wait_for(_notify(site, address, abstention_reason(fault)), TELL_SECONDS))
    except (FedfairError, TimeoutError) as silence:
        note(AggregatorUntold(str(silence)))
    finally:
        records.close()


async def _notify(site: PreparedSite, address: Address, reason: RefusalReason) -> None:
    with closing(computation_of(site)) as computation:
        digest = computation.binding().digest
    identity = site.identity()
    now = datetime.now(UTC)
    server = await asyncio.to_thread(preflight, address.host, address.port, identity, now, route=address.route)
    with closing(EgressRecord(site, digest)) as egress:
        async with open_link(address, channel_credentials(identity, server), egress, digest) as link:
            await link.send(introduction(site, identity, digest, b""))
            await send_withdrawal(link, reason)
