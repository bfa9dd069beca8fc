"""A site's word on whether the model may leave: its own copy of the run, under its own policy.

A figure above a limit is evidence where the lower end of its interval is: beyond doubt the model gives more away.
`judged_by: estimate` withholds where the figure itself is above, which chance may have made. Every group counts,
and both attacks do. Nothing that decides was told to the site.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.aggregation.audit_findings import AuditFindings
from fedfair.plan.derived import audits_release
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import ReleaseSection
from fedfair.transcript.statement import NOT_ASKED, Release, ReleaseReason, ReleaseVerdict


def release_verdict(plan: Plan, policy: ReleaseSection, found: AuditFindings | None) -> ReleaseVerdict:
    """Return a site's verdict at the end of a run.

    Args:
        plan: the plan.
        policy: the site's limits.
        found: what its own copy of the run says; None where it has no audit.
    """
    if not (audits_release(plan) or policy.require_audit):
        return NOT_ASKED
    reasons = (ReleaseReason.NO_AUDIT,) if found is None else tuple(_reasons(policy, found))
    return ReleaseVerdict(Release.WITHHELD if reasons else Release.AGREED, reasons)


def _reasons(policy: ReleaseSection, found: AuditFindings) -> Iterator[ReleaseReason]:
    limits = (
        (ReleaseReason.MEMBERSHIP_TPR_AT_01, policy.membership_tpr_at_01),
        (ReleaseReason.MEMBERSHIP_TPR_AT_001, policy.membership_tpr_at_001),
    )
    for place, (reason, limit) in enumerate(limits):
        shares = (group.found[place] for group in found.groups)
        if limit is not None and any(
            (share.estimate if policy.judged_by == "estimate" else share.lower) > limit for share in shares
        ):
            yield reason
    # Nothing bounds epsilon from below where persons may be at several sites; then no limit is passed.
    if policy.epsilon_lower_bound is not None and (found.epsilon or 0.0) > policy.epsilon_lower_bound:
        yield ReleaseReason.EPSILON_LOWER_BOUND
