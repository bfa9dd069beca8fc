"""Builds the result of a deployed run where it stands: at its end, or at an evaluation on the way.

The aggregator and every site make the same document of the same state. What only one of them knows (seconds,
bytes, who withdrew) it adds, and the others leave out. Decides what there is to say of a run without any
evaluation; the figures are `writing.py`'s.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.model_layout import Layout
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.results.column_statistics import statistics_result
from fedfair.results.costs import SumCost
from fedfair.results.document import FORMAT, ResultDocument, UnfinishedResult
from fedfair.results.parts import Departure, LateSite
from fedfair.results.writing import Setting, deployed_result
from fedfair.run.progress import RunResult


class EndState(enum.Enum):
    """Where a run stands; the value is the word in `result.json`."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class RunSubject:
    """The subject of a result beside the state of the run.

    Attributes:
        plan: the plan that is run.
        plan_digest: its digest, "sha256:" and 64 hex digits.
        layout: of its model.
        schema: of its features.
        initial_weights: 32 bytes, the digest of the model before round 1; None where no model's file is written.
    """

    plan: Plan
    plan_digest: str
    layout: Layout
    schema: FeatureSchema
    initial_weights: bytes | None = None


@dataclass(frozen=True, slots=True)
class AggregatorFacts:
    """Facts of a run that the aggregator alone knows.

    Attributes:
        seconds: how long it worked.
        costs: of every sum.
        left: who withdrew, in order.
        late: whom sums continued without, in the order in which it first happened.
    """

    seconds: float
    costs: Sequence[SumCost]
    left: tuple[Departure, ...]
    late: tuple[LateSite, ...] = ()

    @property
    def of_sites(self) -> dict[str, object]:
        """Return the fields of a result that tell of sites."""
        return {"left": self.left} | ({"late": self.late} if self.late else {})


def run_outcome(
    subject: RunSubject, reached: RunResult, state: EndState, words: str, known: AggregatorFacts | None = None
) -> ResultDocument | UnfinishedResult:
    """Return the outcome of a run; without an evaluation that is its state alone.

    Args:
        subject: the plan and its model.
        reached: the result of the training run so far.
        state: where it stands.
        words: the same, for people.
        known: what only the aggregator knows; None at a site.
    """
    if reached.statistics is not None:
        counted = statistics_result(
            subject.plan,
            subject.plan_digest,
            reached.statistics,
            Setting.DEPLOYMENT,
            seconds=None if known is None else known.seconds,
            costs=None if known is None else known.costs,
        )
        return counted.model_copy(update=_ended(state, words, known))
    noised = distributed_dp(subject.plan, subject.layout.dimension)
    if reached.evaluation is None and noised is None:
        unfinished = UnfinishedResult(
            format=FORMAT,
            plan_digest=subject.plan_digest,
            rounds=reached.rounds,
            state=state.value,
            outcome=words,
            left=(),
        )
        return unfinished.model_copy(update={} if known is None else known.of_sites)
    figures = deployed_result(
        subject.plan,
        subject.plan_digest,
        reached,
        classes=subject.schema.classes,
        seconds=None if known is None else known.seconds,
        costs=None if known is None else known.costs,
        noised=noised,
    )
    return figures.model_copy(update=_ended(state, words, known))


def _ended(state: EndState, words: str, known: AggregatorFacts | None) -> dict[str, object]:
    return {"state": state.value, "outcome": words} | ({} if known is None else known.of_sites)
