"""The stages of a run: what it sums next, and with which model it ends.

A stage is the statistic that is summed next (`Purpose`), the evaluation of an output model that is another one
than the last, or the end. `Stages` moves a state from one to the next; `plan.schedule` says which sums there are.
An evaluation that cannot be had is left out where the run can do without it. No torch.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from fedfair.aggregation.evaluator import Evaluation, Evaluator
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.quantile_query import ExactQuery, QueryStep
from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.errors import LocalProtocolError
from fedfair.plan.derived import keeps_best, reference_of, rounds_before
from fedfair.plan.schedule import Schedule
from fedfair.plan.schema import Plan
from fedfair.run.history import best_of
from fedfair.run.progress import FinalStage, Stage, is_at, purpose_at
from fedfair.run.state import RunState
from fedfair.statistics.statistic import When

AT_END = (When.LAST, When.SLICED, When.AUDITED)
"""The moments after training, at which sums are about the output model alone."""


class Stages:
    """The stages of every run of one plan.

    Args:
        plan: the plan.
        schedule: which sums its runs make.
        evaluator: how it wants models evaluated.
    """

    def __init__(self, plan: Plan, schedule: Schedule, evaluator: Evaluator) -> None:
        self._training, self._schedule, self._evaluator = plan.training, schedule, evaluator
        self._keeps_best = keeps_best(plan)
        self._before_model = schedule.at(When.FIRST, When.SCALING, When.REFERENCE)
        self._reference, self._first_round = reference_of(plan), rounds_before(plan)
        self._fewest = plan.evaluation.min_group

    @property
    def first(self) -> Stage:
        """Return the stage of the first sum."""
        return self._before_model[0] if self._before_model else self._with_model

    def may_stand_at(self, state: RunState) -> bool:
        """Return whether a run can be at the stage of a state after so many rounds."""
        stage, schedule, done = state.stage, self._schedule, int(state.rounds_done)
        at_end = done == schedule.rounds or self._has_stalled(state)
        if stage is FinalStage.FINISHED:
            return at_end
        if stage is FinalStage.OUTPUT_EVALUATION:
            return at_end and schedule.evaluates and state.mean is not None
        if is_at(stage, When.EVERY):
            return schedule.evaluates_after(done)
        if is_at(stage, When.ROUND):
            return not at_end
        return at_end and stage in schedule.at(*AT_END) if done else stage in self._before_model

    def asks_what_is_due(self, state: RunState) -> bool:
        """Return whether a state holds a query exactly where its stage asks for a step of one."""
        is_sliced = is_at(state.stage, When.SLICED)
        is_over = is_at(state.stage, When.AUDITED) or state.stage is FinalStage.FINISHED
        return (
            (state.query is not None) == is_at(state.stage, When.LAST)
            and (state.slices is not None and not state.slices.is_over) == is_sliced
            and (state.slices is None or is_sliced or is_over)
        )

    def after(self, state: RunState) -> RunState:
        """Return the state at its next stage; at the end of training with the output model."""
        stage, done = state.stage, int(state.rounds_done)
        if stage in self._before_model:
            left = self._before_model[self._before_model.index(stage) + self._is_done(state) :]
            return replace(state, stage=left[0] if left else self._with_model)
        if is_at(stage, *AT_END):
            return state if asked_by(state) is not None else self._ended(state)
        if stage is FinalStage.OUTPUT_EVALUATION:
            return self._ended(state)
        if is_at(stage, When.ROUND) and self._schedule.evaluates_after(done):
            return replace(state, stage=purpose_at(When.EVERY))
        if done < self._schedule.rounds and not self._has_stalled(state):
            return state if is_at(stage, When.ROUND) else replace(state, stage=purpose_at(When.ROUND))
        return self._training_ended(state)

    def _is_done(self, state: RunState) -> bool:
        """Return whether the statistic of a stage before the first model is summed as often as it has to be."""
        if not is_at(state.stage, When.REFERENCE) or state.references is None:
            return True
        return state.references.are_done(self._reference)

    def _has_stalled(self, state: RunState) -> bool:
        """Return whether so many evaluations after the best one as the plan has patience for found none better."""
        patience, best = self._training.patience, state.evaluated_best
        if patience is None or best is None:
            return False
        since = max(int(best.round), self._first_round)
        return len(state.history) - bisect_right(state.history, since, key=_round_of) >= patience

    def may_skip(self, state: RunState) -> bool:
        """Return whether the sum that is due is an evaluation that the run can do without."""
        if is_at(state.stage, *AT_END):
            return True
        if not is_at(state.stage, When.EVERY):
            return False
        if state.rounds_done < self._schedule.rounds:
            return state.rounds_done > 0 or not self._schedule.learns_first
        return state.mean is not None or (self._keeps_best and bool(state.history))

    def skipping(self, state: RunState, reason: str) -> RunState:
        """Return the state without the evaluation that is due; the history has none of this round.

        Args:
            state: the state; it stays as it is.
            reason: why it cannot be had.

        Raises:
            LocalProtocolError: the run cannot do without it.
        """
        if not self.may_skip(state):
            raise LocalProtocolError(f"a training run at {state.stage.value} cannot do without its next sum")
        if is_at(state.stage, *AT_END):
            return self._ended(_given_up(state, reason))
        earlier = state.evaluated if state.mean is not None else state.evaluated_earlier
        left_out = (*state.left_out, state.rounds_done)
        return self.after(replace(state, left_out=left_out, evaluated_earlier=earlier))

    @property
    def _with_model(self) -> Stage:
        """Return the first stage that has a model; the end where none is trained."""
        if not self._schedule.rounds:
            return FinalStage.FINISHED
        return purpose_at(When.EVERY if self._schedule.evaluates_after(0) else When.ROUND)

    def _training_ended(self, state: RunState) -> RunState:
        """Return the state with the output model, and with its evaluation where that is known."""
        if self._keeps_best:
            return self._ended(self._returning_best(state))
        if state.mean is None:
            return self._ended(state)
        mean = state.mean
        vector = mean.vector.astype(state.model.vector.dtype)
        state = replace(state, model=GlobalModel(vector, mean.threshold), last=state.model)
        # No site would mask the evaluation of one model a second time, and it could say nothing new.
        state = replace(state, final=self._earlier_evaluation(state))
        if state.final is None and self._schedule.evaluates:
            return replace(state, stage=FinalStage.OUTPUT_EVALUATION)
        if state.final is not None:
            state = replace(state, evaluated=state.evaluated_earlier)
        return self._ended(state)

    def _returning_best(self, state: RunState) -> RunState:
        """Return the state with the best model as the output model."""
        best = state.best
        if best is None:
            raise LocalProtocolError(f"nothing was kept for output: {self._training.output}")
        last = state.last if state.last is not None or _is_same(best, state.model) else state.model
        final = best_of(state, self._evaluator.rank)
        return replace(state, model=best, last=last, final=final, evaluated=state.evaluated_best)

    def _ended(self, state: RunState) -> RunState:
        """Continue with what the plan asks about the output model next; otherwise finish."""
        if self._schedule.at(When.LAST) and not is_at(state.stage, *AT_END):
            return replace(state, stage=purpose_at(When.LAST), query=ExactQuery.of(self._evaluator.group_sizes))
        if self._schedule.at(When.SLICED) and not is_at(state.stage, When.SLICED, When.AUDITED):
            known = state.final or (state.history[-1] if state.history else None)
            splits = {} if known is None else known.splits
            records = [splits[name].n if name in splits else 0 for name in SPLITS]
            return replace(state, stage=purpose_at(When.SLICED), slices=SliceSearch.of(records, self._fewest))
        if self._schedule.at(When.AUDITED) and not is_at(state.stage, When.AUDITED):
            return replace(state, stage=purpose_at(When.AUDITED))
        return replace(state, stage=FinalStage.FINISHED)

    def _earlier_evaluation(self, state: RunState) -> Evaluation | None:
        """Return the evaluation that a mean has had already, if it is of one model that had one."""
        if self._schedule.evaluates_output:
            return None
        # The mean of one model: that of the last broadcast, if it was evaluated with this very threshold.
        earlier, broadcast = state.evaluated_earlier, (state.rounds_done - 1, state.model.threshold)
        if earlier is None or (earlier.round, earlier.threshold) != broadcast:
            return None
        return next((past for past in state.history if past.round == earlier.round), None)


def _round_of(evaluation: Evaluation) -> int:
    return int(evaluation.round)


def asked_by(state: RunState) -> QueryStep | None:
    """Return the step of a query that a state asks for; None where it asks for no such sum."""
    if state.query is not None:
        return state.query.step
    question = None if state.slices is None else state.slices.question
    return None if question is None else question.step


def _given_up(state: RunState, reason: str) -> RunState:
    """Return the state without what is asked about the output model; an audit leaves nothing behind."""
    if is_at(state.stage, When.AUDITED):
        return state
    if state.slices is not None:
        return replace(state, slices=state.slices.given_up(reason))
    return replace(state, query=None, query_fault=reason)


def _is_same(left: GlobalModel, right: GlobalModel) -> bool:
    return (left.threshold, left.vector_sha256) == (right.threshold, right.vector_sha256)
