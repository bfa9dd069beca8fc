"""The news in what the aggregator's rules decide: of each effect what its operator reads, or nothing."""

from __future__ import annotations

from fedfair.news.event import News
from fedfair.news.run import SentAway, SiteWithdrew
from fedfair.news.sums import (
    AnswerUnawaited,
    AttemptLost,
    EvaluationOmitted,
    JournalBehind,
    LieSuspected,
    SiteCaughtUp,
    SiteLeftBehind,
)
from fedfair.rounds.events import (
    CaughtUp,
    Departed,
    Effect,
    LeftBehind,
    Refuse,
    SitesAhead,
    Skipped,
    SumLost,
    Suspected,
    Unawaited,
)


def news_of_effect(effect: Effect) -> News | None:  # noqa: PLR0911 - one case per effect
    """Return what the operator reads of an effect; None where it is not news."""
    match effect:
        case Suspected(participant, reason):
            return LieSuspected(participant, reason)
        case Refuse(participant, message):
            return SentAway(participant, message)
        case Unawaited(participant, _, request, reason):
            return AnswerUnawaited(participant, request.purpose, request.round, reason)
        case LeftBehind(participant, _, request, seconds, median):
            return SiteLeftBehind(participant, request.purpose, request.round, seconds, median)
        case CaughtUp(participant, seconds, median):
            return SiteCaughtUp(participant, seconds, median)
        case Departed(participant, done, reason):
            return SiteWithdrew(participant, done, reason)
        case SumLost(_, request, reason):
            return AttemptLost(request.purpose, request.round, request.attempt, reason)
        case Skipped(request, reason):
            return EvaluationOmitted(request.round, reason)
        case SitesAhead(leads, rounds):
            return JournalBehind(leads, rounds)
        case _:
            return None
