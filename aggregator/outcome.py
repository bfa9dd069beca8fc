"""Writes how a run ended: `result.json` and `save/evaluation.json`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.evaluation_record import evaluation_record
from fedfair.plan.derived import is_masked
from fedfair.plan.digest import format_digest
from fedfair.results.document import FORMAT, ResultDocument, UnfinishedResult
from fedfair.results.writing import deployed_result
from fedfair.rounds.exit_reasons import ExitReason

if TYPE_CHECKING:
    from aggregator.preparation import Run


class EndState(enum.Enum):
    """The end state of a run; the value is the word in `result.json`."""

    FINISHED = "finished"
    STOPPED = "stopped"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run.

    Attributes:
        state: finished, stopped by the operator, or aborted; the last two can be continued.
        why: the same, in the words for the sites.
        words: what happened.
        remedy: what to do about it; empty where there is nothing to do.
        signal_name: of the signal by which the operator stopped it; empty where it ended in another way.
    """

    state: EndState
    why: ExitReason
    words: str
    remedy: str = ""
    signal_name: str = ""


def write_result(run: Run, ending: Ending) -> ResultDocument | UnfinishedResult:
    """Write the result of the run and return it; a run without an evaluation has only its state."""
    digest = format_digest(run.plan_digest)
    reached = run.training_run.result()
    noised = distributed_dp(run.plan, run.layout.dimension)
    left = run.records.departures()
    result: ResultDocument | UnfinishedResult
    if reached.evaluation is None and noised is None:
        result = UnfinishedResult(
            format=FORMAT,
            plan_digest=digest,
            rounds=reached.rounds,
            state=ending.state.value,
            outcome=ending.words,
            left=left,
        )
    else:
        figures = deployed_result(
            run.plan,
            digest,
            reached,
            classes=run.schema.classes,
            seconds=run.records.seconds,
            costs=run.records.costs(),
            noised=noised,
        )
        ended = {"state": ending.state.value, "outcome": ending.words, "left": left}
        result = figures.model_copy(update=ended)
    evaluated = run.training_run.evaluated
    if evaluated is not None:
        masked = is_masked(run.plan)
        run.records.write_evaluation(
            evaluation_record(run.plan, run.plan_digest, run.schema, evaluated, masked=masked)
        )
    run.records.write_result(result)
    return result
