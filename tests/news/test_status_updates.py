"""The status after each kind of news: every notice is counted and noted, and what it says is found again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fedfair.ids import ParticipantId, RoundNumber
from fedfair.news import run, site, sums
from fedfair.news.event import News, StatusUpdate, event_name
from fedfair.news.figures import AnswerCost, Attendance, StepReached
from fedfair.news.processors import COALESCED, MANY_AWAITED, StatusKeeper
from fedfair.results.costs import SumCost
from fedfair.results.site_figures import SiteFigures, SplitFigures
from fedfair.rounds.events import AfterWaiting, Waiting
from fedfair.rounds.slowness.stragglers import SumPace
from fedfair.run.progress import Progress
from fedfair.statistics.table import Purpose
from fedfair.watching.run_status import IDLE, PooledFigures, RunStatus, SumStep, WatchedState
from tests.news.test_notices import AGGREGATOR, SITE
from tests.watching.statuses import NOON, START, A, B

SEVEN = RoundNumber(7)
AT_SITE = replace(START, role="collaborator", name=A, sites=("aggregator",))


def after(*updates: StatusUpdate, status: RunStatus = START) -> RunStatus:
    for each in updates:
        status = each.updated(status, NOON)
    return status


def after_at_site(*updates: StatusUpdate) -> RunStatus:
    return after(*updates, status=AT_SITE)


def measured(pace: SumPace) -> sums.SumMeasured:
    return sums.SumMeasured(SumCost(Purpose.TRAINING, 1, 0.25, 2, 300, 400), pace)


@pytest.mark.parametrize("notice", [notice for notice, _ in AGGREGATOR])
def test_every_notice_of_an_aggregator_is_counted_and_noted(notice: News) -> None:
    status = after(notice, status=START)
    assert status.totals["notices"] == {(event_name(type(notice)),): 1}
    assert [note.words for note in status.notes] == [notice.sentence]


@pytest.mark.parametrize("notice", [notice for notice, _ in SITE])
def test_every_notice_of_a_site_is_counted_and_noted_unless_it_tells_its_own_figures(notice: News) -> None:
    status = after(notice, status=AT_SITE)
    assert status.totals["notices"] == {(event_name(type(notice)),): 1}
    own = isinstance(notice, site.OwnRecordsEvaluated)
    assert [note.words for note in status.notes] == ([] if own else [notice.sentence])


def test_a_renewed_certificate_has_a_new_end_at_once() -> None:
    until = NOON + timedelta(days=90)
    ending = replace(START, certificate_ends=NOON)
    assert after(run.CertificateRenewed(until), status=ending).certificate_ends == until
    at_site = replace(AT_SITE, certificate_ends=NOON)
    assert after(site.SiteCertificateRenewed(until), status=at_site).certificate_ends == until


def test_refusals_are_counted_by_what_was_refused() -> None:
    status = after(*(notice for notice, _ in AGGREGATOR))
    assert status.totals["refusals"] == {
        (kind,): sum(type(notice) is refused for notice, _ in AGGREGATOR)
        for refused, kind in (
            (run.EntryRefused, "entry"),
            (run.InvitationDeclined, "invitation"),
            (run.SentAway, "stream"),
            (run.SiteWithdrew, "withdrawal"),
        )
    }
    assert status.totals["lost_sums"] == {("evaluation",): 1}
    assert status.totals["unawaited_answers"] == {("training",): 1}


def test_whoever_withdrew_is_named_until_it_returns() -> None:
    status = after(run.SiteWithdrew(A, 6, "budget"), run.InvitationDeclined(B, "policy"))
    assert dict(status.withdrawn) == {A: "budget", B: "policy"}
    assert dict(after(run.StreamOpened(A, replaces=False), status=status).withdrawn) == {B: "policy"}


def test_a_site_that_is_left_behind_is_shown_until_it_takes_part_again() -> None:
    behind = after(sums.SiteLeftBehind(B, Purpose.TRAINING, SEVEN, 2.5, 0.5))
    assert dict(behind.behind) == {B: NOON}
    paced = after(measured(SumPace({A: 0.4}, (B,))), status=behind)
    assert (dict(paced.answer_seconds), paced.median_answer_seconds) == ({A: 0.4}, 0.4)
    assert dict(paced.behind) == {B: NOON}
    late = after(sums.SiteCaughtUp(B, 7.5, 0.4), status=paced)
    assert (dict(late.answer_seconds), dict(late.behind)) == ({A: 0.4, B: 7.5}, {})
    # Who answered in time, and was left behind in a later step of the same sum, has not caught up.
    again = after(measured(SumPace({A: 0.4, B: 0.5}, (B,))), status=behind)
    assert dict(again.behind) == {B: NOON}
    assert dict(after(measured(SumPace({A: 0.4, B: 0.5})), status=again).behind) == {}
    assert late.total("left_behind_answers", B) == 1


def test_waiting_has_its_words_and_its_end_until_a_sum_begins() -> None:
    until = NOON + timedelta(minutes=5)
    awaited = run.SitesAwaited(Waiting((B,), 1, 2, 2, (), AfterWaiting.END, None), until, NOON)
    status = after(StepReached(IDLE), awaited)
    assert (status.waiting_words, status.until) == (awaited.sentence, until)
    status = after(StepReached(SumStep("training", 1, 1, "uploads", None)), status=status)
    assert (status.waiting_words, status.until) == ("", None)


def test_a_sum_is_counted_by_what_it_cost() -> None:
    status = after(measured(SumPace()), measured(SumPace()))
    assert {name: values["training",] for name, values in status.totals.items()} == {
        "sums": 2, "sum_seconds": 0.5, "received_bytes": 600, "sent_bytes": 800,
    }  # fmt: skip


def test_a_round_is_a_training_sum() -> None:
    progress = Progress(Purpose.TRAINING, SEVEN, 0.5, 2, None, is_best=False, model_changed=True)
    assert after(sums.SumApplied(progress, 20)).rounds_done == 7
    other = replace(progress, purpose=Purpose.STANDARDISATION)
    assert after(sums.SumApplied(other, 20)).rounds_done == 0


def test_the_state_follows_the_news() -> None:
    assert START.state is WatchedState.STARTING
    assert after(StepReached(IDLE)).state is WatchedState.WAITING
    stopped = after(
        StepReached(IDLE), run.StopBegun("SIGTERM"), StepReached(SumStep("training", 1, 1, "uploads", None))
    )
    assert stopped.state is WatchedState.STOPPING


def test_answers_of_many_sites_are_counted_together() -> None:
    names = tuple(ParticipantId(f"site-{number}") for number in range(MANY_AWAITED + 2))
    clock = [NOON]
    keeper = StatusKeeper(replace(START, sites=names), lambda: clock[0])
    keeper(Attendance(names, names))
    assert keeper._status.connected == ()
    assert keeper.status.connected == names
    keeper(Attendance(names, names[1:]))
    assert tuple(keeper._status.awaited) == names
    clock[0] += COALESCED
    keeper(Attendance(names, names[2:]))
    assert tuple(keeper._status.awaited) == names[2:]


def test_a_site_is_connected_from_joining_until_it_must_try_again() -> None:
    joined = after_at_site(StepReached(IDLE), site.RunJoined("ab" * 16, 3, 20))
    assert (joined.connected, joined.rounds_done, joined.run_id) == (("aggregator",), 3, "ab" * 16)
    retry = site.RetryPlanned("nobody answers", 1.0, 30.0, NOON)
    away = after(retry, status=joined)
    assert (away.connected, tuple(away.awaited), away.until) == ((), ("aggregator",), NOON)
    assert away.waiting_words == retry.sentence
    back = after(site.RunJoined("ab" * 16, 3, 20), status=away)
    assert (back.connected, back.awaited, back.waiting_words) == (("aggregator",), {}, "")


def test_a_site_counts_what_it_answered_and_what_it_refused() -> None:
    declined = site.SumDeclined((Purpose.EVALUATION, SEVEN), "its policy")
    cost = AnswerCost(Purpose.TRAINING, 8, 0.5, 100, 200)
    status = after_at_site(
        StepReached(SumStep("training", 8, 1, "answer", None)), cost, StepReached(IDLE), declined
    )
    assert status.totals["refusals"] == {("evaluation",): 1}
    assert status.totals["sums"] == {("training",): 1}
    assert status.totals["sent_bytes"] == {("training",): 100}
    assert status.rounds_done == 8


def test_a_site_shows_the_figures_of_all_sites_and_not_its_own() -> None:
    own, everybody = SplitFigures(57, 0.4123, 1.25, 6, 0.875), SplitFigures(512, 0.3, 1.0, 52, 1.0)
    status = after_at_site(
        site.OwnRecordsEvaluated(SiteFigures("sha256:0", False, 7, 0.1, {"train": own}, {"train": everybody}))
    )
    assert status.evaluation is not None
    assert dict(status.evaluation.splits) == {"train": PooledFigures(0.3, 1.0, 1.0)}
    assert status.notes == ()
    assert "0.4123" not in repr(status)


def test_attendance_reaches_the_status() -> None:
    assert after(Attendance((A,), (B,))).connected == (A,)
