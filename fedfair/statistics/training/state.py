"""A round of training in the state of a run: the model and the threshold take a step. No torch.

The mean of the changes is sum(w dtheta) / W, sum(w dc) / W. What takes the place of W, and what else becomes of
the round, is the business of the plan's terms (`terms.table`). Source: Algorithm 1 of the FedSRCVaR paper (lines 3
and 11: broadcast, weighted mean, projection of the threshold on [0, B]).
"""

from __future__ import annotations

from collections.abc import Collection

from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.target_scaling import loss_unit
from fedfair.aggregation.training_sum import check_mean
from fedfair.errors import RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.run.opened_sum import Applied, RunSetting, check_threshold
from fedfair.run.state import RunState
from fedfair.terms.table import divisor_of, training_layout
from fedfair.terms.term import Moved, OpenedRound

_ROUNDING = 1e-9
"""By how much a sum of thresholds may exceed its bound: far more than adding a million of them may round."""


class RoundRule:
    """The rule of a training round in the runs of a plan.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._setting = setting
        self._divisor = divisor_of(setting.plan)
        self._header = training_layout(setting.plan, setting.schema.classes)

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Step with the mean change; project the threshold on [0, B].

        Raises:
            RemoteProtocolError: a divisor, the model or the threshold is not finite, or the threshold moves
                further than honest sites move it.
        """
        sums = self._header.read(totals.header)
        divisor = float(sums[self._divisor.name])
        check_mean(state.model.vector, totals.body, divisor, self._divisor)
        self._check_threshold_sum(state, float(sums["threshold"]), float(sums["weight"]))
        opened = OpenedRound(
            RoundNumber(state.rounds_done + 1),
            Moved(state.model.vector, state.model.threshold),
            totals.body,
            {name: sums[name] for name in sums.dtype.names or ()},
            divisor,
            loss_unit(self._setting.plan.task.loss, state.scaling),
            members,
            totals.sizes,
            totals.used_up,
        )
        terms, model = self._setting.terms.after(state.terms, opened)
        check_threshold(state, model.threshold)
        return Applied(self._setting.after_round(state, model.vector, model.threshold, terms))

    def may_be(self, state: RunState) -> bool:
        """Return whether what the terms keep can be."""
        return self._setting.terms.may_be(state.terms, int(state.rounds_done))

    def _check_threshold_sum(self, state: RunState, weighted_change: float, weight: float) -> None:
        """Refuse a sum of changes of the threshold that honest sites do not have, because each clips its own."""
        limit = self._setting.threshold_limit
        if abs(weighted_change) > limit * weight * (1.0 + _ROUNDING):
            raise RemoteProtocolError(
                f"round {state.rounds_done + 1} would move the threshold by {weighted_change / weight:g}, "
                f"a round moves it by at most {limit:g}",
                "a site sent a number that no honest site sends, and a sum does not tell which; compare the "
                "software of the sites",
            )


rule = RoundRule
