"""The news in what the aggregator's rules decide: of each effect what its operator reads, or nothing."""

from __future__ import annotations

from fedfair.news import run, sums
from fedfair.news.event import News
from fedfair.rounds import events


def news_of_effect(effect: events.Effect) -> News | None:  # noqa: PLR0911 - one case per effect
    """Return what the operator reads of an effect; None where it is not news."""
    match effect:
        case events.Suspected(participant, reason):
            return sums.LieSuspected(participant, reason)
        case events.Refuse(participant, message):
            return run.SentAway(participant, message)
        case events.Unawaited(participant, _, request, reason):
            return sums.AnswerUnawaited(participant, request.purpose, request.round, reason)
        case events.LeftBehind(participant, _, request, seconds, median):
            return sums.SiteLeftBehind(participant, request.purpose, request.round, seconds, median)
        case events.CaughtUp(participant, seconds, median):
            return sums.SiteCaughtUp(participant, seconds, median)
        case events.Departed(participant, done, reason):
            return run.SiteWithdrew(participant, done, reason)
        case events.SumLost(_, request, reason):
            return sums.AttemptLost(request.purpose, request.round, request.attempt, reason)
        case events.Skipped(request, reason):
            return sums.EvaluationOmitted(request.round, reason)
        case events.SitesAhead(leads, rounds):
            return sums.JournalBehind(leads, rounds)
        case _:
            return None
