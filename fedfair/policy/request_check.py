"""Checks one sum against the plan that this site approved and against its policy, whatever came before it.

The plan and the announced run were held against the policy before; this holds the aggregator to the same terms at
every request, because it may ask for what it never announced. What counts how often is `request_limits.py`'s.
"""

from __future__ import annotations

from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.refusal import Refusal
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import bins_terms


class RequestCheck:
    """The checks of a site's policy on every request.

    Args:
        plan: the plan that the site approved.
        schema: of its features.
        policy: the site's.
        name: the site's, for messages.
        records: how many it has, over all splits.
    """

    def __init__(self, plan: Plan, schema: FeatureSchema, policy: SitePolicy, name: str, records: int) -> None:
        self._planned = schedule_of(plan, len(schema.numeric)).purposes
        self._disclosed = {purpose: purpose.statistic.discloses(plan) for purpose in self._planned}
        self._policy = policy
        self._name = name
        self._too_fine = next((term for term in bins_terms(plan, policy, records) if not term.kept), None)

    def refusal(self, request: AggregationRequest) -> Refusal | None:
        """Return what the plan or the policy has against one sum; None where that is nothing."""
        purpose, policy = request.purpose, self._policy
        if purpose not in self._planned:
            planned = ", ".join(planned.value for planned in self._planned)
            words = f"the plan that {self._name} approved has no sums for {purpose.value}"
            return Refusal(words, "purposes", purpose.value, planned)
        words = f"the policy of {self._name} does not allow sums for {purpose.value}"
        word = purpose.statistic.policy_word
        if word not in policy.purposes:
            return Refusal(words, "purposes", word, ", ".join(policy.purposes))
        kinds = self._disclosed[purpose]
        if not set(kinds) <= set(policy.reveals):
            known = ", ".join(kinds)
            return Refusal(f"{words}, which reveal {known}", "reveals", known, ", ".join(policy.reveals))
        fine = self._too_fine
        if fine is not None and purpose.statistic.is_evaluation:
            words = f"the policy of {self._name} allows no evaluation that tells losses apart so finely"
            return Refusal(f"{words}: {fine.fault}", fine.key, fine.asked, fine.allowed)
        if policy.max_rounds is not None and request.round > policy.max_rounds:
            words = f"the policy of {self._name} allows {policy.max_rounds} rounds, this is round {request.round}"
            return Refusal(words, "max_rounds", f"round {request.round}", f"at most {policy.max_rounds}")
        return None
