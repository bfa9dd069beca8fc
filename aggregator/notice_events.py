"""The notices and sums of a run as events for programs: how much each matters, and what a sum tells."""

from __future__ import annotations

from collections.abc import Collection

from aggregator import notices
from aggregator.notice_words import notice_words
from aggregator.notices import Notice
from aggregator.observer import RunObserver, summary
from fedfair.ids import ParticipantId
from fedfair.process.event_log import JsonLog
from fedfair.process.events import LoggedEvent, LogLevel, NoticeLevels, json_value, notice_event
from fedfair.run.training_run import Progress
from fedfair.tracking.failure import TrackerFailed

LEVELS = NoticeLevels(
    errors=frozenset({notices.LieSuspected, notices.JournalBehind}),
    warnings=frozenset(
        {
            notices.IdentityWarned,
            notices.EntryRefused,
            notices.InvitationDeclined,
            notices.AnswerUnawaited,
            notices.SiteLeftBehind,
            notices.SentAway,
            notices.SiteWithdrew,
            notices.AttemptLost,
            notices.EvaluationOmitted,
            notices.ChangesClipped,
            notices.ValuesReplaced,
            notices.OlderTrustKept,
            notices.CertificateEnding,
            notices.CertificateUnusable,
            notices.EndMissed,
            TrackerFailed,
        }
    ),
    information=frozenset(
        {
            notices.ProtectionStated,
            notices.EarlierRunKept,
            notices.RunContinued,
            notices.PortOpened,
            notices.StatusServed,
            notices.StreamOpened,
            notices.StreamEnded,
            notices.SitesAwaited,
            notices.SiteCaughtUp,
            notices.RevocationListChanged,
            notices.CertificateRenewed,
            notices.StopBegun,
            notices.AbsentSitesAwaited,
        }
    ),
)


def event_of(notice: Notice) -> LoggedEvent:
    """Return a notice as an event."""
    return notice_event(notice, LEVELS.of(type(notice)), notice_words(notice))


def sum_events(progress: Progress, rounds_total: int, worst_group_size: float) -> list[LoggedEvent]:
    """Return the events of an applied sum: that it was applied, and of an evaluation its figures, as the text has.

    Args:
        progress: what the sum came to.
        rounds_total: training rounds of the plan.
        worst_group_size: of the plan.
    """
    purpose, number = progress.purpose.value, int(progress.round)
    applied = LoggedEvent(
        "sum_applied",
        LogLevel.DEBUG,
        f"the {purpose} sum of round {number} of {rounds_total} was applied",
        {
            "purpose": purpose,
            "round": number,
            "rounds_total": rounds_total,
            "contributors": progress.contributors,
            "replaced_values": progress.replaced,
        },
    )
    if progress.evaluation is None:
        return [applied]
    splits = {
        name: {
            "mean": split.mean,
            "worst": split.by_group_size[worst_group_size].worst,
        }
        | ({} if split.accuracy is None else {"accuracy": split.accuracy})
        for name, split in progress.evaluation.splits.items()
    }
    figures = json_value({"threshold": progress.threshold, "worst_group_size": worst_group_size, "splits": splits})
    evaluated = LoggedEvent(
        "round_evaluated",
        LogLevel.INFO,
        f"round {number} of {rounds_total}: {summary(progress, worst_group_size)}",
        {"round": number, "rounds_total": rounds_total, **(figures if isinstance(figures, dict) else {})},
    )
    return [applied, evaluated]


class RunEvents:
    """An observer that writes every notice and sum as a JSON line.

    Args:
        log: where to.
        rounds_total: training rounds of the plan.
        worst_group_size: of the plan.
    """

    def __init__(self, log: JsonLog, rounds_total: int, worst_group_size: float) -> None:
        self._log = log
        self._rounds_total = rounds_total
        self._worst_group_size = worst_group_size

    def noticed(self, notice: Notice) -> None:
        """Write it."""
        self._log.event(event_of(notice))

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Write nothing: comings, goings and waits have notices."""

    def progressed(self, progress: Progress) -> None:
        """Write the sum and, of an evaluation, its figures."""
        for event in sum_events(progress, self._rounds_total, self._worst_group_size):
            self._log.event(event)

    def close(self) -> None:
        """Write nothing more."""


class LevelledRunObserver:
    """Passes on the notices that matter enough, and everything that is no notice.

    Args:
        observer: who is told.
        level: the least that it is told of.
    """

    def __init__(self, observer: RunObserver, level: LogLevel) -> None:
        self._observer = observer
        self._level = level

    def noticed(self, notice: Notice) -> None:
        """Pass it on, if it matters enough."""
        if self._level.includes(LEVELS.of(type(notice))):
            self._observer.noticed(notice)

    def waiting(self, present: Collection[ParticipantId], awaited: Collection[ParticipantId]) -> None:
        """Pass it on."""
        self._observer.waiting(present, awaited)

    def progressed(self, progress: Progress) -> None:
        """Pass it on."""
        self._observer.progressed(progress)

    def close(self) -> None:
        """Pass it on."""
        self._observer.close()
