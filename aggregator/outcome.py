"""Writes how a run ended: `result.json` and `save/evaluation.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.aggregation.evaluation_file import evaluation_record
from fedfair.plan.derived import is_masked
from fedfair.plan.digest import format_digest
from fedfair.results.document import ResultDocument, UnfinishedResult
from fedfair.results.outcome import AggregatorFacts, EndState, RunSubject, run_outcome
from fedfair.rounds.exit_reasons import ExitReason

if TYPE_CHECKING:
    from aggregator.preparation import Run

__all__ = ["EndState", "Ending", "write_result"]


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
    subject = RunSubject(run.plan, format_digest(run.plan_digest), run.layout, run.schema)
    left = run.records.departures(), run.records.late_sites()
    known, told = AggregatorFacts(run.records.seconds, run.records.costs(), *left), run.training_run.result()
    result = run_outcome(subject, told, ending.state, ending.words, known)
    evaluated = run.training_run.evaluated
    if evaluated is not None:
        masked = is_masked(run.plan)
        record = evaluation_record(run.plan, run.plan_digest, run.schema, evaluated, masked=masked)
        run.records.write_evaluation(record, told.kept_references)
    run.records.write_result(result)
    return result
