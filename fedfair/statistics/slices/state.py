"""Slices in the state of a run: each of their sums takes the search a step further. No torch.

A search that cannot go on is given up, and the run ends without slices: no site answers one request about one
model twice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.slice_sums import STEPS, slice_layout
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.run.opened_sum import Applied, RunSetting
from fedfair.run.state import RunState


class SliceRule:
    """The rule of slices in the runs of a plan.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._layout = slice_layout(setting.plan, setting.schema)
        self._fewest = setting.plan.evaluation.min_group

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Go a step further, or end the search and not the run where the total cannot be right."""
        if state.slices is None:
            raise LocalProtocolError("slices were answered that were not asked for")
        if totals.replaced:
            fault = f"{totals.replaced} losses could not be summed, and were replaced at their sites"
            return Applied(replace(state, slices=state.slices.given_up(fault)))
        try:
            search = state.slices.apply_aggregate(totals.header, members, self._layout, self._fewest)
        except RemoteProtocolError as refused:
            search = state.slices.given_up(refused.message)
        return Applied(replace(state, slices=search))

    def may_be(self, state: RunState) -> bool:
        """Return whether the search can be."""
        search = state.slices
        if search is None or search.fault:
            return search is None or not search.header.size
        question = replace(search, number=min(search.number, STEPS)).question
        length = 0 if search.number == 1 else self._layout.header.length
        counted, columns = search.header, len(self._layout.columns)
        return (
            1 <= search.number <= STEPS + 1
            and counted.shape == (length,)
            and bool((counted >= 0).all() and np.isfinite(counted).all())
            and bool(search.members) == (search.number > 1)
            and question is not None
            and question.may_be(self._layout)
            and (search.number < STEPS or any(search.asked[:columns]))
            and (search.number == 1 or float(self._layout.header.read(counted)["records"]) >= 1)
        )


rule = SliceRule
