"""The sentence of each notice: one text for the terminal and for the site's own log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from collaborator.notices import (
    AggregatorUntold,
    EvaluationDone,
    LastSumsMissed,
    LeavingBegun,
    ModelReturned,
    Notice,
    OwnRecordsEvaluated,
    PlanRefused,
    PrivacyForecast,
    ReconnectionBegun,
    RecordsChanged,
    RecordsWithheld,
    RetryPlanned,
    RevocationListRefused,
    RevocationListTaken,
    RevocationListUnwritten,
    RunFileUnwritten,
    RunJoined,
    SiteCertificateEnding,
    SiteCertificateRenewed,
    SiteCertificateUnusable,
    SiteStatusServed,
    StateUnread,
    SumDeclined,
    SummaryUnwritten,
    SurveyCompared,
    SurveyFaultFound,
    ValuesOmitted,
)
from fedfair.plan.description import percent
from fedfair.results.loss_text import TOO_FEW, loss_or_too_few
from fedfair.results.own_figures import OwnFigures
from fedfair.tracking.failure import TrackerFailed, tracker_words


def notice_words(notice: Notice) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per notice
    """Return what the operator reads: one line, and of own figures one for each split."""
    match notice:
        case RunJoined(run_id, rounds_done, rounds_total):
            return f"connected; run {run_id[:8]} stands at round {rounds_done} of {rounds_total}"
        case SiteStatusServed(address):
            return f"the status of this site is at {address}"
        case RetryPlanned(fault, seconds, longest_seconds, until):
            end = "it answers" if until is None else f"{until:%Y-%m-%d %H:%M} UTC, then giving up"
            later = f"every {longest_seconds:.0f} s or sooner until {end}"
            return f"{fault}; trying again in {seconds:.1f} s, then {later}"
        case SumDeclined(about, reason):
            what = "the session" if about is None else f"the {about[0].value} sum of round {about[1]}"
            return f"takes no part in {what}: {reason}"
        case ValuesOmitted(fault):
            return f"takes part in this sum, but not with all its values: {fault}"
        case EvaluationDone(number, rounds_total):
            return f"round {number} of {rounds_total} evaluated"
        case PrivacyForecast(line):
            return f"privacy: {line}"
        case RecordsWithheld(words):
            return f"own records: {words}; the others cannot see that"
        case RecordsChanged(words):
            return f"own records: {words}; a run that continues goes on with the records as they are now"
        case SummaryUnwritten(path, fault):
            return f"{path} was not written, so no check will compare with this run: {fault}"
        case LeavingBegun(signal_name):
            return f"{signal_name}: leaving the federation; once more to stop at once"
        case PlanRefused(reason):
            return " ".join(reason.split())
        case AggregatorUntold(reason):
            return f"the aggregator was not told: {reason}"
        case OwnRecordsEvaluated(figures):
            return "\n".join(_own_lines(figures)) or f"round {figures.round}: this site has no records to evaluate"
        case RunFileUnwritten(path, fault):
            return (
                f"{path} cannot be written: {fault}; the run goes on, the older file is kept, and the next "
                "evaluation tries again -> make room on the disk, or let this user write there"
            )
        case StateUnread(path, fault):
            return (
                f"{path} cannot be used: {fault}; this site takes the state of the run from the other sites, who "
                "vouch for it"
            )
        case ModelReturned(words):
            return f"the run returned {words}"
        case LastSumsMissed(rounds_done):
            return (
                "the run has ended, and this site was away or too slow for its last sums: its own copy ends after "
                f"round {rounds_done} -> ask the aggregator's operator for save/last.safetensors"
            )
        case SurveyCompared(members, columns, faults):
            found = "nothing odd here" if not faults else f"{faults} probably wrong here"
            return f"survey of {members} sites: {columns} columns compared with everybody else's, {found}"
        case SurveyFaultFound(fault):
            return f"survey: {fault.sentence}"
        case TrackerFailed():
            return tracker_words(notice)
        case SiteCertificateEnding(ending):
            return ending.words
        case SiteCertificateUnusable(reason):
            return f"the certificate on the disk cannot be used, so the present one stays: {reason}"
        case SiteCertificateRenewed(until):
            return f"a renewed certificate is here, good until {until:%Y-%m-%d %H:%M} UTC"
        case RevocationListTaken(number, revoked):
            return f"revocation list {number} of the authority was taken over; it has {revoked} certificate(s)"
        case RevocationListRefused(reason):
            return f"a revocation list is refused, and this site's stays: {reason}"
        case RevocationListUnwritten(path, fault):
            return f"{path} cannot be written: {fault}; the newer revocation list counts for this connection only"
        case ReconnectionBegun(reason):
            return f"reconnecting: {reason}"
    assert_never(notice)


def _own_lines(figures: OwnFigures) -> Iterator[str]:
    """Yield one line for each split, with the same figures in the same places; losses in the plan's unit."""
    group = f"worst {percent(figures.group_size)}"
    whose = f"the model returned (round {figures.round})" if figures.is_returned else f"round {figures.round}"
    for name, own in figures.own.items():
        everybody = figures.everybody[name]
        records = f"records {own.records:>7} / {everybody.records:<7}"
        mean = f"mean loss {_loss(own.mean)} / {_loss(everybody.mean)}"
        worst = f"{group} {_loss(own.worst)} / {_loss(everybody.worst)} ({own.worst_records} here)"
        accuracy = ""
        if own.accuracy is not None and everybody.accuracy is not None:
            accuracy = f"accuracy {100 * own.accuracy:5.1f} / {100 * everybody.accuracy:5.1f} %"
        auc = "" if own.auc is None and everybody.auc is None else f"  AUC {_auc(own.auc)} / {_auc(everybody.auc)}"
        line = f"{whose}, {name:<10} here / everybody: {records} {mean}  {worst}  {accuracy}{auc}"
        yield line.rstrip()


def _auc(value: float | None) -> str:
    return TOO_FEW if value is None else f"{value:.3f}"


def _loss(value: float | None) -> str:
    return f"{loss_or_too_few(value):>{len(TOO_FEW)}}"
