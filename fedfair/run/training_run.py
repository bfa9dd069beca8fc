"""One training run as its owner holds it: the present state, the attempt at the sum that is due, and its result.

The state moves by the rules of `rules.py` alone; this class remembers the present one for an aggregator, a site or
a simulation. What is not part of the state is here: attempts, which every side counts for itself. Who takes part,
deadlines and bytes are the business of `fedfair.rounds`, and what a site adds is `local_sgd.py`'s. No torch: the
aggregator imports this module.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.conformal.set_maker import SetMaker
from fedfair.errors import LocalProtocolError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import lost_before
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.answer_terms import UNSAID, AnswerTerms, answer_terms
from fedfair.run.carried import NOTHING, Carried
from fedfair.run.progress import FinalStage, Progress, RunResult, is_at, purpose_at
from fedfair.run.rules import RunRules, Stepped
from fedfair.run.snapshot import RunSnapshot, snapshot_of, state_of
from fedfair.run.state import RunState
from fedfair.run.which_model import WhichModel
from fedfair.statistics.statistic import When
from fedfair.store.long_vectors import IN_MEMORY, VectorRoom

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

ATTEMPT, LOST_ROUNDS = "attempt", "lost_rounds"
"""The names of all that a snapshot of a run holds beside its state."""


class TrainingRun:
    """The one mutable thing of a run.

    `next_sum()` says what to ask for, and says it again until `apply_aggregate()` takes a total or `retry()` gives
    the attempt up. A total that cannot be right raises and leaves everything as it was.

    Args:
        plan: the plan.
        layout: of its model.
        schema: of the features.
        vector: array (d,), the model before round 1; it is copied.
        room: where the moments of the server optimizer are.
        carried: what the run takes over beside the vector.

    Attributes:
        rules: what moves the state.
        initial: the state before the first sum.
        state: the present state.
        lost_rounds: attempts at training rounds that were given up.
        evaluation_only: whether a saved model is evaluated, and nothing is trained.

    Raises:
        LocalProtocolError: the vector has another shape than the plan's model.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        schema: FeatureSchema,
        vector: NDArray[np.floating],
        *,
        room: VectorRoom = IN_MEMORY,
        carried: Carried = NOTHING,
    ) -> None:
        self.rules = RunRules(plan, layout, schema, room=room)
        self._set_maker = SetMaker(plan, schema, self.rules.evaluator)
        self.initial = self.rules.initial(vector, carried)
        self.state: RunState = self.initial
        self._attempt = 1
        self.lost_rounds = lost_before(plan)
        self.evaluation_only = False
        self._saved: WhichModel | None = None
        self._saved_answers = UNSAID

    # -------------------------------------------------------------- the present state

    @property
    def model(self) -> GlobalModel:
        """Return the global model."""
        return self.state.model

    @property
    def scaling(self) -> FeatureScaling | None:
        """Return the feature scaling; None where the plan wants none, and before its sum."""
        return self.state.scaling

    @property
    def rounds_done(self) -> RoundNumber:
        """Return how many training rounds are applied."""
        return self.state.rounds_done

    @property
    def history(self) -> tuple[Evaluation, ...]:
        """Return every evaluation so far, from round 0; of very many, evenly spaced ones."""
        return self.state.history

    @property
    def left_out(self) -> tuple[RoundNumber, ...]:
        """Return the rounds whose evaluation was due and could not be had."""
        return self.state.left_out

    @property
    def best(self) -> GlobalModel:
        """Return the best evaluated model, right after an evaluation that `is_best`.

        It is the global model itself, unless that had to make way for the output model at once.
        """
        return self.state.best or self.state.model

    @property
    def rounds_total(self) -> int:
        """Return how many training rounds the plan has."""
        return self.rules.which(self.state).rounds

    @property
    def which(self) -> WhichModel | None:
        """Return which model the global model is; of a saved one, what its file says, where it says it."""
        return self._saved if self.evaluation_only else self.rules.which(self.state)

    @property
    def trained(self) -> GlobalModel:
        """Return the trained model: the model of the last round, whichever one is returned."""
        return self.state.last or self.state.model

    @property
    def evaluated(self) -> EvaluatedModel | None:
        """Return the sums of the latest evaluation; at the end, of the output model's.

        Its threshold is that of the history and of the model: what round 0 teaches counts from round 0 on.
        """
        evaluated = self.state.evaluated
        return None if evaluated is None else replace(evaluated, threshold=self.state.latest.threshold)

    def answers_of(self, model: GlobalModel) -> AnswerTerms:
        """Return how a model's answers are calibrated and what sets they have, by an evaluation of it.

        Args:
            model: one of this run's; where a saved model is evaluated, that model, and its file has said it.
        """
        if self.evaluation_only:
            return self._saved_answers
        held = (self.state.evaluated, self.state.evaluated_best, self.state.evaluated_earlier)
        sums = next((sums for sums in held if sums and sums.vector_sha256 == model.vector_sha256), None)
        return answer_terms(self.rules.evaluator, self._set_maker, sums)

    # -------------------------------------------------------------- sums

    def next_sum(self) -> SumRequest | None:
        """Return the sum that is due, or None at the end; the same one until `apply_aggregate` or `retry`."""
        return self.rules.next_request(self.state, self._attempt)

    def retry(self) -> None:
        """Give this attempt up, because its quorum was lost: the same sum again, one attempt later."""
        self._attempt += 1
        self.lost_rounds += is_at(self.state.stage, When.ROUND)

    @property
    def may_skip(self) -> bool:
        """Return whether the sum that is due is an evaluation that the training run can do without."""
        return self.rules.may_skip(self.state)

    def skip(self, reason: str) -> bool:
        """Leave out the evaluation that is due; the history has none of this round.

        Args:
            reason: why it cannot be had.

        Returns:
            Whether the global model is another one now: that of the output, whose evaluation is due next.

        Raises:
            LocalProtocolError: the training run cannot do without it.
        """
        before = self.state
        self.state, self._attempt = self.rules.skip(before, reason), 1
        return self.state.model is not before.model

    def apply_aggregate(self, totals: Totals, members: Collection[str] = ()) -> Progress:
        """Take the total of the sum that is due, as `RunRules.step`.

        Raises:
            LocalProtocolError: the training run is finished, or the totals have another shape than the sum.
            RemoteProtocolError: the totals cannot come from honest contributions; nothing has changed.
        """
        return self._moved(self.rules.step(self.state, totals, members))

    def apply_model(self, model: GlobalModel, contributors: int) -> Progress:
        """Take the outcome of a training round that no weighted sum carried, as `RunRules.adopt`.

        Raises:
            LocalProtocolError: no training round is due, or the model has another shape.
            RemoteProtocolError: the model or the threshold holds a NaN or an infinity; nothing has changed.
        """
        return self._moved(self.rules.adopt(self.state, model, contributors))

    def _moved(self, stepped: Stepped) -> Progress:
        self.state, self._attempt = stepped.state, 1
        return stepped.progress

    # -------------------------------------------------------------- results and restarts

    def result(self) -> RunResult:
        """Return the result of the training run so far."""
        state, evaluator, held = self.state, self.rules.evaluator, self.state.evaluated
        answers = self._saved_answers
        if held is not None and not self.evaluation_only:
            answers = answer_terms(evaluator, self._set_maker, held)
        return RunResult(
            state.rounds_done,
            state.model.threshold,
            state.latest if state.history else None,
            {} if held is None else evaluator.confusion(held.header),
            state.history,
            state.stage is FinalStage.FINISHED,
            state.left_out,
            state.query_fault,
            {} if held is None else evaluator.site_means(held.header),
            self.lost_rounds,
            {} if held is None else evaluator.rankings(held.header),
            self.rules.surveyed(state),
            self.which,
            state.model.vector_sha256,
            {} if held is None else evaluator.hedged(held.header),
            answers.calibration,
            {} if held is None else evaluator.calibrated(held.header, answers.calibration),
            state.judging,
            {} if held is None else evaluator.decision_curves(held.header, held.replaced, answers.calibration),
            self.rules.sliced(state),
            "" if state.slices is None else state.slices.fault,
            {} if held is None else evaluator.reference_check(held.header),
            self.rules.references(state),
            *self.rules.kept(state),
            answers.sets,
            {} if held is None else self._set_maker.seen(held.header, answers.sets),
        )

    def snapshot(self) -> RunSnapshot:
        """Return what `restore` needs to resume from here; its vectors are the live ones, not copies."""
        taken = snapshot_of(self.state)
        return replace(taken, state={**taken.state, ATTEMPT: self._attempt, LOST_ROUNDS: self.lost_rounds})

    def brief_snapshot(self) -> RunSnapshot:
        """Return the same without the history, which grows: for who writes each evaluation once."""
        taken = snapshot_of(replace(self.state, history=()))
        return replace(taken, state={**taken.state, ATTEMPT: self._attempt, LOST_ROUNDS: self.lost_rounds})

    def restore(self, snapshot: RunSnapshot) -> None:
        """Continue where a training run of the same plan, layout and schema was.

        Raises:
            LocalProtocolError: the snapshot is damaged or of another plan; nothing has changed.
        """
        words = dict(snapshot.state)
        attempt, lost_rounds = (_taken(words, name) for name in (ATTEMPT, LOST_ROUNDS))
        self.state = self.rules.housed(state_of(replace(snapshot, state=words), self.initial))
        self._attempt, self.lost_rounds = attempt, lost_rounds

    def resume_at(
        self,
        threshold: float,
        rounds_done: RoundNumber,
        scaling: FeatureScaling | None,
        which: WhichModel | None,
        answers: AnswerTerms = UNSAID,
    ) -> None:
        """Take the initial model for one that has so many rounds behind it: all that is due is its evaluation."""
        self.evaluation_only, self._saved, self._saved_answers = True, which, answers
        begun = replace(self.state, stage=purpose_at(When.EVERY), rounds_done=rounds_done, scaling=scaling)
        self.state = self.initial = replace(begun, model=replace(begun.model, threshold=threshold))


def _taken(words: dict[str, object], name: str) -> int:
    """Take a count out of the words of a snapshot."""
    found = words.pop(name, None)
    if not isinstance(found, int):
        raise LocalProtocolError(
            f"the snapshot of the training run cannot be read: its {name} is {found!r}",
            "it is damaged or of another version of fedfair; start the run again",
        )
    return found
