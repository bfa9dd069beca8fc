"""Writes how a run ended: `result.json` and `save/evaluation.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.aggregation.evaluation_file import evaluation_record, header_bytes
from fedfair.plan.derived import is_masked
from fedfair.plan.digest import format_digest
from fedfair.results.document import ResultDocument, UnfinishedResult
from fedfair.results.outcome import AggregatorFacts, EndState, RunSubject, run_outcome
from fedfair.results.release import with_words
from fedfair.rounds.exit_reasons import ExitReason
from fedfair.transcript.evidence import FILE, read_evidence
from fedfair.transcript.statement import ReleaseVerdict, StatementKind, parse_statement

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
        run.records.write_evaluation(record, header_bytes(evaluated.header), told.kept_references)
    if isinstance(result, ResultDocument):
        release = with_words(result.release, run.plan.federation.collaborators, _verdicts(run))
        if release is not None:
            result = result.model_copy(update={"release": release})
    run.records.write_result(result)
    return result


def _verdicts(run: Run) -> dict[str, ReleaseVerdict]:
    """Return the word of each site that has signed the end of this run, as this side's own copy has it."""
    path = run.records.spill_folder / FILE
    if run.training_run.evaluation_only or not path.is_file():
        return {}
    found = read_evidence(path)
    if found.same_run != (run.admission.federation, run.plan_digest, run.records.run_id):
        return {}
    said = (parse_statement(raw.encode("ascii")) for raw in found.statements.values())
    return {str(one.participant): one.verdict for one in said if one.kind is StatementKind.FINAL}
