"""Decides a request: the one place that does, from the site's rules and from what it has answered.

    decide(request, history) -> Refusal | Admitted

Nothing is read but the history, and nothing is written. What an answer adds to the history is part of the
decision, and is on the disk before anything is computed. What the site's privacy budget allows is found where a
release is written to its ledger, before its noise is drawn.
"""

from __future__ import annotations

from dataclasses import replace

from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import FactTable
from fedfair.policy.query_history import QueryHistory
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_check import RequestCheck
from fedfair.policy.request_limits import Admitted, RequestLimits
from fedfair.policy.site_config import SitePolicy


class SiteRules:
    """The rules of one site under one plan.

    Args:
        plan: the plan that the site approved.
        schema: of its features.
        policy: the site's.
        name: the site's, for messages.
        records: how many it has, over all splits.
    """

    def __init__(self, plan: Plan, schema: FeatureSchema, policy: SitePolicy, name: str, records: int) -> None:
        self._check = RequestCheck(plan, schema, policy, name, records)
        self._plan, self._policy, self._name = plan, policy, name

    def decide(self, request: AggregationRequest, history: FactTable) -> Refusal | Admitted:
        """Return why a request is refused, or which attempt at its sum it is and what to write down first.

        Args:
            request: what is asked.
            history: what this site has answered under this plan.
        """
        refusal = self._check.refusal(request)
        if refusal is not None:
            return refusal
        admitted = RequestLimits(history, self._plan, self._policy, self._name).judge(request)
        if isinstance(admitted, Refusal):
            return admitted
        asked = QueryHistory(history).judge(request)
        if isinstance(asked, Refusal):
            return asked
        return replace(admitted, rows=admitted.rows + asked)
