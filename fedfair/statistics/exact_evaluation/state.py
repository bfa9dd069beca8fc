"""An exact evaluation in the state of a run: each of its sums goes a step further, and the last proves. No torch.

One that cannot be finished is given up, and the intervals of the histogram stand: no site answers one request
about one model twice, so it cannot be begun again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fedfair.aggregation.evaluator import Evaluator
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.radix_select import STEPS
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.run.opened_sum import Applied, RunSetting
from fedfair.run.state import RunState


class QueryRule:
    """The rule of an exact evaluation in the runs of a plan.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._evaluator: Evaluator = setting.evaluator

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Go a step further, or end the query and not the run where the total cannot be right."""
        if state.query is None:
            raise LocalProtocolError("an exact evaluation was answered that was not asked for")
        try:
            query = state.query.apply_aggregate(totals.header, members)
            sharpened = self._evaluator.sharpened(state.latest, query) if query.step is None else None
        except RemoteProtocolError as fault:
            return Applied(replace(state, query=None, query_fault=fault.message))
        if sharpened is None:
            return Applied(replace(state, query=query))
        return Applied(replace(state, query=None, final=sharpened), sharpened)

    def may_be(self, state: RunState) -> bool:
        """Return whether the query is one of the plan with a step to be asked."""
        query = state.query
        if query is None:
            return True
        if len(query.splits) != len(SPLITS):
            return False
        sizes, step = self._evaluator.group_sizes, query.splits[0].step
        known = 0 if step == 1 else len(sizes)
        return 1 <= step <= STEPS and all(
            (split.group_sizes, split.step, len(split.prefixes)) == (sizes, step, known)
            and all(0 <= prefix < 1 << 32 for prefix in split.prefixes)
            for split in query.splits
        )


rule = QueryRule
