"""The words of the page, in every state of a run."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fedfair.watching.page import status_part
from fedfair.watching.run_status import (
    IDLE,
    RunStatus,
    SumStep,
    WatchedState,
    answered,
    attended,
    counted,
    left_behind,
    over,
    round_ended,
    stepped,
)
from tests.watching.statuses import NOON, START, A, B

SUMMING = stepped(START, SumStep("training", 8, 1, "uploads", NOON + timedelta(seconds=90)), NOON)
AT_SITE = replace(SUMMING, role="collaborator", name=A, sites=("aggregator",))


def shown(status: RunStatus, seconds: float = 60.0) -> str:
    return status_part(status, NOON + timedelta(seconds=seconds)).decode()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (START, "No round of 20 is done; no sum is open."),
        (replace(SUMMING, rounds_done=7), "Round 7 of 20 is done; training sum of round 8 waits for uploads."),
        (stepped(START, SumStep("training", 8, 3, "votes", None), NOON), "of round 8, attempt 3 waits for votes."),
        (replace(SUMMING, rounds_total=0), "Training sum of round 8 waits for uploads."),
        (replace(SUMMING, state=WatchedState.STOPPING), "The run is being stopped."),
        (over(replace(SUMMING, rounds_done=20), NOON), "The run is over, after round 20."),
        (AT_SITE, "this site answers the training sum of round 8."),
        (AT_SITE, "The aggregator is not connected"),
        (replace(AT_SITE, connected=("aggregator",)), "The aggregator is connected"),
        (replace(START, connected=(A,)), "1 of 2 sites is connected"),
        (START, "No round has ended since this process began, 60 s ago."),
        (round_ended(START, 1, NOON), "The last round ended 60 s ago."),
        (round_ended(round_ended(START, 1, NOON), 2, NOON + timedelta(seconds=40)), "a round every 40 s"),
        (round_ended(round_ended(START, 1, NOON), 2, NOON + timedelta(seconds=0.4)), "2.5 rounds a second"),
        (attended(SUMMING, (A,), (B,), NOON), "Waiting for clinic-b, until 12:01:30 UTC at the latest."),
        (attended(SUMMING, (A,), (B,), NOON), "not connected, awaited for 60 s"),
        (answered(SUMMING, {A: 0.4, B: 6.0}, 0.4), "not connected, answers in 6.0 s where the median is 0.4 s"),
        (
            answered(left_behind(SUMMING, B, NOON), {B: 6.0}, 0.4, [B]),
            "not connected, left behind for 60 s, answers in 6.0 s where the median is 0.4 s",
        ),
        (left_behind(SUMMING, B, NOON), "not connected, left behind for 60 s<"),
        (replace(START, withdrawn={B: "privacy budget exhausted"}), "withdrew: privacy budget exhausted"),
        (replace(START, waiting_words="1 of 2 sites is here.", awaited={B: NOON}), "1 of 2 sites is here."),
        (START, "The first evaluation is still to come."),
        (START, "Nothing yet."),
        (counted(START, "received_bytes", "training", by=12_345_678), "12.3 MB"),
        (replace(START, certificate_ends=NOON + timedelta(days=1, minutes=2)), "the certificate ends in 1 day"),
        (replace(START, certificate_ends=NOON), "the certificate has ended"),
    ],
)
def test_the_page_says_where_the_run_stands(status: RunStatus, words: str) -> None:
    assert words in shown(status)


@pytest.mark.parametrize(
    ("status", "seconds", "alarmed"),
    [
        (attended(SUMMING, (A, B), (A, B), NOON), 10.0, False),
        (attended(SUMMING, (A, B), (A, B), NOON), 31.0, True),
        (attended(SUMMING, (A,), (B,), NOON), 1.0, True),
        (attended(stepped(START, IDLE, NOON), (A,), (B,), NOON), 1.0, False),
    ],
)
def test_who_holds_a_run_up_stands_out(status: RunStatus, seconds: float, alarmed: bool) -> None:
    assert ("card alarm" in shown(status, seconds)) is alarmed


def test_of_many_who_are_awaited_some_are_named() -> None:
    names = tuple(f"site-{number}" for number in range(100))
    status = attended(replace(SUMMING, sites=names), names, names, NOON)
    assert "site-11 and 88 more, until" in shown(status)
    assert "and 40 more<" in shown(replace(status, awaited={}))


def test_nobody_is_called_slow_for_an_answer_as_quick_as_most() -> None:
    assert "answers in" not in shown(answered(SUMMING, {A: 0.4, B: 0.9}, 0.4))
    assert "answers in" not in shown(answered(SUMMING, {A: 4.0, B: 7.9}, 4.0))
    assert "answers in 8.0 s" in shown(answered(SUMMING, {A: 4.0, B: 8.0}, 4.0))
