"""The rules of a run: which sum a state asks for next, and what its opened sum makes of the state.

    next_request(state) -> what is asked        step(state, totals) -> the next state

Both are pure functions of their arguments and of the plan. The aggregator, every site and a simulation apply the
same ones, so nobody has to be believed about the model, the scaling, the stage or the threshold. Which sums there
are, and in which order, is `plan.schedule`'s; what each does to the state is its own room's (`opened_sum`), and
what follows on it `stages`'. No torch: the aggregator imports this module.

Arithmetic on vectors is elementwise. Decisions compare numbers that come from integers, so all platforms branch
alike; one that diverges is detected by its state digest.

A run returns the model that its plan names. Only `output: best` chooses: the best one that was evaluated, which
may be the model before round 1. Where evaluations carry noise nothing is chosen by them, and it is the last.

The threshold is projected on [0, B] here and nowhere else, because projecting at the collaborators would break the
equality of one local step with centralised descent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.audit_findings import AuditFindings
from fedfair.aggregation.column_statistics import StatisticsSummary
from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.reference import first_references
from fedfair.aggregation.requests import GlobalModel, SumRequest, check_totals
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.slice_findings import SliceFindings
from fedfair.aggregation.sum_kinds import sum_kind
from fedfair.aggregation.survey import SurveySummary, summarised, survey_layout
from fedfair.aggregation.target_scaling import loss_unit, scaled_columns
from fedfair.aggregation.training_sum import IterateMean, check_mean
from fedfair.errors import LocalProtocolError, PlanError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import carries_scaling, given_references, keeps_best, measures_excess, standardises
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.carried import NOTHING, Carried
from fedfair.run.continuing import EXTEND_AGAIN, stated_state
from fedfair.run.initial_threshold import initial_threshold
from fedfair.run.kept_sum import statistics_of
from fedfair.run.opened_sum import Applied, RunSetting, check_threshold, state_rules
from fedfair.run.output_sums import asked, audited, sliced
from fedfair.run.progress import FinalStage, Progress, is_at, purpose_at, summed_at
from fedfair.run.reference_file import KeptReferences, kept_references
from fedfair.run.stages import AT_END, Stages
from fedfair.run.state import RunState
from fedfair.run.state_leaves import longer_transcript
from fedfair.run.which_model import WhichModel
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose, purpose_named
from fedfair.store.long_vectors import IN_MEMORY, VectorRoom
from fedfair.transcript.leaf import NO_PLAN, TranscriptLeaf, leaf_of_model, leaf_of_sum


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
        self._setting = setting = RunSetting(plan, layout, schema, room)
        self._plan, self._layout, self._schema = plan, layout, schema
        self.evaluator, self._terms, self._schedule = setting.evaluator, setting.terms, setting.schedule
        self._stages = Stages(plan, setting.schedule, setting.evaluator)
        self._rules = state_rules(setting)
        self._keeps_best = keeps_best(plan)
        self._is_scaled = standardises(plan, len(schema.numeric))

    def which(self, state: RunState) -> WhichModel:
        """Return which of the run's models is the global model of a state: at its end, the output model."""
        rounds, done = self._plan.training.rounds, int(state.rounds_done)
        is_over = isinstance(state.stage, FinalStage) or is_at(state.stage, *AT_END)
        if is_over and self._keeps_best:
            return WhichModel("best", int(state.latest.round), rounds)
        output = self._plan.training.output if is_over and state.mean is not None else "last"
        return WhichModel(output, done, rounds)

    # -------------------------------------------------------------- where a run begins

    def initial(self, vector: NDArray[np.floating], carried: Carried = NOTHING) -> RunState:
        """Return the state before the first sum, which the plan gives.

        Args:
            vector: array (d,), the plan's model before round 1; it is copied.
            carried: what the run takes over beside it.

        Raises:
            LocalProtocolError: the model has another shape than the plan's, or something else is carried than the
                plan says.
            PlanError: the state that the run continues from is not the one that the plan names.
        """
        fresh, stated = self._fresh(vector, carried), self._plan.training.initial
        if carried.state is None or stated is None:
            return fresh
        state = stated_state(carried.state, stated, fresh)
        if not self.may_be(state):
            raise PlanError(
                f"no run of this plan reaches the state after round {state.rounds_done} that it continues from",
                "an extended plan that keeps something of every site names the same collaborators; "
                + EXTEND_AGAIN,
            )
        return self.housed(state)

    def _fresh(self, vector: NDArray[np.floating], carried: Carried) -> RunState:
        """Return the state before the first sum of a run that continues no other."""
        scaling, given = carried.scaling, carried.references
        if (scaling is not None) != carries_scaling(self._plan):
            raise LocalProtocolError("a scaling comes with weights or references where the plan names it, only")
        if (given is not None) != (given_references(self._plan) is not None):
            raise LocalProtocolError("references come from an earlier run where the plan names them, only")
        if given is None and measures_excess(self._plan):
            given = first_references(self._plan, self._schema)
        if vector.shape != (self._layout.dimension,):
            raise LocalProtocolError(
                f"the initial model has shape {vector.shape}, not ({self._layout.dimension},)"
            )
        return RunState(
            self._stages.first,
            GlobalModel(np.array(vector, self._layout.dtype), initial_threshold(self._plan, scaling)),
            scaling=scaling,
            terms=self._terms.first,
            mean=IterateMean(np.zeros(self._layout.dimension)) if self._schedule.averages else None,
            references=given,
        )

    def housed(self, state: RunState) -> RunState:
        """Return the same state with the long vectors of its terms in the room of these rules.

        Raises:
            OSError: there is no room.
        """
        terms = self._terms.housed(state.terms)
        return state if terms is state.terms else replace(state, terms=terms)

    def may_be(self, state: RunState) -> bool:
        """Return whether a run of this plan can reach a state, as far as its stage and the shapes of it tell.

        Args:
            state: anything that somebody has sent, of the plan's model.
        """
        done, stage, scaling = int(state.rounds_done), state.stage, state.scaling
        columns = scaled_columns(self._plan.task.loss, len(self._schema.numeric))
        is_scaled = scaling is not None and scaling.mean.shape == scaling.scale.shape == (columns,)
        is_unscaled = is_at(stage, When.FIRST, When.SCALING) and bool(self._schedule.at(When.SCALING))
        kept = {purpose.value for purpose in self._rules}
        return (
            0 <= done <= self._schedule.rounds
            and self._stages.may_stand_at(state)
            and self._stages.asks_what_is_due(state)
            and (scaling is None or is_scaled)
            and is_scaled == (self._is_scaled and not is_unscaled)
            and state.kept.keys() <= kept
            and (state.evaluated is None or purpose_at(When.EVERY) in self._rules)
            and all(rule.may_be(state) for rule in self._rules.values())
        )

    def surveyed(self, state: RunState) -> SurveySummary | None:
        """Return what the survey of a state says; None where it has none."""
        kept = state.kept.get(Purpose.SURVEY.value)
        return None if kept is None else summarised(kept.header, survey_layout(self._plan, self._schema))

    def kept(self, state: RunState) -> tuple[StatisticsSummary | None, AuditFindings | None]:
        """Return what the statistics of columns and the release audit say; None for each that a state has not."""
        statistics = statistics_of(state.kept.get(Purpose.COLUMN_STATISTICS.value), self._plan)
        return statistics, audited(self._plan, self._schema, state)

    def references(self, state: RunState) -> KeptReferences | None:
        """Return the references that judge in a state, for a file; None where it has none that are trained."""
        return kept_references(self._plan, self._schema, state.judging, state.scaling)

    def sliced(self, state: RunState) -> SliceFindings | None:
        """Return the slices that lie highest; None where a state has not found any."""
        return sliced(self._plan, self._schema, state)

    # -------------------------------------------------------------- what is asked

    def next_request(self, state: RunState, attempt: int = 1) -> SumRequest | None:
        """Return an attempt at the sum that a state asks for, by default the first; None at the end of the run."""
        purpose = summed_at(state.stage)
        if purpose is None:
            return None
        is_round, spec = purpose.statistic.is_round, self._setting.specs[purpose]
        number = RoundNumber(state.rounds_done + is_round)
        step, terms = (
            asked(self._plan, self._schema, state),
            self._terms.read_by_sites(state.terms, is_round=is_round),
        )
        if not is_round:
            held = state.references if is_at(state.stage, When.REFERENCE) else None
            part = 0 if held is None else held.sums + 1
            return SumRequest(purpose, number, attempt, spec, step, terms, part=part)
        unit = loss_unit(self._plan.task.loss, state.scaling)
        return SumRequest(purpose, number, attempt, spec, step, terms, unit)

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
        leaf = leaf_of_sum(request, totals, members, state.digest(NO_PLAN), state.model.vector_sha256)
        if self._setting.is_noised:
            totals = sum_kind(request.purpose).possible(totals, self._plan, self._schema)
        applied = self._rules[request.purpose].apply(state, totals, members)
        return self._closed(state, applied, leaf, (totals.replaced, totals.replacing))

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
        stage, before = state.stage, state.model.vector
        if not is_at(stage, When.ROUND) or model.vector.shape != before.shape:
            raise LocalProtocolError(f"a model of {model.vector.shape} cannot be adopted at {stage.value}")
        check_mean(before, model.vector - before, 1.0)
        check_threshold(state, model.threshold)
        vector = np.array(model.vector, before.dtype)
        after = self._setting.after_round(state, vector, model.threshold, state.terms)
        made, about = after.model.vector_sha256, state.digest(NO_PLAN)
        leaf = leaf_of_model(int(after.rounds_done), made, contributors, about, state.model.vector_sha256)
        return self._closed(state, Applied(after), leaf)

    # -------------------------------------------------------------- leaving out

    def may_skip(self, state: RunState) -> bool:
        """Return whether the sum that is due is an evaluation that the run can do without."""
        return self._stages.may_skip(state)

    def skip(self, state: RunState, reason: str) -> RunState:
        """Return the state without the evaluation that is due, as `Stages.skipping`."""
        return self._stages.skipping(state, reason)

    # -------------------------------------------------------------- what follows

    def _closed(
        self, before: RunState, applied: Applied, leaf: TranscriptLeaf, replaced: tuple[int, int] = (0, 0)
    ) -> Stepped:
        """Add the leaf of the sum to the transcript, go to the next stage, and report what became of the sum."""
        added = longer_transcript(before, leaf, self._plan, self._layout)
        applied = replace(applied, state=replace(applied.state, tree=added.tree))
        about = applied.state.evaluated
        after = self._stages.after(applied.state)
        last, model = after.evaluated, after.model
        if is_at(after.stage, When.EVERY) and last is not None and _is_of(last, model):
            # The evaluation that is due is of the very model that was evaluated last: the sums would be the same.
            totals = Totals(last.header, np.empty(0), last.contributors, last.replaced)
            applied = self._rules[purpose_at(When.EVERY)].apply(after, totals, ())
            about = applied.state.evaluated
            after = self._stages.after(applied.state)
        # By now the model may have made way for the output model; the history says what was evaluated.
        evaluation, changed = applied.evaluation, after.model is not before.model
        threshold = after.model.threshold if evaluation is None else evaluation.threshold
        progress = Progress(
            purpose_named(leaf.kind),
            after.rounds_done,
            threshold,
            leaf.contributors,
            evaluation,
            applied.is_best,
            changed,
            *replaced,
            None if evaluation is None else about,
            added,
        )
        return Stepped(after, progress)


def _is_of(evaluated: EvaluatedModel, model: GlobalModel) -> bool:
    return (evaluated.threshold, evaluated.vector_sha256) == (model.threshold, model.vector_sha256)
