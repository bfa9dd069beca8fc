"""One training run, as the server sees it: which sum comes next, and what its total does to the model.

A `TrainingRun` holds the only state that a run has: the global model and threshold, how many rounds are done and
the evaluations so far. It asks for one sum at a time and applies that sum's total; who takes part, deadlines and
bytes are the business of `fedfair.rounds`, and what a site adds is `local_sgd.py`'s. Deployment and simulation
drive the same object. Which sums there are, and in which order, is `plan.schedule`'s. No torch: the aggregator
imports this module.

An exact evaluation that cannot be finished is given up, and the intervals of the histogram stand: no site answers
one request about one model twice, so it cannot be begun again.

Source: Algorithm 1 of the FedSRCVaR paper (lines 3 and 11: broadcast, weighted mean, projection of the threshold
on [0, B]); the projection is here and nowhere else, because projecting at the collaborators would break the
equality of one local step with centralised descent.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_record import EvaluatedModel, vector_sha256
from fedfair.aggregation.evaluator import Evaluation, Evaluator
from fedfair.aggregation.feature_scaling import scaling_from_sums
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest, check_totals
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import sum_kind, sum_specs
from fedfair.aggregation.training_sum import TRAINING_LAYOUT, IterateMean, add_mean, check_mean
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import is_unevaluated, keeps_best, protects_records, returns_last, threshold_limit
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.purpose import Purpose
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.run.progress import PURPOSE_OF, Progress, RunResult, Stage
from fedfair.run.quantile_stage import QuantileStage
from fedfair.run.state import (
    EARLIER_SUMS,
    LATEST_SUMS,
    RunSnapshot,
    RunState,
    evaluated_model,
    state_from_json,
    state_to_json,
    subject_of,
)

__all__ = [
    "Evaluation",
    "FeatureScaling",
    "GlobalModel",
    "Progress",
    "RunResult",
    "RunSnapshot",
    "SumRequest",
    "TrainingRun",
]


_ROUNDING = 1e-9
"""By how much a sum of thresholds may exceed its bound: far more than adding a million of them may round."""


class TrainingRun:
    """The one mutable thing of a run.

    `next_sum()` says what to ask for, and says it again until `apply_aggregate()` takes a total or `retry()` gives
    the attempt up. A total that cannot be right raises and leaves everything as it was.

    Attributes:
        model: the global model, changed in place by training totals.
        scaling: the feature scaling; None where the plan wants none, and before its sum.
        rounds_done: training rounds applied.
        history: every evaluation so far, from round 0.
        left_out: the rounds whose evaluation was due and could not be had.
        lost_rounds: attempts at training rounds that were given up.
        evaluation_only: whether a saved model is evaluated, and nothing is trained.
    """

    def __init__(self, plan: Plan, layout: Layout, schema: FeatureSchema, vector: NDArray[np.floating]) -> None:
        if vector.shape != (layout.dimension,):
            raise LocalProtocolError(f"the initial model has shape {vector.shape}, not ({layout.dimension},)")
        self._training = plan.training
        self._plan, self._schema, self._is_noised = plan, schema, protects_records(plan)
        self._keeps_best, self._returns_last = keeps_best(plan), returns_last(plan)
        self._schedule = schedule_of(plan, len(schema.numeric))
        self._upper = math.inf if plan.objective.loss_bound is None else plan.objective.loss_bound
        # Noise for whole collaborators clips model and threshold together, and has no bound of its own.
        self._threshold_limit = math.inf if is_unevaluated(plan) else threshold_limit(plan, schema.classes)
        self._specs = sum_specs(plan, layout, schema)
        self._evaluator = Evaluator.from_plan(plan, schema)
        self._stage = Stage.STANDARDISATION if self._schedule.standardises else self._first_with_model()
        self._units = schema.units
        self._attempt = 1
        self._mean = IterateMean(layout.dimension) if self._schedule.averages else None
        self._best_objective = math.inf
        self._best: GlobalModel | None = None
        self._final: Evaluation | None = None
        self._evaluated: EvaluatedModel | None = None
        self._evaluated_earlier: EvaluatedModel | None = None
        self._exact = QuantileStage(self._evaluator, wanted=self._schedule.exact)
        self.model = GlobalModel(np.array(vector, layout.dtype), self._initial_threshold())
        self.scaling: FeatureScaling | None = None
        self.rounds_done = RoundNumber(0)
        self.history: list[Evaluation] = []
        self.left_out: list[RoundNumber] = []
        self.lost_rounds = 0
        self.evaluation_only = False

    def next_sum(self) -> SumRequest | None:
        """Return the sum that is due, or None at the end; the same one until `apply_aggregate` or `retry`."""
        if self._stage is Stage.FINISHED:
            return None
        purpose = PURPOSE_OF[self._stage]
        number = RoundNumber(self.rounds_done + sum_kind(purpose).is_round)
        return SumRequest(purpose, number, self._attempt, self._specs[purpose], self._exact.step)

    def retry(self) -> None:
        """Give this attempt up, because its quorum was lost: the same sum again, one attempt later."""
        self._attempt += 1
        self.lost_rounds += self._stage is Stage.TRAINING

    @property
    def may_skip(self) -> bool:
        """Return whether the sum that is due is an evaluation that the training run can do without."""
        if self._stage is Stage.EXACT_EVALUATION:
            return True
        if self._stage is not Stage.EVALUATION:
            return False
        if self.rounds_done < self._training.rounds:
            return self.rounds_done > 0 or self._training.threshold_init != "quantile"
        return self._mean is not None or (self._keeps_best and bool(self.history))

    def skip(self, reason: str) -> bool:
        """Leave out the evaluation that is due; the history has none of this round.

        Args:
            reason: why it cannot be had.

        Returns:
            Whether the global model is another one now: that of the output, whose evaluation is due next.

        Raises:
            LocalProtocolError: the training run cannot do without it.
        """
        if not self.may_skip:
            raise LocalProtocolError(f"a training run at {self._stage.value} cannot do without its next sum")
        self._attempt = 1
        if self._stage is Stage.EXACT_EVALUATION:
            self._exact.give_up(reason)
            self._stage = Stage.FINISHED
            return False
        self.left_out.append(self.rounds_done)
        if self._mean is not None:
            self._evaluated_earlier = self._evaluated
        return self._advance()

    def apply_aggregate(self, totals: Totals, members: Collection[str] = ()) -> Progress:
        """Take the total of the sum that is due: check it, then change the state.

        Args:
            totals: the total.
            members: who took part; the steps of an exact evaluation need the same members.

        Raises:
            LocalProtocolError: the training run is finished, or the totals have another shape than the sum.
            RemoteProtocolError: the totals cannot come from honest contributions; nothing has changed.
        """
        request = self.next_sum()
        if request is None:
            raise LocalProtocolError("a finished training run accepts no further total")
        check_totals(totals, request)
        if self._is_noised:
            totals = sum_kind(request.purpose).possible(totals, self._plan, self._schema)
        evaluation, is_best, model_changed = None, False, False
        if self._stage is Stage.TRAINING:
            self._take_step(totals)
            model_changed = True
        elif self._stage in {Stage.EVALUATION, Stage.OUTPUT_EVALUATION}:
            evaluation, is_best, model_changed = self._take_evaluation(totals)
        elif self._stage is Stage.EXACT_EVALUATION:
            evaluation = self._exact.apply_aggregate(totals, members, self._latest())
            self._final = evaluation or self._final
        else:
            self.scaling = scaling_from_sums(totals.header, self._units)
        self._attempt = 1
        progress = self._closed(
            request.purpose, totals.contributors, evaluation, is_best=is_best, changed=model_changed
        )
        return replace(progress, replaced=totals.replaced, replacing=totals.replacing)

    def apply_model(self, model: GlobalModel, contributors: int) -> Progress:
        """Take the outcome of a training round that no weighted sum carried; only a simulation can have one.

        Args:
            model: the model after the round, of the same width and length as the last one.
            contributors: how many took part.

        Raises:
            LocalProtocolError: no training round is due, or the model has another shape.
            RemoteProtocolError: the model or the threshold holds a NaN or an infinity; nothing has changed.
        """
        if self._stage is not Stage.TRAINING or model.vector.shape != self.model.vector.shape:
            raise LocalProtocolError(f"a model of {model.vector.shape} cannot be adopted at {self._stage.value}")
        check_mean(self.model.vector, model.vector - self.model.vector, 1.0)
        self._check_threshold(model.threshold)
        self._remember_broadcast()
        self.model.vector[:] = model.vector
        self._finish_round(model.threshold)
        return self._closed(Purpose.TRAINING, contributors, None, is_best=False, changed=False)

    def _closed(
        self, purpose: Purpose, contributors: int, evaluation: Evaluation | None, *, is_best: bool, changed: bool
    ) -> Progress:
        """Go on after a sum; return what became of it."""
        changed |= self._advance()
        if self._is_evaluated():
            evaluation, is_best, replaced = self._evaluate_again()
            changed |= replaced
        # By now the model may have made way for the output model; the history says what was evaluated.
        threshold = self.model.threshold if evaluation is None else evaluation.threshold
        done = self.rounds_done
        return Progress(purpose, done, threshold, contributors, evaluation, is_best, changed)

    @property
    def best(self) -> GlobalModel:
        """Return the best evaluated model, right after an evaluation that `is_best`.

        It is the global model itself, unless that had to make way for the output model at once.
        """
        return self._best or self.model

    @property
    def evaluated(self) -> EvaluatedModel | None:
        """Return the sums of the latest evaluation; at the end, of the output model's.

        Its threshold is that of the history and of the model: what round 0 teaches counts from round 0 on.
        """
        return self._evaluated and replace(self._evaluated, threshold=self._latest().threshold)

    def result(self) -> RunResult:
        """Return the result of the training run so far."""
        evaluation = self._latest() if self.history else None
        finished = self._stage is Stage.FINISHED
        return RunResult(
            self.rounds_done,
            self.model.threshold,
            evaluation,
            {} if self._evaluated is None else self._evaluator.confusion(self._evaluated.header),
            tuple(self.history),
            finished,
            tuple(self.left_out),
            self._exact.fault,
            {} if self._evaluated is None else self._evaluator.site_means(self._evaluated.header),
            self.lost_rounds,
        )

    def snapshot(self) -> RunSnapshot:
        """Return what `restore` needs to resume from here; its vectors are the live ones, not copies."""
        mean, best = self._mean, self._best
        vectors = {"model": self.model.vector}
        if mean is not None:
            vectors["mean"] = mean.vector
        if best is not None:
            vectors["best"] = best.vector
        sums = {LATEST_SUMS: self._evaluated, EARLIER_SUMS: self._evaluated_earlier}
        vectors |= {name: evaluated.header for name, evaluated in sums.items() if evaluated is not None}
        if self.scaling is not None:
            vectors |= {"scaling.mean": self.scaling.mean, "scaling.scale": self.scaling.scale}
        state = RunState(
            stage=self._stage.value,
            attempt=self._attempt,
            rounds_done=self.rounds_done,
            threshold=self.model.threshold,
            best_objective=self._best_objective,
            best_threshold=best.threshold if best else 0.0,
            mean_threshold=mean.threshold if mean else 0.0,
            mean_count=mean.count if mean else 0,
            history=tuple(self.history),
            left_out=tuple(self.left_out),
            lost_rounds=self.lost_rounds,
            final=self._final,
            query=self._exact.query,
            query_fault=self._exact.fault,
            subjects={name: subject_of(evaluated) for name, evaluated in sums.items() if evaluated is not None},
        )
        return RunSnapshot(state_to_json(state), vectors)

    def restore(self, snapshot: RunSnapshot) -> None:
        """Continue where a training run of the same plan, layout and schema was.

        Raises:
            LocalProtocolError: the snapshot is damaged or of another plan; nothing has changed.
        """
        state, vectors = state_from_json(snapshot.state), snapshot.vectors
        stage = next((stage for stage in Stage if stage.value == state.stage), None)
        wanted = {"model"} | ({"mean"} if self._mean else set())
        fits = all(
            vectors[name].shape == self.model.vector.shape for name in ("model", "mean", "best") if name in vectors
        )
        if stage is None or not wanted <= vectors.keys() or not fits:
            raise LocalProtocolError(
                f"a snapshot at stage {state.stage!r} with {sorted(vectors)} does not fit this training run",
                "it belongs to another plan; start the run again",
            )
        self._stage, self._attempt, self.rounds_done = stage, state.attempt, RoundNumber(state.rounds_done)
        self.history, self._final = list(state.history), state.final
        self.left_out = [RoundNumber(number) for number in state.left_out]
        self.lost_rounds = state.lost_rounds
        self._exact.query, self._exact.fault = state.query, state.query_fault
        self._evaluated = evaluated_model(snapshot, state, LATEST_SUMS)
        self._evaluated_earlier = evaluated_model(snapshot, state, EARLIER_SUMS)
        self._best_objective = state.best_objective
        self.model = GlobalModel(np.array(vectors["model"], self.model.vector.dtype), state.threshold)
        if "best" in vectors:
            self._best = GlobalModel(np.array(vectors["best"], self.model.vector.dtype), state.best_threshold)
        if self._mean is not None:
            self._mean.vector[:] = vectors["mean"]
            self._mean.threshold, self._mean.count = state.mean_threshold, state.mean_count
        if "scaling.mean" in vectors:
            self.scaling = FeatureScaling(np.array(vectors["scaling.mean"]), np.array(vectors["scaling.scale"]))

    def resume_at(self, threshold: float, rounds_done: RoundNumber, scaling: FeatureScaling | None) -> None:
        """Take the initial model for one that has so many rounds behind it: all that is due is its evaluation."""
        self.evaluation_only = True
        self.model.threshold, self.rounds_done, self.scaling = threshold, rounds_done, scaling
        self._stage = Stage.EVALUATION

    def _initial_threshold(self) -> float:
        """Return c before round 1: a number of the plan, or the bound B; without either, 1 (the paper's B)."""
        given = self._training.threshold_init
        if isinstance(given, str):
            return 1.0 if math.isinf(self._upper) else self._upper
        return min(float(given), self._upper)

    def _take_step(self, totals: Totals) -> None:
        """Set theta <- theta + sum(w dtheta) / W, c <- projection of c + sum(w dc) / W on [0, B]."""
        sums = TRAINING_LAYOUT.read(totals.header)
        weight, weighted_change = float(sums["weight"]), float(sums["threshold"])
        check_mean(self.model.vector, totals.body, weight)
        self._check_threshold_sum(weighted_change, weight)
        threshold = self.model.threshold + weighted_change / weight
        self._check_threshold(threshold)
        self._remember_broadcast()
        add_mean(self.model.vector, totals.body, weight)
        self._finish_round(threshold)

    def _check_threshold_sum(self, weighted_change: float, weight: float) -> None:
        """Refuse a sum of changes of the threshold that honest sites do not have, because each clips its own."""
        limit = self._threshold_limit
        if abs(weighted_change) > limit * weight * (1.0 + _ROUNDING):
            raise RemoteProtocolError(
                f"round {self.rounds_done + 1} would move the threshold by {weighted_change / weight:g}, "
                f"a round moves it by at most {limit:g}",
                "a site sent a number that no honest site sends, and a sum does not tell which; compare the "
                "software of the sites",
            )

    def _check_threshold(self, threshold: float) -> None:
        if not math.isfinite(threshold):
            raise RemoteProtocolError(f"round {self.rounds_done + 1} would set the threshold to {threshold}")

    def _remember_broadcast(self) -> None:
        """Count the broadcast pair in: the paper averages theta^1 (the initial one) to theta^T."""
        if self._mean is not None and self._belongs_to_mean():
            self._mean.include(self.model.vector, self.model.threshold)

    def _finish_round(self, threshold: float) -> None:
        self.model.threshold = min(max(threshold, 0.0), self._upper)
        self.rounds_done = RoundNumber(self.rounds_done + 1)

    def _belongs_to_mean(self) -> bool:
        return self.rounds_done >= self._schedule.averaged_from

    def _is_evaluated(self) -> bool:
        """Return whether the evaluation that is due is of the very model that was evaluated last."""
        last, model = self._evaluated, self.model
        known = None if last is None else (last.threshold, last.vector_sha256)
        return self._stage is Stage.EVALUATION and known == (model.threshold, vector_sha256(model.vector))

    def _evaluate_again(self) -> tuple[Evaluation, bool, bool]:
        """Take what is known of the model for its evaluation of this round too: the sums would be the same."""
        last = self._evaluated
        if last is None:
            raise LocalProtocolError("no evaluation is known")
        totals = Totals(last.header, np.empty(0), last.contributors, last.replaced)
        evaluation, is_best, _ = self._take_evaluation(totals)
        return evaluation, is_best, self._advance()

    def _evaluation(self, totals: Totals) -> Evaluation:
        evaluation = self._evaluator.evaluate(totals.header, self.rounds_done, self.model.threshold)
        return replace(evaluation, replaced=totals.replaced)

    def _take_evaluation(self, totals: Totals) -> tuple[Evaluation, bool, bool]:
        """Keep an evaluation; return it, whether it is the best so far, and whether it changed the threshold."""
        evaluation = self._evaluation(totals)
        previous, digest = self._evaluated, vector_sha256(self.model.vector)
        about = (digest, evaluation.threshold, evaluation.round, totals.contributors, totals.replaced)
        latest = EvaluatedModel(totals.header, *about)
        self._evaluated = latest
        if self._stage is Stage.OUTPUT_EVALUATION:
            self._final = evaluation
            return evaluation, False, False
        learnt = self.rounds_done == 0 and self._training.threshold_init == "quantile"
        if learnt:
            highest = min(self._upper, self._threshold_limit)
            self.model.threshold = min(max(self._evaluator.threshold(totals.header), 0.0), highest)
            # No loss depends on the threshold that was broadcast, a placeholder; round 1 starts from this one.
            evaluation = replace(evaluation, threshold=self.model.threshold)
        self.history.append(evaluation)
        is_best = evaluation.objective < self._best_objective
        # What the output model may turn out to be without another evaluation: the best, or the last broadcast.
        if self._mean is not None:
            self._evaluated_earlier = previous
        elif is_best:
            self._evaluated_earlier = latest
        if is_best:
            self._best_objective = evaluation.objective
            if self._keeps_best:
                self._best = GlobalModel(self.model.vector.copy(), self.model.threshold)
        return evaluation, is_best, learnt

    def _latest(self) -> Evaluation:
        """Return the evaluation of the global model, at the end of training."""
        return self._final or self.history[-1]

    def _first_with_model(self) -> Stage:
        """Return the first stage that has a model: what comes after a standardisation, or where there is none."""
        return Stage.EVALUATION if self._schedule.evaluates_after(0) else Stage.TRAINING

    def _advance(self) -> bool:
        """Go to the next stage; return whether that replaced the global model by the output model."""
        stage, done = self._stage, self.rounds_done
        if stage is Stage.EXACT_EVALUATION:
            self._stage = Stage.FINISHED if self._exact.query is None else Stage.EXACT_EVALUATION
        elif stage is Stage.STANDARDISATION:
            self._stage = self._first_with_model()
        elif stage is Stage.OUTPUT_EVALUATION:
            self._end()
        elif stage is Stage.TRAINING and self._schedule.evaluates_after(done):
            self._stage = Stage.EVALUATION
        elif done < self._schedule.rounds:
            self._stage = Stage.TRAINING
        else:
            return self._end_training()
        return False

    def _end_training(self) -> bool:
        """Go on with the output model; return whether it is another one than the last."""
        if self._returns_last:
            self._end()
            return False
        self._switch_to_output()
        # No site would mask the evaluation of one model a second time, and it could say nothing new.
        self._final = self._earlier_evaluation()
        if self._final is None and self._schedule.evaluates:
            self._stage = Stage.OUTPUT_EVALUATION
            return True
        if self._final is not None:
            self._evaluated = self._evaluated_earlier
        self._end()
        return True

    def _end(self) -> None:
        """Go on with the exact evaluation, where the plan asks for one; otherwise finish."""
        self._stage = Stage.EXACT_EVALUATION if self._exact.begin() else Stage.FINISHED

    def _earlier_evaluation(self) -> Evaluation | None:
        """Return the evaluation that the output model has had already, if it has had one."""
        if self._mean is None:
            return min(self.history, key=lambda past: past.objective)
        if self._schedule.evaluates_output:
            return None
        # The mean of one model: that of the last broadcast, if it was evaluated with this very threshold.
        earlier, broadcast = self._evaluated_earlier, (self.rounds_done - 1, self.model.threshold)
        if earlier is None or (earlier.round, earlier.threshold) != broadcast:
            return None
        return next((past for past in self.history if past.round == earlier.round), None)

    def _switch_to_output(self) -> None:
        output = self._mean or self._best
        if output is None:
            raise LocalProtocolError(f"nothing was kept for output: {self._training.output}")
        present = (past.objective for past in self.history[-1:] if past.round == self.rounds_done)
        if self._best is None and self._best_objective in present:
            self._best = GlobalModel(self.model.vector.copy(), self.model.threshold)
        self.model.vector[:] = output.vector
        self.model.threshold = output.threshold
