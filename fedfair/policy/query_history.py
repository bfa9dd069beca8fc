"""Remembers the queries about a model's losses, so that no other query is answered later.

The steps of an exact evaluation narrow a few quantiles down. Free to choose, an aggregator could ask for any part
of the distribution of losses, as finely as it likes, again and again. So a site answers each step about one model
with one set of prefixes, in order, and every prefix must go on from one that it was asked before. That the same
answer is not masked a second time is the business of secure aggregation's own log. What was asked is on the disk
before an answer is computed (`request_record`), and survives restarts. The model is known by its vector, whatever
the threshold: the losses are the same.
"""

from __future__ import annotations

from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.radix_select import DIGIT_BITS, STEPS
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import AnsweredFacts, FactTable, Rows, key, text_row
from fedfair.policy.refusal import Refusal


class QueryHistory:
    """The rules of one site under one plan.

    Args:
        table: what was asked so far; read here, and written by the owner of the rows.
    """

    def __init__(self, table: FactTable) -> None:
        self._facts = AnsweredFacts(table)

    def judge(self, request: AggregationRequest) -> Refusal | Rows:
        """Return why a request must not be answered, or what to write down first: nothing, if it is known."""
        if request.query is None:
            return ()
        model, step = request.model_sha256.hex(), request.query
        known, asked = self._facts.text(_step_key(model, step.number)), _in_words(step.prefixes)
        if known is not None:
            return () if known == asked else _against(step, "about this model was answered before")
        if not self._goes_on(model, step):
            return _against(step, "does not go on from what was asked about this model before")
        return (text_row(_step_key(model, step.number), asked),)

    def _goes_on(self, model: str, step: QueryStep) -> bool:
        if step.number == 1:
            return True
        before = self._facts.text(_step_key(model, step.number - 1))
        if before is None:
            return False
        # Every step finds one more digit of a key; step 2 starts from no digits at all.
        bits = DIGIT_BITS[step.number - 2]
        shorter = tuple(prefix >> bits for prefix in step.prefixes)
        known = before or _in_words((0,) * len(step.prefixes))
        return _in_words(shorter) == known and step.number <= STEPS


def _step_key(model: str, number: int) -> bytes:
    return key("query", model, number)


def _in_words(prefixes: tuple[int, ...]) -> str:
    return " ".join(map(str, prefixes))


def _against(step: QueryStep, words: str) -> Refusal:
    reason = f"step {step.number} {words}"
    return Refusal(reason, "exact-evaluation", f"step {step.number}", "one query about a model, in order")
