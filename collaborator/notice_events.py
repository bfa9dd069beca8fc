"""A site's notices as events for programs: how much each matters."""

from __future__ import annotations

from collaborator import notices
from collaborator.notice_words import notice_words
from collaborator.notices import Notice
from collaborator.observer import SiteObserver
from fedfair.process.event_log import JsonLog
from fedfair.process.events import LoggedEvent, LogLevel, NoticeLevels, notice_event
from fedfair.tracking.failure import TrackerFailed

LEVELS = NoticeLevels(
    errors=frozenset({notices.PlanRefused}),
    warnings=frozenset(
        {
            notices.RetryPlanned,
            notices.SumDeclined,
            notices.ValuesOmitted,
            notices.RecordsChanged,
            notices.RecordsWithheld,
            notices.SummaryUnwritten,
            notices.AggregatorUntold,
            notices.RunFileUnwritten,
            notices.StateUnread,
            notices.LastSumsMissed,
            notices.SiteCertificateEnding,
            notices.SiteCertificateUnusable,
            notices.RevocationListRefused,
            notices.RevocationListUnwritten,
            notices.SurveyFaultFound,
            TrackerFailed,
        }
    ),
    information=frozenset(
        {
            notices.RunJoined,
            notices.SurveyCompared,
            notices.SiteStatusServed,
            notices.EvaluationDone,
            notices.PrivacyForecast,
            notices.LeavingBegun,
            notices.OwnRecordsEvaluated,
            notices.ModelReturned,
            notices.SiteCertificateRenewed,
            notices.RevocationListTaken,
            notices.ReconnectionBegun,
        }
    ),
)


def event_of(notice: Notice) -> LoggedEvent:
    """Return a notice as an event."""
    return notice_event(notice, LEVELS.of(type(notice)), notice_words(notice))


class SiteEvents:
    """An observer that writes every notice as a JSON line.

    Args:
        log: where to.
    """

    def __init__(self, log: JsonLog) -> None:
        self._log = log

    def noticed(self, notice: Notice) -> None:
        """Write it."""
        self._log.event(event_of(notice))


class LevelledSiteObserver:
    """Passes on the notices that matter enough.

    Args:
        observer: who is told.
        level: the least that it is told of.
    """

    def __init__(self, observer: SiteObserver, level: LogLevel) -> None:
        self._observer = observer
        self._level = level

    def noticed(self, notice: Notice) -> None:
        """Pass it on, if it matters enough."""
        if self._level.includes(LEVELS.of(type(notice))):
            self._observer.noticed(notice)
