"""An evaluation in the state of a run: the history grows, and the best model may be another one. No torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.running_sum import Totals
from fedfair.run.history import best_of, with_evaluation
from fedfair.run.opened_sum import Applied, RunSetting
from fedfair.run.progress import FinalStage
from fedfair.run.state import RunState
from fedfair.statistics.table import Purpose


class EvaluationRule:
    """The rule of an evaluation in the runs of a plan.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._setting, self._evaluator = setting, setting.evaluator
        self._length = setting.specs[Purpose.EVALUATION].header_length

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Take the evaluation into the history; where the plan says so, its threshold is that of round 1."""
        del members
        model, rank = state.model, self._evaluator.rank
        found = self._evaluator.evaluate(totals.header, state.rounds_done, model.threshold, totals.contributors)
        evaluation = replace(found, replaced=totals.replaced)
        about = (model.vector_sha256, evaluation.threshold, evaluation.round, totals.contributors, totals.replaced)
        previous, latest = state.evaluated, EvaluatedModel(totals.header, *about)
        state = replace(state, evaluated=latest)
        if state.stage is FinalStage.OUTPUT_EVALUATION:
            return Applied(replace(state, final=evaluation), evaluation)
        if state.rounds_done == 0 and self._setting.schedule.learns_first:
            highest = min(self._setting.loss_bound, self._setting.threshold_limit)
            learnt = min(max(self._evaluator.threshold(totals.header), 0.0), highest)
            model = replace(model, threshold=learnt)
            # No loss depends on the threshold that was broadcast, a placeholder; round 1 starts from this one.
            evaluation = replace(evaluation, threshold=learnt)
        is_best = not self._setting.is_noised and (
            not state.history or rank(evaluation) < rank(best_of(state, rank))
        )
        history, digest = with_evaluation(state, evaluation, rank)
        state = replace(
            state,
            model=model,
            history=history,
            history_digest=digest,
            # A mean of one model turns out to be the last one that was broadcast.
            evaluated_earlier=None if state.mean is None else previous,
        )
        if is_best:
            state = replace(state, best=model, evaluated_best=latest)
        return Applied(state, evaluation, is_best)

    def may_be(self, state: RunState) -> bool:
        """Return whether the sums that are kept have the length of an evaluation."""
        sums = (state.evaluated, state.evaluated_earlier, state.evaluated_best)
        return all(kept is None or kept.header.shape == (self._length,) for kept in sums)


rule = EvaluationRule
