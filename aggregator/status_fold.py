"""Folds what an observer of a run is told into its status: one pure function, news by news.

A new kind of notice needs nothing here to be counted and to be among the recent notes; one that says more gets a
case in `_noticed`. What a status holds, and what is counted, is `fedfair.watching`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from aggregator.notice_words import notice_words
from aggregator.notices import (
    AnswerUnawaited,
    AttemptLost,
    CertificateRenewed,
    EntryRefused,
    InvitationDeclined,
    Notice,
    RunContinued,
    SentAway,
    SiteCaughtUp,
    SiteLeftBehind,
    SitesAwaited,
    SiteWithdrew,
    StopBegun,
    StreamOpened,
)
from aggregator.observer import Measure
from fedfair.aggregation.cvar_bounds import SplitSummary
from fedfair.process.events import event_name
from fedfair.results.costs import SumCost
from fedfair.rounds.stragglers import SumPace
from fedfair.run.training_run import Progress
from fedfair.watching.run_status import (
    Attendance,
    PooledEvaluation,
    PooledFigures,
    RunStatus,
    SumStep,
    WatchedState,
    answered,
    attended,
    counted,
    evaluated,
    left_behind,
    noted,
    round_ended,
    stepped,
)

REFUSALS: Mapping[type[Notice], str] = {
    EntryRefused: "entry",
    InvitationDeclined: "invitation",
    SentAway: "stream",
    SiteWithdrew: "withdrawal",
}
"""The notices of refusals: by whichever side, of what."""

News: TypeAlias = Notice | Progress | Attendance | Measure
"""Everything that a status is made of."""


def fold(status: RunStatus, news: News, now: datetime) -> RunStatus:
    """Return the status after one piece of news.

    Args:
        status: before.
        news: what the observer was told.
        now: when, with a time zone.
    """
    match news:
        case SumStep():
            return stepped(status, news, now)
        case Attendance():
            return attended(status, news, now)
        case SumCost():
            return _summed(status, news)
        case SumPace():
            return answered(status, dict(news.answers.items()), news.median, news.left_behind)
        case Progress():
            return _progressed(status, news, now)
        case _:
            status = counted(status, "notices", event_name(type(news)))
            if type(news) in REFUSALS:
                status = counted(status, "refusals", REFUSALS[type(news)])
            return noted(_noticed(status, news, now), notice_words(news), now)


def _noticed(status: RunStatus, notice: Notice, now: datetime) -> RunStatus:  # noqa: C901, PLR0911 - one case a notice
    match notice:
        case RunContinued(run_id, rounds_done):
            return replace(status, run_id=run_id, rounds_done=int(rounds_done))
        case StreamOpened(who):
            left = {name: why for name, why in status.withdrawn.items() if name != who}
            return replace(status, withdrawn=left)
        case SitesAwaited(_, until, _):
            return replace(status, waiting_words=notice_words(notice), awaited_until=until)
        case InvitationDeclined(who, reason) | SiteWithdrew(who, _, reason):
            return replace(status, withdrawn={**status.withdrawn, who: reason})
        case AnswerUnawaited(_, purpose):
            return counted(status, "unawaited_answers", purpose.value)
        case SiteLeftBehind(who):
            return left_behind(status, who, now)
        case SiteCaughtUp(who, seconds, median):
            return answered(status, {who: seconds}, median)
        case AttemptLost(purpose):
            return counted(status, "lost_sums", purpose.value)
        case CertificateRenewed(until):
            return replace(status, certificate_ends=until)
        case StopBegun():
            return replace(status, state=WatchedState.STOPPING)
        case _:
            return status


def _summed(status: RunStatus, cost: SumCost) -> RunStatus:
    purpose = cost.purpose.value
    status = counted(status, "sums", purpose)
    status = counted(status, "sum_seconds", purpose, by=cost.seconds)
    status = counted(status, "received_bytes", purpose, by=cost.bytes_up)
    return counted(status, "sent_bytes", purpose, by=cost.bytes_down)


def _progressed(status: RunStatus, progress: Progress, now: datetime) -> RunStatus:
    if progress.evaluation is not None:
        size = status.worst_group_size
        splits = {name: _figures(split, size) for name, split in progress.evaluation.splits.items()}
        status = evaluated(status, PooledEvaluation(int(progress.evaluation.round), splits))
    if progress.purpose.statistic.is_round:
        return round_ended(status, int(progress.round), now)
    return status


def _figures(split: SplitSummary, group_size: float) -> PooledFigures:
    return PooledFigures(split.mean, split.by_group_size[group_size].worst, split.accuracy)
