"""Folds what an observer at a site is told into the status of its part in a run: one pure function, news by news.

A new kind of notice needs nothing here to be counted and to be among the recent notes; one that says more gets a
case in `_noticed`. How this site's own records fare is in no status: that file is its owner's alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from collaborator.notice_words import notice_words
from collaborator.notices import (
    LeavingBegun,
    Notice,
    OwnRecordsEvaluated,
    RetryPlanned,
    RunJoined,
    SiteCertificateRenewed,
    SumDeclined,
)
from collaborator.observer import AnswerCost, Measure
from fedfair.ids import AGGREGATOR
from fedfair.process.events import event_name
from fedfair.watching.run_status import (
    Attendance,
    PooledEvaluation,
    PooledFigures,
    RunStatus,
    SumStep,
    WatchedState,
    attended,
    counted,
    evaluated,
    noted,
    round_ended,
    stepped,
)

SiteNews: TypeAlias = Notice | Measure
"""Everything that the status of a site is made of."""

PRESENT, ABSENT = Attendance((AGGREGATOR,), ()), Attendance((), (AGGREGATOR,))


def fold_site(status: RunStatus, news: SiteNews, now: datetime) -> RunStatus:
    """Return the status after one piece of news.

    Args:
        status: before.
        news: what the observer was told.
        now: when, with a time zone.
    """
    match news:
        case SumStep():
            return stepped(status, news, now)
        case AnswerCost():
            return _answered(status, news, now)
        case OwnRecordsEvaluated(figures):
            status = counted(status, "notices", event_name(type(news)))
            if figures.is_returned:
                # The evaluation of this model is among those on the way.
                return status
            pooled = {
                name: PooledFigures(everybody.mean, everybody.worst, everybody.accuracy)
                for name, everybody in figures.everybody.items()
            }
            return evaluated(status, PooledEvaluation(int(figures.round), pooled))
        case _:
            status = counted(status, "notices", event_name(type(news)))
            return noted(_noticed(status, news, now), notice_words(news), now)


def _noticed(status: RunStatus, notice: Notice, now: datetime) -> RunStatus:
    match notice:
        case RunJoined(run_id, rounds_done, rounds_total):
            state = WatchedState.WAITING if status.state is WatchedState.STARTING else status.state
            joined = replace(
                status,
                run_id=run_id,
                rounds_done=rounds_done,
                rounds_total=rounds_total,
                waiting_words="",
                awaited_until=None,
                state=state,
            )
            return attended(joined, PRESENT, now)
        case RetryPlanned(until=until):
            away = attended(status, ABSENT, now)
            return replace(away, waiting_words=notice_words(notice), awaited_until=until)
        case SumDeclined(about):
            return counted(status, "refusals", "session" if about is None else about[0].value)
        case SiteCertificateRenewed(until):
            return replace(status, certificate_ends=until)
        case LeavingBegun():
            return replace(status, state=WatchedState.STOPPING)
        case _:
            return status


def _answered(status: RunStatus, cost: AnswerCost, now: datetime) -> RunStatus:
    purpose = cost.purpose.value
    status = counted(status, "sums", purpose)
    status = counted(status, "sum_seconds", purpose, by=cost.seconds)
    status = counted(status, "received_bytes", purpose, by=cost.bytes_received)
    status = counted(status, "sent_bytes", purpose, by=cost.bytes_sent)
    if cost.purpose.statistic.is_round:
        return round_ended(status, cost.round, now)
    return status
