"""A release audit in the state of a run: its total is kept whole, and the run ends with it. No torch."""

from __future__ import annotations

from collections.abc import Collection

from fedfair.aggregation.running_sum import Totals
from fedfair.errors import RemoteProtocolError
from fedfair.run.opened_sum import Applied, KeepingRule, RunSetting
from fedfair.run.progress import FinalStage
from fedfair.run.state import RunState
from fedfair.statistics.table import Purpose


class AuditRule(KeepingRule):
    """The rule of a release audit in the runs of a plan.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        super().__init__(Purpose.RELEASE_AUDIT, setting)

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Keep the total; where it cannot be right, the run ends without an audit."""
        try:
            return super().apply(state, totals, members)
        except RemoteProtocolError:
            return Applied(state)

    def may_be(self, state: RunState) -> bool:
        """Return whether the kept sum can be: only the end of a run has one."""
        is_kept = self._purpose.value in state.kept
        return super().may_be(state) and (not is_kept or state.stage is FinalStage.FINISHED)


rule = AuditRule
