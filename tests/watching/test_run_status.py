"""The status of a run as a value: what is counted, from when until when, and what is forgotten."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fedfair.watching.run_status import (
    IDLE,
    MAX_HISTORY,
    MAX_NOTES,
    NO_SUM,
    RATE_ROUNDS,
    PooledEvaluation,
    PooledFigures,
    SumStep,
    WatchedState,
    attended,
    counted,
    evaluated,
    noted,
    over,
    round_ended,
    stepped,
    up_to,
)
from tests.watching.statuses import NOON, START, A, B

UPLOADS = SumStep("training", 1, 1, "uploads", None)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_seconds_go_to_the_phase_in_which_they_pass() -> None:
    status = stepped(START, IDLE, after(1))
    assert status.state is WatchedState.WAITING
    status = stepped(status, UPLOADS, after(4))
    assert status.state is WatchedState.RUNNING
    status = stepped(status, SumStep("training", 1, 1, "shares", None), after(10))
    status = up_to(stepped(status, IDLE, after(11)), after(13))
    assert status.totals["phase_seconds"] == {
        ("", NO_SUM): 4 + 2,
        ("training", "uploads"): 6,
        ("training", "shares"): 1,
    }


def test_a_site_is_awaited_from_when_it_is_named_until_it_is_not() -> None:
    status = stepped(START, UPLOADS, after(0))
    status = attended(status, (A, B), (A, B), after(0))
    status = attended(status, (A, B), (B,), after(3))
    assert dict(status.awaited) == {B: after(0)}
    status = stepped(status, SumStep("training", 1, 1, "shares", None), after(5))
    status = attended(status, (A,), (A,), after(5))
    status = up_to(status, after(6))
    assert status.awaited_seconds == {A: {"uploads": 3, "shares": 1}, B: {"uploads": 5, "shares": 0}}
    assert status.connected == (A,)


def test_what_is_counted_until_now_is_counted_once() -> None:
    status = attended(stepped(START, UPLOADS, after(0)), (), (A,), after(0))
    twice = up_to(up_to(status, after(2)), after(5))
    assert twice == up_to(status, after(5))


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    status = attended(stepped(START, UPLOADS, after(9)), (), (A,), after(9))
    status = up_to(status, after(2))
    assert status.awaited_seconds == {A: {"uploads": 0}}
    assert status.totals["phase_seconds"]["training", "uploads"] == 0


def test_a_deadline_that_moves_is_no_new_step() -> None:
    status = stepped(START, UPLOADS, after(1))
    moved = stepped(status, SumStep("training", 1, 1, "uploads", after(60)), after(2))
    assert (moved.until, moved.totals, moved.step_since) == (after(60), status.totals, status.step_since)


def test_the_rate_is_that_of_the_last_rounds() -> None:
    status = round_ended(START, 1, after(0))
    assert status.rounds_per_second is None
    for number in range(2, 2 * RATE_ROUNDS):
        status = round_ended(status, number, after(number / 4))
    assert status.rounds_per_second == pytest.approx(4.0)
    assert len(status.round_ends) == RATE_ROUNDS
    assert status.last_round_age(after(20)) == pytest.approx(20 - (2 * RATE_ROUNDS - 1) / 4)


def test_rounds_at_one_moment_have_no_rate() -> None:
    assert round_ended(round_ended(START, 1, NOON), 2, NOON).rounds_per_second is None


def test_a_long_history_keeps_its_ends_and_stays_short() -> None:
    status = START
    for number in range(10 * MAX_HISTORY):
        figures = PooledFigures(1 / (number + 1), 2.0, 0.5)
        status = evaluated(status, PooledEvaluation(number, {"train": figures}))
    rounds = [point[0] for point in status.history]
    assert len(rounds) <= MAX_HISTORY
    assert rounds == list(range(0, 10 * MAX_HISTORY, status.stride))
    assert status.evaluation is not None
    assert status.evaluation.round == 10 * MAX_HISTORY - 1


def test_the_split_of_people_whom_the_model_never_saw_is_shown() -> None:
    known = PooledFigures(0.1, 0.2, 0.9)
    unknown = PooledFigures(None, None, None)
    assert PooledEvaluation(1, {"train": known, "test": unknown}).shown == ("test", unknown)
    assert PooledEvaluation(1, {}).shown is None
    assert evaluated(START, PooledEvaluation(1, {"train": unknown})).history == ()


def test_only_the_last_notes_are_kept() -> None:
    status = START
    for number in range(3 * MAX_NOTES):
        status = noted(status, f"note {number}", NOON)
    words = [note.words for note in status.notes]
    assert words == [f"note {number}" for number in range(2 * MAX_NOTES, 3 * MAX_NOTES)]


def test_counters_are_values_and_begin_at_nothing() -> None:
    once = counted(START, "sums", "training")
    assert (START.totals, once.totals) == ({}, {"sums": {("training",): 1}})
    assert counted(once, "sums", "training", by=2).totals == {"sums": {("training",): 3}}


def test_at_the_end_nobody_is_waited_for() -> None:
    status = attended(stepped(START, UPLOADS, after(0)), (A,), (B,), after(0))
    ended = over(status, after(2))
    assert (ended.state, ended.awaited, ended.step) == (WatchedState.OVER, {}, IDLE)
    assert ended.awaited_seconds == {B: {"uploads": 2}}


def test_the_days_of_a_certificate_are_whole_ones() -> None:
    assert START.certificate_days(NOON) is None
    known = replace(START, certificate_ends=after(86400 * 7 + 9))
    assert known.certificate_days(NOON) == 7
    assert known.certificate_days(after(86400 * 7)) == 0
    assert known.certificate_days(after(86400 * 7 + 10)) == -1
