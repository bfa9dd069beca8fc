"""What a site insists on in every masked session, by its plan and its own policy."""

from __future__ import annotations

from fedfair.plan import derived
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import least_collaborators
from fedfair.secagg.params import SecaggPolicy
from fedfair.statistics.table import Purpose


def masking_policy(plan: Plan, policy: SitePolicy) -> SecaggPolicy:
    """Return what a site insists on in every session beyond the terms of the plan, which it takes as they are.

    `check_policy` has made sure that the plan is no weaker than the policy.
    """
    fewest = derived.quorum(plan)
    rounds = frozenset(purpose.value for purpose in Purpose if purpose.statistic.draws_anew)
    return SecaggPolicy(
        least_members=max(least_collaborators(plan, policy), fewest, 2),
        greatest_clip=derived.clip_ceiling(plan)[1],
        fixed_clip=derived.has_fixed_clip(plan),
        greatest_attempts=policy.max_attempts,
        repeatable=frozenset(policy.repeatable),
        any_cohort=rounds if policy.training_cohort == "any" else frozenset(),
        least_survivors=fewest,
        max_reopened_sums=policy.max_reopened_sums,
    )
