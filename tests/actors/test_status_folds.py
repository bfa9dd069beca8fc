"""News by news into a status: every notice is counted and noted, and what it says is found again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from aggregator import notices as aggregator
from aggregator.notice_words import notice_words
from aggregator.status_fold import REFUSALS, News, fold
from aggregator.status_observer import COALESCED, MANY_AWAITED, StatusObserver
from collaborator import notices as site
from collaborator.notice_words import notice_words as site_words
from collaborator.observer import AnswerCost
from collaborator.status_fold import SiteNews, fold_site
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.process.events import event_name
from fedfair.results.costs import SumCost
from fedfair.results.own_figures import OwnFigures, SplitFigures
from fedfair.rounds.events import AfterWaiting, Waiting
from fedfair.rounds.stragglers import SumPace
from fedfair.run.training_run import Progress
from fedfair.statistics.table import Purpose
from fedfair.watching.run_status import (
    IDLE,
    Attendance,
    PooledFigures,
    RunStatus,
    SumStep,
    WatchedState,
)
from tests.actors.test_notices import AGGREGATOR, SITE
from tests.watching.statuses import NOON, START, A, B

SEVEN = RoundNumber(7)
AT_SITE = replace(START, role="collaborator", name=A, sites=("aggregator",))


def folded(news: Iterable[News], status: RunStatus = START) -> RunStatus:
    for each in news:
        status = fold(status, each, NOON)
    return status


def folded_at_site(*news: SiteNews) -> RunStatus:
    status = AT_SITE
    for each in news:
        status = fold_site(status, each, NOON)
    return status


@pytest.mark.parametrize("notice", [notice for notice, _ in AGGREGATOR])
def test_every_notice_of_an_aggregator_is_counted_and_noted(notice: aggregator.Notice) -> None:
    status = fold(START, notice, NOON)
    assert status.totals["notices"] == {(event_name(type(notice)),): 1}
    assert [note.words for note in status.notes] == [notice_words(notice)]


@pytest.mark.parametrize("notice", [notice for notice, _ in SITE])
def test_every_notice_of_a_site_is_counted_and_noted_unless_it_tells_its_own_figures(notice: site.Notice) -> None:
    status = fold_site(AT_SITE, notice, NOON)
    assert status.totals["notices"] == {(event_name(type(notice)),): 1}
    own = isinstance(notice, site.OwnRecordsEvaluated)
    assert [note.words for note in status.notes] == ([] if own else [site_words(notice)])


def test_a_renewed_certificate_has_a_new_end_at_once() -> None:
    until = NOON + timedelta(days=90)
    ending = replace(START, certificate_ends=NOON)
    assert fold(ending, aggregator.CertificateRenewed(until), NOON).certificate_ends == until
    at_site = replace(AT_SITE, certificate_ends=NOON)
    assert fold_site(at_site, site.SiteCertificateRenewed(until), NOON).certificate_ends == until


def test_refusals_are_counted_by_what_was_refused() -> None:
    status = folded(notice for notice, _ in AGGREGATOR)
    assert status.totals["refusals"] == {
        (kind,): sum(type(notice) is refused for notice, _ in AGGREGATOR) for refused, kind in REFUSALS.items()
    }
    assert status.totals["lost_sums"] == {("evaluation",): 1}
    assert status.totals["unawaited_answers"] == {("training",): 1}


def test_whoever_withdrew_is_named_until_it_returns() -> None:
    status = folded([aggregator.SiteWithdrew(A, 6, "budget"), aggregator.InvitationDeclined(B, "policy")])
    assert dict(status.withdrawn) == {A: "budget", B: "policy"}
    assert dict(fold(status, aggregator.StreamOpened(A, replaces=False), NOON).withdrawn) == {B: "policy"}


def test_a_site_that_is_left_behind_is_shown_until_it_takes_part_again() -> None:
    behind = folded([aggregator.SiteLeftBehind(B, Purpose.TRAINING, SEVEN, 2.5, 0.5)])
    assert dict(behind.behind) == {B: NOON}
    paced = fold(behind, SumPace({A: 0.4}, (B,)), NOON)
    assert (dict(paced.answer_seconds), paced.median_answer_seconds) == ({A: 0.4}, 0.4)
    assert dict(paced.behind) == {B: NOON}
    late = fold(paced, aggregator.SiteCaughtUp(B, 7.5, 0.4), NOON)
    assert (dict(late.answer_seconds), dict(late.behind)) == ({A: 0.4, B: 7.5}, {})
    # Who answered in time, and was left behind in a later step of the same sum, has not caught up.
    again = fold(behind, SumPace({A: 0.4, B: 0.5}, (B,)), NOON)
    assert dict(again.behind) == {B: NOON}
    assert dict(fold(again, SumPace({A: 0.4, B: 0.5}), NOON).behind) == {}
    assert late.total("left_behind_answers", B) == 1


def test_waiting_has_its_words_and_its_end_until_a_sum_begins() -> None:
    until = NOON + timedelta(minutes=5)
    awaited = aggregator.SitesAwaited(Waiting((B,), 1, 2, 2, (), AfterWaiting.END, None), until, NOON)
    status = folded([IDLE, awaited])
    assert (status.waiting_words, status.until) == (notice_words(awaited), until)
    status = fold(status, SumStep("training", 1, 1, "uploads", None), NOON)
    assert (status.waiting_words, status.until) == ("", None)


def test_a_sum_is_counted_by_what_it_cost() -> None:
    cost = SumCost(Purpose.TRAINING, 1, 0.25, 2, 300, 400)
    status = folded([cost, cost])
    assert {name: values["training",] for name, values in status.totals.items()} == {
        "sums": 2, "sum_seconds": 0.5, "received_bytes": 600, "sent_bytes": 800,
    }  # fmt: skip


def test_a_round_is_a_training_sum() -> None:
    progress = Progress(Purpose.TRAINING, SEVEN, 0.5, 2, None, is_best=False, model_changed=True)
    assert folded([progress]).rounds_done == 7
    other = replace(progress, purpose=Purpose.STANDARDISATION)
    assert folded([other]).rounds_done == 0


def test_the_state_follows_the_news() -> None:
    assert START.state is WatchedState.STARTING
    assert folded([IDLE]).state is WatchedState.WAITING
    stopped = folded([IDLE, aggregator.StopBegun("SIGTERM"), SumStep("training", 1, 1, "uploads", None)])
    assert stopped.state is WatchedState.STOPPING


def test_answers_of_many_sites_are_folded_in_together() -> None:
    names = tuple(ParticipantId(f"site-{number}") for number in range(MANY_AWAITED + 2))
    clock = [NOON]
    observer = StatusObserver(replace(START, sites=names), lambda: clock[0])
    observer.waiting(names, names)
    assert observer._status.connected == ()
    assert observer.status.connected == names
    observer.waiting(names, names[1:])
    assert tuple(observer._status.awaited) == names
    clock[0] += COALESCED
    observer.waiting(names, names[2:])
    assert tuple(observer._status.awaited) == names[2:]


def test_a_site_is_connected_from_joining_until_it_must_try_again() -> None:
    joined = folded_at_site(IDLE, site.RunJoined("ab" * 16, 3, 20))
    assert (joined.connected, joined.rounds_done, joined.run_id) == (("aggregator",), 3, "ab" * 16)
    retry = site.RetryPlanned("nobody answers", 1.0, 30.0, NOON)
    away = fold_site(joined, retry, NOON)
    assert (away.connected, tuple(away.awaited), away.until) == ((), ("aggregator",), NOON)
    assert away.waiting_words == site_words(retry)
    back = fold_site(away, site.RunJoined("ab" * 16, 3, 20), NOON)
    assert (back.connected, back.awaited, back.waiting_words) == (("aggregator",), {}, "")


def test_a_site_counts_what_it_answered_and_what_it_refused() -> None:
    declined = site.SumDeclined((Purpose.EVALUATION, SEVEN), "its policy")
    cost = AnswerCost(Purpose.TRAINING, 8, 0.5, 100, 200)
    status = folded_at_site(SumStep("training", 8, 1, "answer", None), cost, IDLE, declined)
    assert status.totals["refusals"] == {("evaluation",): 1}
    assert status.totals["sums"] == {("training",): 1}
    assert status.totals["sent_bytes"] == {("training",): 100}
    assert status.rounds_done == 8


def test_a_site_shows_the_figures_of_everybody_and_not_its_own() -> None:
    own, everybody = SplitFigures(57, 0.4123, 1.25, 6, 0.875), SplitFigures(512, 0.3, 1.0, 52, 1.0)
    status = folded_at_site(
        site.OwnRecordsEvaluated(OwnFigures("sha256:0", False, 7, 0.1, {"train": own}, {"train": everybody}))
    )
    assert status.evaluation is not None
    assert dict(status.evaluation.splits) == {"train": PooledFigures(0.3, 1.0, 1.0)}
    assert status.notes == ()
    assert "0.4123" not in repr(status)


def test_attendance_reaches_the_status() -> None:
    assert folded([Attendance((A,), (B,))]).connected == (A,)
