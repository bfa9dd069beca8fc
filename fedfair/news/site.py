"""News of a run for a site's operator; what is said of its own records stays at the site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from fedfair.identity.expiry import Expiry
from fedfair.ids import AGGREGATOR, RoundNumber
from fedfair.news.event import LogLevel, News
from fedfair.plan.description import percent
from fedfair.results.loss_text import TOO_FEW, loss_or_too_few
from fedfair.results.site_figures import SiteFigures
from fedfair.statistics.table import Purpose
from fedfair.tables.survey_faults import SurveyFault
from fedfair.watching import run_status as watched


class RunJoined(News):
    """The aggregator has let this site in.

    Attributes:
        run_id: names the run.
        rounds_done: training rounds that are done.
        rounds_total: training rounds of the plan.
    """

    text = "connected; run {run_id:.8} stands at round {rounds_done} of {rounds_total}"

    run_id: str
    rounds_done: int
    rounds_total: int

    def change(self, status: watched.RunStatus, now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        state = watched.WatchedState.WAITING if status.state is watched.WatchedState.STARTING else status.state
        run_id, done, total = self.run_id, self.rounds_done, self.rounds_total
        joined = replace(status, run_id=run_id, rounds_done=done, rounds_total=total, state=state)
        joined = replace(joined, waiting_words="", awaited_until=None)
        return watched.attended(joined, (AGGREGATOR,), (), now)


class SiteStatusServed(News):
    """The status of this site can be read.

    Attributes:
        address: its URL.
    """

    text = "the status of this site is at {address}"

    address: str


class RetryPlanned(News):
    """There is no stream to the aggregator.

    Attributes:
        fault: why.
        seconds: until the next attempt.
        longest_seconds: between any two later ones.
        until: when this site gives up, with a time zone; None for never.
    """

    level = LogLevel.WARNING

    fault: str
    seconds: float
    longest_seconds: float
    until: datetime | None

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        end = "it answers" if self.until is None else f"{self.until:%Y-%m-%d %H:%M} UTC, then giving up"
        later = f"every {self.longest_seconds:.0f} s or sooner until {end}"
        return f"{self.fault}; trying again in {self.seconds:.1f} s, then {later}"

    def change(self, status: watched.RunStatus, now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        away = watched.attended(status, (), (AGGREGATOR,), now)
        return replace(away, waiting_words=self.sentence, awaited_until=self.until)


class SumDeclined(News):
    """This site adds nothing to a sum, and says so.

    Attributes:
        sum: its purpose and round; None where it is about the session.
        reason: why, in full; it stays at this site.
    """

    level = LogLevel.WARNING

    sum: tuple[Purpose, RoundNumber] | None
    reason: str

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        what = "the session" if self.sum is None else f"the {self.sum[0].value} sum of round {self.sum[1]}"
        return f"takes no part in {what}: {self.reason}"

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        return watched.counted(status, "refusals", "session" if self.sum is None else self.sum[0].value)


class ComputingEnded(News):
    """The process that computes for this site has ended, and is started again.

    Attributes:
        how: in words, how it ended.
        log: the file of what it said.
    """

    level = LogLevel.WARNING
    text = "the computing process is started again: {how}; its output is in {log}"

    how: str
    log: Path


class ValuesOmitted(News):
    """Values of this site's contribution could not be summed and were replaced.

    Attributes:
        fault: which, and why.
    """

    level = LogLevel.WARNING
    text = "takes part in this sum, but not with all its values: {fault}"

    fault: str


class EvaluationDone(News):
    """The aggregator has counted this site's part of an evaluation.

    Attributes:
        round: after which the model was evaluated.
        rounds_total: training rounds of the plan.
    """

    text = "round {round} of {rounds_total} evaluated"

    round: RoundNumber
    rounds_total: int


class PrivacyForecast(News):
    """The cost of the run to this site's privacy budget.

    Attributes:
        line: one line of the forecast.
    """

    text = "privacy: {line}"

    line: str


class RecordsWithheld(News):
    """Records of this site are too few to take part; nobody but this site can see that.

    Attributes:
        words: which ones, and what the site adds in their place.
    """

    level = LogLevel.WARNING
    text = "own records: {words}; the others cannot see that"

    words: str


class RecordsChanged(News):
    """This site's records are not those of its last start; a continued run uses them all the same.

    Attributes:
        words: since when, and what changed.
    """

    level = LogLevel.WARNING
    text = "own records: {words}; a continued run uses the records as they are now"

    words: str


class SummaryUnwritten(News):
    """The summary of this site's data cannot be kept.

    Attributes:
        path: its file.
        fault: why.
    """

    level = LogLevel.WARNING
    text = "{path} was not written, so no check will compare with this run: {fault}"

    path: Path
    fault: str


class LeavingBegun(News):
    """The operator asked for an orderly end.

    Attributes:
        signal_name: of the signal.
    """

    text = "{signal_name}: leaving the federation; once more to stop at once"

    signal_name: str

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        return replace(status, state=watched.WatchedState.STOPPING)


class PlanRefused(News):
    """This site does not take part in the plan.

    Attributes:
        reason: why, in full; it stays at this site.
    """

    level = LogLevel.ERROR

    reason: str

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return " ".join(self.reason.split())


class AggregatorUntold(News):
    """The aggregator does not know that this site does not come.

    Attributes:
        reason: why it could not be notified.
    """

    level = LogLevel.WARNING
    text = "the aggregator was not notified: {reason}"

    reason: str


class OwnRecordsEvaluated(News):
    """How this site's own records fare under the global model; it stays at this site.

    Attributes:
        figures: of the evaluation, beside those of all sites.
    """

    is_noted = False

    figures: SiteFigures

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return "\n".join(_own_lines(self.figures)) or (
            f"round {self.figures.round}: this site has no records to evaluate"
        )

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        if self.figures.is_returned:
            # The evaluation of this model is among those on the way.
            return status
        pooled = {
            name: watched.PooledFigures(split.mean, split.worst, split.accuracy)
            for name, split in self.figures.everybody.items()
        }
        return watched.evaluated(status, watched.PooledEvaluation(int(self.figures.round), pooled))


class ReleaseWithheld(News):
    """This site does not agree to the release of the model, and has signed that.

    Attributes:
        reasons: why, from the closed list of a statement.
    """

    level = LogLevel.WARNING
    text = (
        "this site withholds its agreement to the release of the model: {reasons}; its policy (policy.release) "
        "and its own copy of the release audit decide that -> look at the audit in the report of the run"
    )

    reasons: str


class RunFileUnwritten(News):
    """A file of this site's own copy of the run cannot be written; the run continues.

    Attributes:
        path: the first such file.
        fault: why.
    """

    level = LogLevel.WARNING
    text = (
        "{path} cannot be written: {fault}; the run continues, the older file is kept, and the next "
        "evaluation tries again -> make room on the disk, or let this user write there"
    )

    path: Path
    fault: str


class StateUnread(News):
    """This site's kept copy of the run gives no state, so the site takes the run from the others.

    Attributes:
        path: the file.
        fault: why.
    """

    level = LogLevel.WARNING
    text = (
        "{path} cannot be used: {fault}; this site takes the state of the run from the other sites, who "
        "vouch for it"
    )

    path: Path
    fault: str


class ModelReturned(News):
    """The run has ended, and this site knows its model.

    Attributes:
        words: which of the run's models it is.
    """

    text = "the run returned {words}"

    words: str


class LastSumsMissed(News):
    """The run has ended, and this site was away or too slow for its last sums.

    Attributes:
        rounds_done: training rounds of its own copy of the run.
    """

    level = LogLevel.WARNING
    text = (
        "the run has ended, and this site was away or too slow for its last sums: its own copy ends after "
        "round {rounds_done} -> ask the aggregator's operator for save/last.safetensors"
    )

    rounds_done: int


class ReconnectionBegun(News):
    """This site ends its stream and opens another one at once.

    Attributes:
        reason: why.
    """

    text = "reconnecting: {reason}"

    reason: str


class SurveyCompared(News):
    """This site's columns were compared with those of all other sites.

    Attributes:
        members: sites that the survey is of.
        columns: columns that were compared.
        faults: how many of them are probably wrong here.
    """

    members: int
    columns: int
    faults: int

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        found = "nothing odd here" if not self.faults else f"{self.faults} probably wrong here"
        compared = f"{self.columns} columns compared with those of all other sites"
        return f"survey of {self.members} sites: {compared}, {found}"


class SurveyFaultFound(News):
    """A column of this site is probably wrong; it stays at this site.

    Attributes:
        fault: the column, and what is wrong with it.
    """

    level = LogLevel.WARNING
    text = "survey: {fault.sentence}"

    fault: SurveyFault


class SiteCertificateEnding(News):
    """A certificate or the revocation list ends in 30, 7 or 1 days, or has ended; each is reported once.

    Attributes:
        ending: which, when, and what to do.
    """

    level = LogLevel.WARNING
    text = "{ending.words}"

    ending: Expiry


class SiteCertificateUnusable(News):
    """This site's certificate on the disk is another one and cannot be used; the present one stays.

    Attributes:
        reason: why.
    """

    level = LogLevel.WARNING
    text = "the certificate on the disk cannot be used, so the present one stays: {reason}"

    reason: str


class SiteCertificateRenewed(News):
    """This site's certificate on the disk is a renewed one; the next stream shows it.

    Attributes:
        until: its end, with a time zone.
    """

    text = "a renewed certificate is here, good until {until:%Y-%m-%d %H:%M} UTC"

    until: datetime

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        return replace(status, certificate_ends=self.until)


class RevocationListTaken(News):
    """The aggregator carried a newer list of the authority, and it is installed.

    Attributes:
        number: of the list; it grows with every list.
        revoked: how many certificates are on it.
    """

    text = "revocation list {number} of the authority was taken over; it has {revoked} certificate(s)"

    number: int
    revoked: int


class RevocationListRefused(News):
    """The aggregator carried a list that is not taken.

    Attributes:
        reason: why.
    """

    level = LogLevel.WARNING
    text = "a revocation list is refused, and this site's stays: {reason}"

    reason: str


class RevocationListUnwritten(News):
    """The aggregator carried a newer list, which counts for this stream but cannot be kept.

    Attributes:
        path: its file.
        fault: why.
    """

    level = LogLevel.WARNING
    text = "{path} cannot be written: {fault}; the newer revocation list counts for this connection only"

    path: Path
    fault: str


def _own_lines(figures: SiteFigures) -> Iterator[str]:
    """Yield one line for each split, with the same figures in the same places; losses in the plan's unit."""
    group = f"worst {percent(figures.group_size)}"
    whose = f"the model returned (round {figures.round})" if figures.is_returned else f"round {figures.round}"
    for name, own in figures.own.items():
        overall = figures.everybody[name]
        records = f"records {own.records:>7} / {overall.records:<7}"
        mean = f"mean loss {_loss(own.mean)} / {_loss(overall.mean)}"
        worst = f"{group} {_loss(own.worst)} / {_loss(overall.worst)} ({own.worst_records} here)"
        accuracy = ""
        if own.accuracy is not None and overall.accuracy is not None:
            accuracy = f"accuracy {100 * own.accuracy:5.1f} / {100 * overall.accuracy:5.1f} %"
        auc = "" if own.auc is None and overall.auc is None else f"  AUC {_auc(own.auc)} / {_auc(overall.auc)}"
        line = f"{whose}, {name:<10} here / everybody: {records} {mean}  {worst}  {accuracy}{auc}"
        yield line.rstrip()


def _auc(value: float | None) -> str:
    return TOO_FEW if value is None else f"{value:.3f}"


def _loss(value: float | None) -> str:
    return f"{loss_or_too_few(value):>{len(TOO_FEW)}}"
