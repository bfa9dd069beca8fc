"""The way from an opened sum to the next state: each statistic brings its rule, and all rules read one setting.

The rule of a statistic is in `state.py` of its room in `fedfair.statistics`, and is found by the name of the room.
What follows on it is `stages.py`'s. No torch: the aggregator imports this module.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluator import Evaluation, Evaluator
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import sum_kind, sum_specs
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import (
    is_unevaluated,
    keeps_site_thresholds,
    learns_threshold,
    protects_records,
    threshold_limit,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.run.kept_sum import KeptSum
from fedfair.run.state import RunState
from fedfair.run.threshold_bound import highest_threshold
from fedfair.statistics.table import Purpose, room_of
from fedfair.store.long_vectors import VectorRoom
from fedfair.terms.table import PlanTerms, TermStates
from fedfair.terms.term import TermSetting


class RunSetting:
    """The facts of a plan that the rules of its runs read.

    Args:
        plan: the plan.
        layout: of its model.
        schema: of the features.
        room: where the moments of the server optimizer are.

    Attributes:
        schedule: which sums a run makes.
        specs: the shape of every sum.
        evaluator: how the plan wants models evaluated.
        terms: the rules of its terms.
        is_noised: whether sums carry noise for single records.
        loss_bound: B, the highest threshold; infinite without one.
        threshold_limit: the most by which a round may move the threshold.
    """

    def __init__(self, plan: Plan, layout: Layout, schema: FeatureSchema, room: VectorRoom) -> None:
        self.plan, self.layout, self.schema = plan, layout, schema
        self.schedule = schedule_of(plan, len(schema.numeric))
        self.specs = sum_specs(plan, layout, schema)
        self.evaluator = Evaluator(plan, schema)
        self.terms = PlanTerms(TermSetting(plan, layout, schema.classes, room))
        self.is_noised = protects_records(plan)
        self.loss_bound = math.inf if plan.objective.loss_bound is None else plan.objective.loss_bound
        # Noise for whole collaborators clips model and threshold together, and has no bound of its own.
        self.threshold_limit = math.inf if is_unevaluated(plan) else threshold_limit(plan, schema.classes)
        # Noised counts are in every bin; where sites have thresholds of their own, there is none to bound.
        self._is_bounded = learns_threshold(plan) and not (self.is_noised or keeps_site_thresholds(plan))

    def after_round(
        self, state: RunState, vector: NDArray[np.floating], threshold: float, terms: TermStates
    ) -> RunState:
        """Return the state after a round of training, with the threshold projected on [0, B].

        The paper averages theta^1 (the initial one) to theta^T.
        """
        mean, before, found = state.mean, state.model, math.inf
        if mean is not None and state.rounds_done >= self.schedule.averaged_from:
            mean = mean.including(before.vector, before.threshold)
        if self._is_bounded:
            found = highest_threshold(self.evaluator, state, self.threshold_limit)
        model = GlobalModel(vector, min(max(threshold, 0.0), self.loss_bound, found))
        done = RoundNumber(state.rounds_done + 1)
        return replace(state, model=model, rounds_done=done, mean=mean, terms=terms)


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of an opened sum, before the run goes to its next stage.

    Attributes:
        state: with the total.
        evaluation: what it proved about a model; None where it is about none.
        is_best: the evaluated model is the best so far.
    """

    state: RunState
    evaluation: Evaluation | None = None
    is_best: bool = False


class StateRule(Protocol):
    """What the total of one statistic does to the state of a run."""

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Return the outcome of a total that has the right shape.

        Raises:
            RemoteProtocolError: no honest contributions have this total.
        """
        ...

    def may_be(self, state: RunState) -> bool:
        """Return whether what a state holds of this statistic can be, in a run of the plan."""
        ...


class KeepingRule:
    """The rule of a statistic whose total is kept whole, for people and for the sites.

    Args:
        purpose: the statistic; it is summed before the features are scaled.
        setting: of the run.
    """

    def __init__(self, purpose: Purpose, setting: RunSetting) -> None:
        self._purpose, self._setting = purpose, setting

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Keep the total; raises as `SumKind.check`."""
        sum_kind(self._purpose).check(totals.header, self._setting.plan, self._setting.schema)
        kept = KeptSum(totals.header, tuple(sorted(members)))
        return Applied(replace(state, kept={**state.kept, self._purpose.value: kept}))

    def may_be(self, state: RunState) -> bool:
        """Return whether the kept sum can be; a run that evaluates a saved model has none."""
        kept = state.kept.get(self._purpose.value)
        length = self._setting.specs[self._purpose].header_length
        return kept is None or (state.stage is not self._purpose and kept.header.shape == (length,))


def check_threshold(state: RunState, threshold: float) -> None:
    """Refuse a threshold after the round of a state that is no number.

    Raises:
        RemoteProtocolError: it is NaN or infinite.
    """
    if not math.isfinite(threshold):
        raise RemoteProtocolError(f"round {state.rounds_done + 1} would set the threshold to {threshold}")


def state_rules(setting: RunSetting) -> dict[Purpose, StateRule]:
    """Return the rule of every statistic of a plan."""
    # By name, because the rooms import the state of a run, which knows the table of statistics.
    return {purpose: _rule(purpose)(setting) for purpose in setting.specs}


def _rule(purpose: Purpose) -> Callable[[RunSetting], StateRule]:
    found = importlib.import_module(f"{room_of(purpose)}.state").rule
    if not callable(found):
        raise LocalProtocolError(f"{room_of(purpose)}.state.rule is no rule")
    rule: Callable[[RunSetting], StateRule] = found
    return rule
