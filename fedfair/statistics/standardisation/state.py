"""The standardisation in the state of a run: its total gives the scaling of the features. No torch."""

from __future__ import annotations

from collections.abc import Collection

from fedfair.aggregation.feature_scaling import scaling_from_sums
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.target_scaling import summed_units
from fedfair.run.initial_threshold import with_scaling
from fedfair.run.opened_sum import Applied, RunSetting
from fedfair.run.state import RunState


class ScalingRule:
    """The rule of a standardisation in the runs of a plan.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._plan = setting.plan
        self._units = summed_units(setting.plan.task.loss, setting.schema)

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Take the scaling that follows from the sums; raises as `scaling_from_sums`."""
        del members
        return Applied(with_scaling(self._plan, state, scaling_from_sums(totals.header, self._units)))

    def may_be(self, state: RunState) -> bool:
        """Return True: a scaling may have come with the plan too, so the rules of the run look at it."""
        del state
        return True


rule = ScalingRule
