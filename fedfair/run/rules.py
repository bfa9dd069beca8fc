"""The rules of a run: which sum a state asks for next, and what its opened sum makes of the state.

    next_request(state) -> what is asked        step(state, totals) -> the next state

Both are pure functions of their arguments and of the plan. The aggregator, every site and a simulation apply the
same ones, so nobody has to be believed about the model, the scaling, the stage or the threshold. Which sums there
are, and in which order, is `plan.schedule`'s. No torch: the aggregator imports this module.

Arithmetic on vectors is elementwise. Decisions compare numbers that come from integers, so all platforms branch
alike; one that diverges is detected by its state digest.

A run returns the model that its plan names. Only `output: best` chooses: the best one that was evaluated, which
may be the model before round 1. Where evaluations carry noise nothing is chosen by them, and it is the last.

An exact evaluation that cannot be finished is given up, and the intervals of the histogram stand: no site answers
one request about one model twice, so it cannot be begun again.

What is done with the mean of the changes is the business of the plan's terms (`terms.table`). Source: Algorithm 1
of the FedSRCVaR paper (lines 3 and 11: broadcast, weighted mean, projection of the threshold on [0, B]). The
projection is here and nowhere else, because projecting at the collaborators would break the equality of one local
step with centralised descent.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_record import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation, Evaluator
from fedfair.aggregation.feature_scaling import scaling_from_sums
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.radix_select import STEPS
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest, check_totals
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import sum_kind, sum_specs
from fedfair.aggregation.survey import SurveySummary, summarised, survey_layout
from fedfair.aggregation.target_scaling import loss_unit, scaled_columns, summed_units
from fedfair.aggregation.training_sum import IterateMean, check_mean
from fedfair.errors import LocalProtocolError, PlanError, RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import (
    carries_scaling,
    is_unevaluated,
    keeps_best,
    keeps_site_thresholds,
    learns_threshold,
    protects_records,
    standardises,
    threshold_limit,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.run.carried import NOTHING, Carried
from fedfair.run.continuing import EXTEND_AGAIN, stated_state
from fedfair.run.history import best_of, with_evaluation
from fedfair.run.initial_threshold import initial_threshold, with_scaling
from fedfair.run.opened_survey import OpenedSurvey
from fedfair.run.progress import PURPOSE_OF, Progress, Stage
from fedfair.run.state import RunState
from fedfair.run.threshold_bound import highest_threshold
from fedfair.run.which_model import WhichModel
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose
from fedfair.store.long_vectors import IN_MEMORY, VectorRoom
from fedfair.terms.table import PlanTerms, divisor_of, training_layout
from fedfair.terms.term import Moved, OpenedRound, TermSetting

_UNSCALED = frozenset({Stage.SURVEY, Stage.STANDARDISATION})
"""The stages before any scaling is known."""

_AFTER_TRAINING = frozenset({Stage.OUTPUT_EVALUATION, Stage.EXACT_EVALUATION, Stage.FINISHED})
"""The stages in which the global model is the output model."""

_ROUNDING = 1e-9
"""By how much a sum of thresholds may exceed its bound: far more than adding a million of them may round."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The outcome of applying one total to a state.

    Attributes:
        state: the next state.
        progress: what happened, for records and people.
    """

    state: RunState
    progress: Progress


class RunRules:
    """The rules of every run of one plan.

    Args:
        plan: the plan.
        layout: of its model.
        schema: of the features.
        room: where the moments of the server optimizer are.

    Attributes:
        evaluator: how the plan wants models evaluated.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        schema: FeatureSchema,
        *,
        room: VectorRoom = IN_MEMORY,
    ) -> None:
        self._plan, self._layout, self._schema = plan, layout, schema
        self._training = plan.training
        self._is_noised = protects_records(plan)
        self._keeps_best = keeps_best(plan)
        self._schedule = schedule_of(plan, len(schema.numeric))
        self._is_scaled = standardises(plan, len(schema.numeric))
        self._upper = math.inf if plan.objective.loss_bound is None else plan.objective.loss_bound
        # Noise for whole collaborators clips model and threshold together, and has no bound of its own.
        self._threshold_limit = math.inf if is_unevaluated(plan) else threshold_limit(plan, schema.classes)
        # Noised counts are in every bin; where sites have thresholds of their own, there is none to bound.
        self._is_bounded = learns_threshold(plan) and not (self._is_noised or keeps_site_thresholds(plan))
        self._units = summed_units(plan.task.loss, schema)
        self._specs = sum_specs(plan, layout, schema)
        self.evaluator = Evaluator.from_plan(plan, schema)
        self._divisor, self._header = divisor_of(plan), training_layout(plan, schema.classes)
        self._terms = PlanTerms(TermSetting(plan, layout, schema.classes, room))
        self._survey = survey_layout(plan, schema)

    def which(self, state: RunState) -> WhichModel:
        """Return which of the run's models is the global model of a state: at its end, the output model."""
        rounds, done, is_over = self._training.rounds, int(state.rounds_done), state.stage in _AFTER_TRAINING
        if is_over and self._keeps_best:
            return WhichModel("best", int(state.latest.round), rounds)
        return WhichModel(self._training.output if is_over and state.mean is not None else "last", done, rounds)

    # -------------------------------------------------------------- where a run begins

    def initial(self, vector: NDArray[np.floating], carried: Carried = NOTHING) -> RunState:
        """Return the state before the first sum, which the plan gives.

        Args:
            vector: array (d,), the plan's model before round 1; it is copied.
            carried: what the run takes over beside it.

        Raises:
            LocalProtocolError: the model has another shape than the plan's, or something else is carried than the
                plan says.
            PlanError: the state that the run goes on from is not the one that the plan names.
        """
        fresh, stated = self._fresh(vector, carried.scaling), self._training.initial
        if carried.state is None or stated is None:
            return fresh
        state = stated_state(carried.state, stated, fresh)
        if not self.may_be(state):
            raise PlanError(
                f"no run of this plan comes to the state after round {state.rounds_done} that it goes on from",
                "an extended plan that keeps something of every site names the same collaborators; "
                + EXTEND_AGAIN,
            )
        return self.housed(state)

    def _fresh(self, vector: NDArray[np.floating], scaling: FeatureScaling | None) -> RunState:
        """Return the state before the first sum of a run that goes on from none."""
        if (scaling is not None) != carries_scaling(self._plan):
            raise LocalProtocolError("a feature scaling comes with initial weights where the plan names it, only")
        if vector.shape != (self._layout.dimension,):
            raise LocalProtocolError(
                f"the initial model has shape {vector.shape}, not ({self._layout.dimension},)"
            )
        return RunState(
            self._first(),
            GlobalModel(np.array(vector, self._layout.dtype), initial_threshold(self._plan, scaling)),
            scaling=scaling,
            terms=self._terms.first,
            mean=IterateMean(np.zeros(self._layout.dimension)) if self._schedule.averages else None,
        )

    def housed(self, state: RunState) -> RunState:
        """Return the same state with the long vectors of its terms in the room of these rules.

        Raises:
            OSError: there is no room.
        """
        terms = self._terms.housed(state.terms)
        return state if terms is state.terms else replace(state, terms=terms)

    def may_be(self, state: RunState) -> bool:
        """Return whether a run of this plan can come to a state, as far as its stage and the shapes of it tell.

        Args:
            state: anything that somebody has sent, of the plan's model.
        """
        schedule, done, numeric = self._schedule, state.rounds_done, len(self._schema.numeric)
        at_end, asks = done == schedule.rounds, self._is_query(state.query)
        stages = {
            Stage.SURVEY: schedule.at(When.FIRST) and done == 0,
            Stage.STANDARDISATION: schedule.at(When.SCALING) and done == 0,
            Stage.EVALUATION: schedule.evaluates_after(done),
            Stage.TRAINING: done < schedule.rounds,
            Stage.OUTPUT_EVALUATION: schedule.evaluates and at_end and state.mean is not None,
            Stage.EXACT_EVALUATION: schedule.at(When.LAST) and at_end and asks,
            Stage.FINISHED: at_end,
        }
        columns = scaled_columns(self._plan.task.loss, numeric)
        scaling, sums = state.scaling, (state.evaluated, state.evaluated_earlier, state.evaluated_best)
        evaluated = self._specs.get(PURPOSE_OF[Stage.EVALUATION])
        length = 0 if evaluated is None else evaluated.header_length
        is_scaled = scaling is not None and scaling.mean.shape == scaling.scale.shape == (columns,)
        return (
            0 <= done <= schedule.rounds
            and bool(stages[state.stage])
            and (state.query is None or state.stage is Stage.EXACT_EVALUATION)
            and (scaling is None or is_scaled)
            and is_scaled == (self._is_scaled and not (schedule.at(When.SCALING) and state.stage in _UNSCALED))
            and self._may_have(state.survey, state.stage)
            and all(kept is None or kept.header.shape == (length,) for kept in sums)
            and self._terms.may_be(state.terms, done)
        )

    def _may_have(self, survey: OpenedSurvey | None, stage: Stage) -> bool:
        """Return whether a survey can be; a run that evaluates a saved model has none."""
        spec = self._specs.get(Purpose.SURVEY)
        if survey is None:
            return True
        return spec is not None and stage is not Stage.SURVEY and survey.header.shape == (spec.header_length,)

    def _is_query(self, query: ExactQuery | None) -> bool:
        """Return whether this is a query of the plan with a step to be asked."""
        if query is None or len(query.splits) != len(SPLITS):
            return False
        sizes, step = self.evaluator.group_sizes, query.splits[0].step
        known = 0 if step == 1 else len(sizes)
        return 1 <= step <= STEPS and all(
            (split.group_sizes, split.step, len(split.prefixes)) == (sizes, step, known)
            and all(0 <= prefix < 1 << 32 for prefix in split.prefixes)
            for split in query.splits
        )

    def surveyed(self, state: RunState) -> SurveySummary | None:
        """Return what the survey of a state says; None where it has none."""
        return None if state.survey is None else summarised(state.survey.header, self._survey)

    # -------------------------------------------------------------- what is asked

    def next_request(self, state: RunState) -> SumRequest | None:
        """Return the first attempt at the sum that a state asks for; None at the end of the run."""
        if state.stage is Stage.FINISHED:
            return None
        purpose = PURPOSE_OF[state.stage]
        number = RoundNumber(state.rounds_done + purpose.statistic.is_round)
        step = None if state.query is None else state.query.step
        asked = SumRequest(purpose, number, 1, self._specs[purpose], step)
        if not purpose.statistic.is_round:
            return asked
        unit = loss_unit(self._plan.task.loss, state.scaling)
        return replace(asked, terms=self._terms.told(state.terms), loss_unit=unit)

    # -------------------------------------------------------------- what an opened sum does

    def step(self, state: RunState, totals: Totals, members: Collection[str] = ()) -> Stepped:
        """Return the state after the sum that `state` asks for.

        Args:
            state: the state; it stays as it is.
            totals: the total of that sum.
            members: who took part. The steps of an exact evaluation need the same members, and control variates
                count them.

        Raises:
            LocalProtocolError: the run is finished, or the totals have another shape than the sum.
            RemoteProtocolError: the totals cannot come from honest contributions.
        """
        request = self.next_request(state)
        if request is None:
            raise LocalProtocolError("a finished training run accepts no further total")
        check_totals(totals, request)
        if self._is_noised:
            totals = sum_kind(request.purpose).possible(totals, self._plan, self._schema)
        evaluation, is_best, after = None, False, state
        if state.stage is Stage.TRAINING:
            after = self._trained(state, totals, members)
        elif state.stage in {Stage.EVALUATION, Stage.OUTPUT_EVALUATION}:
            after, evaluation, is_best = self._evaluated(state, totals)
        elif state.stage is Stage.EXACT_EVALUATION:
            after, evaluation = self._queried(state, totals, members)
        elif state.stage is Stage.SURVEY:
            sum_kind(request.purpose).check(totals.header, self._plan, self._schema)
            after = replace(state, survey=OpenedSurvey(totals.header, tuple(sorted(members))))
        else:
            after = with_scaling(self._plan, state, scaling_from_sums(totals.header, self._units))
        stepped = self._closed(state, after, request.purpose, totals.contributors, evaluation, is_best=is_best)
        progress = replace(stepped.progress, replaced=totals.replaced, replacing=totals.replacing)
        return Stepped(stepped.state, progress)

    def adopt(self, state: RunState, model: GlobalModel, contributors: int) -> Stepped:
        """Return the state after a training round that no weighted sum carried; only a simulation can have one.

        Args:
            state: the state; it stays as it is.
            model: the model after the round, of the same width and length as the last one.
            contributors: how many took part.

        Raises:
            LocalProtocolError: no training round is due, or the model has another shape.
            RemoteProtocolError: the model or the threshold holds a NaN or an infinity.
        """
        if state.stage is not Stage.TRAINING or model.vector.shape != state.model.vector.shape:
            raise LocalProtocolError(f"a model of {model.vector.shape} cannot be adopted at {state.stage.value}")
        check_mean(state.model.vector, model.vector - state.model.vector, 1.0)
        self._check_threshold(state, model.threshold)
        after = self._after_round(state, np.array(model.vector, state.model.vector.dtype), model.threshold)
        return self._closed(state, after, Purpose.TRAINING, contributors, None, is_best=False)

    # -------------------------------------------------------------- leaving out

    def may_skip(self, state: RunState) -> bool:
        """Return whether the sum that is due is an evaluation that the run can do without."""
        if state.stage is Stage.EXACT_EVALUATION:
            return True
        if state.stage is not Stage.EVALUATION:
            return False
        if state.rounds_done < self._training.rounds:
            return state.rounds_done > 0 or self._training.threshold_init != "quantile"
        return state.mean is not None or (self._keeps_best and bool(state.history))

    def skip(self, state: RunState, reason: str) -> RunState:
        """Return the state without the evaluation that is due; the history has none of this round.

        Args:
            state: the state; it stays as it is.
            reason: why it cannot be had.

        Raises:
            LocalProtocolError: the run cannot do without it.
        """
        if not self.may_skip(state):
            raise LocalProtocolError(f"a training run at {state.stage.value} cannot do without its next sum")
        if state.stage is Stage.EXACT_EVALUATION:
            return replace(state, stage=Stage.FINISHED, query=None, query_fault=reason)
        earlier = state.evaluated if state.mean is not None else state.evaluated_earlier
        left_out = (*state.left_out, state.rounds_done)
        return self._advanced(replace(state, left_out=left_out, evaluated_earlier=earlier))

    # -------------------------------------------------------------- one kind of sum each

    def _trained(self, state: RunState, totals: Totals, members: Collection[str]) -> RunState:
        """Step with the mean change sum(w dtheta) / W, sum(w dc) / W; project the threshold on [0, B].

        What takes the place of W, and what else becomes of the round, is the terms' of the plan.
        """
        sums = self._header.read(totals.header)
        weight, weighted_change = float(sums["weight"]), float(sums["threshold"])
        divisor, unit = float(sums[self._divisor.name]), loss_unit(self._plan.task.loss, state.scaling)
        check_mean(state.model.vector, totals.body, divisor, self._divisor)
        self._check_threshold_sum(state, weighted_change, weight)
        opened = OpenedRound(
            RoundNumber(state.rounds_done + 1),
            Moved(state.model.vector, state.model.threshold),
            totals.body,
            {name: sums[name] for name in sums.dtype.names or ()},
            divisor,
            unit,
            members,
            totals.sizes,
            totals.used_up,
        )
        terms, model = self._terms.after(state.terms, opened)
        self._check_threshold(state, model.threshold)
        return replace(self._after_round(state, model.vector, model.threshold), terms=terms)

    def _after_round(self, state: RunState, vector: NDArray[np.floating], threshold: float) -> RunState:
        """Return the state after a round; the paper averages theta^1 (the initial one) to theta^T."""
        mean, before = state.mean, state.model
        if mean is not None and state.rounds_done >= self._schedule.averaged_from:
            mean = mean.including(before.vector, before.threshold)
        found = highest_threshold(self.evaluator, state, self._threshold_limit) if self._is_bounded else math.inf
        model = GlobalModel(vector, min(max(threshold, 0.0), self._upper, found))
        return replace(state, model=model, rounds_done=RoundNumber(state.rounds_done + 1), mean=mean)

    def _check_threshold_sum(self, state: RunState, weighted_change: float, weight: float) -> None:
        """Refuse a sum of changes of the threshold that honest sites do not have, because each clips its own."""
        limit = self._threshold_limit
        if abs(weighted_change) > limit * weight * (1.0 + _ROUNDING):
            raise RemoteProtocolError(
                f"round {state.rounds_done + 1} would move the threshold by {weighted_change / weight:g}, "
                f"a round moves it by at most {limit:g}",
                "a site sent a number that no honest site sends, and a sum does not tell which; compare the "
                "software of the sites",
            )

    def _check_threshold(self, state: RunState, threshold: float) -> None:
        if not math.isfinite(threshold):
            raise RemoteProtocolError(f"round {state.rounds_done + 1} would set the threshold to {threshold}")

    def _evaluated(self, state: RunState, totals: Totals) -> tuple[RunState, Evaluation, bool]:
        """Return the state with an evaluation, the evaluation, and whether it is the best so far."""
        model = state.model
        found = self.evaluator.evaluate(totals.header, state.rounds_done, model.threshold, totals.contributors)
        evaluation = replace(found, replaced=totals.replaced)
        about = (model.vector_sha256, evaluation.threshold, evaluation.round, totals.contributors, totals.replaced)
        previous, latest = state.evaluated, EvaluatedModel(totals.header, *about)
        state = replace(state, evaluated=latest)
        if state.stage is Stage.OUTPUT_EVALUATION:
            return replace(state, final=evaluation), evaluation, False
        if state.rounds_done == 0 and self._training.threshold_init == "quantile":
            highest = min(self._upper, self._threshold_limit)
            learnt = min(max(self.evaluator.threshold(totals.header), 0.0), highest)
            model = replace(model, threshold=learnt)
            # No loss depends on the threshold that was broadcast, a placeholder; round 1 starts from this one.
            evaluation = replace(evaluation, threshold=learnt)
        is_best = not self._is_noised and (
            not state.history or self.evaluator.rank(evaluation) < self.evaluator.rank(self._best_of(state))
        )
        history, digest = with_evaluation(state, evaluation, self.evaluator.rank)
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
        return state, evaluation, is_best

    def _queried(
        self, state: RunState, totals: Totals, members: Collection[str]
    ) -> tuple[RunState, Evaluation | None]:
        """Return the state after a step of an exact evaluation, and what the last step proves.

        A step that cannot be right ends the query and not the run.
        """
        if state.query is None:
            raise LocalProtocolError("an exact evaluation was answered that was not asked for")
        try:
            query = state.query.apply_aggregate(totals.header, members)
            sharpened = self.evaluator.sharpened(state.latest, query) if query.step is None else None
        except RemoteProtocolError as fault:
            return replace(state, query=None, query_fault=fault.message), None
        if sharpened is None:
            return replace(state, query=query), None
        return replace(state, query=None, final=sharpened), sharpened

    # -------------------------------------------------------------- what follows

    def _closed(
        self,
        before: RunState,
        after: RunState,
        purpose: Purpose,
        contributors: int,
        evaluation: Evaluation | None,
        *,
        is_best: bool,
    ) -> Stepped:
        """Go to the next stage; report what became of the sum."""
        about = after.evaluated
        after = self._advanced(after)
        last, model = after.evaluated, after.model
        if after.stage is Stage.EVALUATION and last is not None and _is_of(last, model):
            # The evaluation that is due is of the very model that was evaluated last: the sums would be the same.
            totals = Totals(last.header, np.empty(0), last.contributors, last.replaced)
            after, evaluation, is_best = self._evaluated(after, totals)
            about = after.evaluated
            after = self._advanced(after)
        # By now the model may have made way for the output model; the history says what was evaluated.
        threshold = after.model.threshold if evaluation is None else evaluation.threshold
        changed = after.model is not before.model
        progress = Progress(purpose, after.rounds_done, threshold, contributors, evaluation, is_best, changed)
        return Stepped(after, progress if evaluation is None else replace(progress, evaluated=about))

    def _advanced(self, state: RunState) -> RunState:
        """Return the state at its next stage; at the end of training with the output model."""
        stage, done = state.stage, state.rounds_done
        if stage is Stage.EXACT_EVALUATION:
            return replace(state, stage=Stage.FINISHED if state.query is None else Stage.EXACT_EVALUATION)
        if stage in _UNSCALED:
            surveyed = stage is Stage.SURVEY
            return replace(state, stage=self._first_after_survey() if surveyed else self._first_with_model())
        if stage is Stage.OUTPUT_EVALUATION:
            return self._ended(state)
        if stage is Stage.TRAINING and self._schedule.evaluates_after(done):
            return replace(state, stage=Stage.EVALUATION)
        if done < self._schedule.rounds:
            return replace(state, stage=Stage.TRAINING)
        return self._training_ended(state)

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
            return replace(state, stage=Stage.OUTPUT_EVALUATION)
        if state.final is not None:
            state = replace(state, evaluated=state.evaluated_earlier)
        return self._ended(state)

    def _best_of(self, state: RunState) -> Evaluation:
        return best_of(state, self.evaluator.rank)

    def _returning_best(self, state: RunState) -> RunState:
        """Return the state with the best model as the output model."""
        best = state.best
        if best is None:
            raise LocalProtocolError(f"nothing was kept for output: {self._training.output}")
        last = state.last if state.last is not None or _is_same(best, state.model) else state.model
        return replace(state, model=best, last=last, final=self._best_of(state), evaluated=state.evaluated_best)

    def _ended(self, state: RunState) -> RunState:
        """Go on with the exact evaluation, where the plan asks for one; otherwise finish."""
        if not self._schedule.at(When.LAST) or state.query_fault:
            return replace(state, stage=Stage.FINISHED)
        query = ExactQuery.of(self.evaluator.group_sizes)
        return replace(state, stage=Stage.EXACT_EVALUATION, query=query)

    def _earlier_evaluation(self, state: RunState) -> Evaluation | None:
        """Return the evaluation that a mean has had already, if it is of one model that had one."""
        if self._schedule.evaluates_output:
            return None
        # The mean of one model: that of the last broadcast, if it was evaluated with this very threshold.
        earlier, broadcast = state.evaluated_earlier, (state.rounds_done - 1, state.model.threshold)
        if earlier is None or (earlier.round, earlier.threshold) != broadcast:
            return None
        return next((past for past in state.history if past.round == earlier.round), None)

    def _first(self) -> Stage:
        """Return the stage of the first sum."""
        return Stage.SURVEY if self._schedule.at(When.FIRST) else self._first_after_survey()

    def _first_after_survey(self) -> Stage:
        """Return what comes after a survey, or where there is none."""
        return Stage.STANDARDISATION if self._schedule.at(When.SCALING) else self._first_with_model()

    def _first_with_model(self) -> Stage:
        """Return the first stage that has a model: what comes after a standardisation, or where there is none."""
        return Stage.EVALUATION if self._schedule.evaluates_after(0) else Stage.TRAINING


def _is_of(evaluated: EvaluatedModel, model: GlobalModel) -> bool:
    return (evaluated.threshold, evaluated.vector_sha256) == (model.threshold, model.vector_sha256)


def _is_same(left: GlobalModel, right: GlobalModel) -> bool:
    return (left.threshold, left.vector_sha256) == (right.threshold, right.vector_sha256)
