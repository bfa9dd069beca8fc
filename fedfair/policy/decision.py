"""Decides a request: the one place that does, from the site's rules and from what it has answered.

    decide(request, history) -> Refusal | Admitted

Nothing is read but the history, and nothing is written. What an answer adds to the history is part of the
decision, and is on the disk before anything is computed. What the site's privacy budget allows is found where a
release is written to its ledger, before its noise is drawn.

A sum is first held against the plan that this site approved and its policy, whatever came before it. The plan and
the announced run were held against the policy before; this holds the aggregator to the same terms at every
request, because it may ask for what it never announced. What counts how often is `request_limits.py`'s.

Queries about a model's losses are remembered, so that no other query is answered later. The steps of an exact
evaluation narrow a few quantiles down. Free to choose, an aggregator could ask for any part of the distribution of
losses, as finely as it likes, again and again. So a site answers each step about one model with one set of
prefixes, in order, and every prefix must continue from one that it was asked before. That the same answer is not
masked a second time is the business of secure aggregation's own log. What was asked is on the disk before an
answer is computed (`collaborator.site_history`), and survives restarts. The model is known by its vector, whatever
the threshold: the losses are the same.
"""

from __future__ import annotations

from dataclasses import replace

from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.radix_select import DIGIT_BITS, STEPS
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import AnsweredFacts, FactTable, Rows, key, text_row
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import Admitted, RequestLimits
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import bins_terms


class QueryHistory:
    """The rules of one site under one plan.

    Args:
        table: what was asked so far; read here, and written by the owner of the rows.
    """

    def __init__(self, table: FactTable) -> None:
        self._facts = AnsweredFacts(table)

    def decide(self, request: AggregationRequest) -> Refusal | Rows:
        """Return why a request must not be answered, or what to write down first: nothing, if it is known."""
        if request.query is None:
            return ()
        step = request.query
        place = _place(request)
        known, asked = self._facts.text(_step_key(*place, step.number)), _in_words(step.prefixes)
        if known is not None:
            return () if known == asked else _against(request, "about this model was answered before")
        if not self._continues(request, step):
            return _against(request, "does not continue from what was asked about this model before")
        return (text_row(_step_key(*place, step.number), asked),)

    def _continues(self, request: AggregationRequest, step: QueryStep) -> bool:
        if step.number == 1:
            return True
        before = self._facts.text(_step_key(*_place(request), step.number - 1))
        if before is None:
            return False
        if not request.purpose.statistic.narrows:
            # What such a step asks follows from the opened sums before it, of which the state is made.
            return True
        # Every step finds one more digit of a key; step 2 starts from no digits at all.
        bits = DIGIT_BITS[step.number - 2]
        shorter = tuple(prefix >> bits for prefix in step.prefixes)
        known = before or _in_words((0,) * len(step.prefixes))
        return _in_words(shorter) == known and step.number <= STEPS


def _place(request: AggregationRequest) -> tuple[str, ...]:
    """Return what all steps of one query have in common."""
    model, purpose = request.model_sha256.hex(), request.purpose
    return (model,) if purpose.statistic.narrows else (model, purpose.value)


def _step_key(*place: str | int) -> bytes:
    return key("query", *place)


def _in_words(prefixes: tuple[int, ...]) -> str:
    return " ".join(map(str, prefixes))


def _against(request: AggregationRequest, words: str) -> Refusal:
    number = 0 if request.query is None else request.query.number
    reason = f"step {number} {words}"
    return Refusal(reason, request.purpose.value, f"step {number}", "one query about a model, in order")


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
        self._planned = schedule_of(plan, len(schema.numeric)).purposes
        self._disclosed = {purpose: purpose.statistic.discloses(plan) for purpose in self._planned}
        self._plan, self._policy, self._name = plan, policy, name
        self._too_fine = next((term for term in bins_terms(plan, policy, records) if not term.kept), None)

    def decide(self, request: AggregationRequest, history: FactTable) -> Refusal | Admitted:
        """Return why a request is refused, or which attempt at its sum it is and what to write down first.

        Args:
            request: what is asked.
            history: what this site has answered under this plan.
        """
        refusal = self._unplanned(request)
        if refusal is not None:
            return refusal
        admitted = RequestLimits(history, self._plan, self._policy, self._name).decide(request)
        if isinstance(admitted, Refusal):
            return admitted
        asked = QueryHistory(history).decide(request)
        if isinstance(asked, Refusal):
            return asked
        return replace(admitted, rows=admitted.rows + asked) if asked else admitted

    def _unplanned(self, request: AggregationRequest) -> Refusal | None:
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
