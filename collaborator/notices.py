"""The notices to a site's operator, as values; `notice_words` renders them.

One class for each kind of news, all of them in the union `Notice`. Nobody reads a sentence back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from fedfair.identity.expiry import Expiry
from fedfair.ids import RoundNumber
from fedfair.results.own_figures import OwnFigures
from fedfair.statistics.table import Purpose
from fedfair.tables.survey_faults import SurveyFault
from fedfair.tracking.failure import TrackerFailed


@dataclass(frozen=True, slots=True)
class RunJoined:
    """The aggregator has let this site in.

    Attributes:
        run_id: names the run.
        rounds_done: training rounds that are done.
        rounds_total: training rounds of the plan.
    """

    run_id: str
    rounds_done: int
    rounds_total: int


@dataclass(frozen=True, slots=True)
class SiteStatusServed:
    """The status of this site can be read.

    Attributes:
        address: its URL.
    """

    address: str


@dataclass(frozen=True, slots=True)
class RetryPlanned:
    """There is no stream to the aggregator.

    Attributes:
        fault: why.
        seconds: until the next attempt.
        longest_seconds: between any two later ones.
        until: when this site gives up, with a time zone; None for never.
    """

    fault: str
    seconds: float
    longest_seconds: float
    until: datetime | None


@dataclass(frozen=True, slots=True)
class SumDeclined:
    """This site adds nothing to a sum, and says so.

    Attributes:
        sum: its purpose and round; None where it is about the session.
        reason: why, in full; it stays at this site.
    """

    sum: tuple[Purpose, RoundNumber] | None
    reason: str


@dataclass(frozen=True, slots=True)
class ValuesOmitted:
    """Values of this site's contribution could not be summed and were replaced.

    Attributes:
        fault: which, and why.
    """

    fault: str


@dataclass(frozen=True, slots=True)
class EvaluationDone:
    """The aggregator has counted this site's part of an evaluation.

    Attributes:
        round: after which the model was evaluated.
        rounds_total: training rounds of the plan.
    """

    round: RoundNumber
    rounds_total: int


@dataclass(frozen=True, slots=True)
class PrivacyForecast:
    """The cost of the run to this site's privacy budget.

    Attributes:
        line: one line of the forecast.
    """

    line: str


@dataclass(frozen=True, slots=True)
class RecordsWithheld:
    """Records of this site are too few to take part; nobody but this site can see that.

    Attributes:
        words: which ones, and what the site adds in their place.
    """

    words: str


@dataclass(frozen=True, slots=True)
class RecordsChanged:
    """This site's records are not those of its last start; a run that continues goes on with them all the same.

    Attributes:
        words: since when, and what changed.
    """

    words: str


@dataclass(frozen=True, slots=True)
class SummaryUnwritten:
    """The summary of this site's data cannot be kept.

    Attributes:
        path: its file.
        fault: why.
    """

    path: Path
    fault: str


@dataclass(frozen=True, slots=True)
class LeavingBegun:
    """The operator asked for an orderly end.

    Attributes:
        signal_name: of the signal.
    """

    signal_name: str


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """This site does not take part in the plan.

    Attributes:
        reason: why, in full; it stays at this site.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class AggregatorUntold:
    """The aggregator does not know that this site does not come.

    Attributes:
        reason: why it could not be told.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class OwnRecordsEvaluated:
    """How this site's own records fare under the global model; it stays at this site.

    Attributes:
        figures: of the evaluation, beside everybody's.
    """

    figures: OwnFigures


@dataclass(frozen=True, slots=True)
class RunFileUnwritten:
    """A file of this site's own copy of the run cannot be written; the run goes on.

    Attributes:
        path: the first such file.
        fault: why.
    """

    path: Path
    fault: str


@dataclass(frozen=True, slots=True)
class StateUnread:
    """This site's kept copy of the run gives no state, so the site takes the run from the others.

    Attributes:
        path: the file.
        fault: why.
    """

    path: Path
    fault: str


@dataclass(frozen=True, slots=True)
class ModelReturned:
    """The run has ended, and this site knows its model.

    Attributes:
        words: which of the run's models it is.
    """

    words: str


@dataclass(frozen=True, slots=True)
class LastSumsMissed:
    """The run has ended, and this site was away or too slow for its last sums.

    Attributes:
        rounds_done: training rounds of its own copy of the run.
    """

    rounds_done: int


@dataclass(frozen=True, slots=True)
class SiteCertificateEnding:
    """A certificate or the revocation list ends in 30, 7 or 1 days, or has ended; each is told once.

    Attributes:
        ending: which, when, and what to do.
    """

    ending: Expiry


@dataclass(frozen=True, slots=True)
class SiteCertificateUnusable:
    """This site's certificate on the disk is another one and cannot be used; the present one stays.

    Attributes:
        reason: why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SiteCertificateRenewed:
    """This site's certificate on the disk is a renewed one; the next stream shows it.

    Attributes:
        until: its end, with a time zone.
    """

    until: datetime


@dataclass(frozen=True, slots=True)
class RevocationListTaken:
    """The aggregator carried a newer list of the authority, and it is installed.

    Attributes:
        number: of the list; it grows with every list.
        revoked: how many certificates are on it.
    """

    number: int
    revoked: int


@dataclass(frozen=True, slots=True)
class RevocationListRefused:
    """The aggregator carried a list that is not taken.

    Attributes:
        reason: why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RevocationListUnwritten:
    """The aggregator carried a newer list, which counts for this stream but cannot be kept.

    Attributes:
        path: its file.
        fault: why.
    """

    path: Path
    fault: str


@dataclass(frozen=True, slots=True)
class ReconnectionBegun:
    """This site ends its stream and opens another one at once.

    Attributes:
        reason: why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SurveyCompared:
    """This site's columns were held against everybody else's.

    Attributes:
        members: sites that the survey is of.
        columns: columns that were compared.
        faults: how many of them are probably wrong here.
    """

    members: int
    columns: int
    faults: int


@dataclass(frozen=True, slots=True)
class SurveyFaultFound:
    """A column of this site is probably wrong; it stays at this site.

    Attributes:
        fault: the column, and what is wrong with it.
    """

    fault: SurveyFault


TrustNotice: TypeAlias = (
    SiteCertificateEnding
    | SiteCertificateUnusable
    | SiteCertificateRenewed
    | RevocationListTaken
    | RevocationListRefused
    | RevocationListUnwritten
)

Notice: TypeAlias = (
    RunJoined
    | SiteStatusServed
    | RetryPlanned
    | SumDeclined
    | ValuesOmitted
    | EvaluationDone
    | PrivacyForecast
    | RecordsWithheld
    | RecordsChanged
    | SummaryUnwritten
    | LeavingBegun
    | PlanRefused
    | AggregatorUntold
    | OwnRecordsEvaluated
    | RunFileUnwritten
    | StateUnread
    | ModelReturned
    | LastSumsMissed
    | TrackerFailed
    | ReconnectionBegun
    | SurveyCompared
    | SurveyFaultFound
    | TrustNotice
)
