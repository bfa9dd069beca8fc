"""A terminal and a log say in the same words whom the run waits for, until when, and what happens then."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.news.run import waiting_words
from fedfair.rounds.events import AfterWaiting, DeadlineKind, DeadlineToken, Waiting
from fedfair.statistics.table import Purpose

A, B, C = (ParticipantId(name) for name in ("a", "b", "c"))
TOKENS = (DeadlineToken(DeadlineKind.JOIN, 1),)
UNTIL = datetime(2031, 5, 6, 3, 15, 14, tzinfo=UTC)
NOW = datetime(2031, 5, 6, 3, 5, 14, tzinfo=UTC)


def due(purpose: Purpose) -> SumRequest:
    return SumRequest(purpose, RoundNumber(5), 1, SumSpec(purpose, 2, 2, np.dtype(np.float64)))


TRAINING, EVALUATION = due(Purpose.TRAINING), due(Purpose.EVALUATION)


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (
            Waiting((A,), 2, 3, 2, TOKENS, AfterWaiting.START_WITHOUT, TRAINING),
            "2 of 3 sites are here. Waiting for a until 03:15:14 UTC, then starting without it.",
        ),
        (
            Waiting((A, B), 1, 3, 1, TOKENS, AfterWaiting.START_WITHOUT, TRAINING),
            "1 of 3 sites is here. Waiting for a, b until 03:15:14 UTC, then starting without them.",
        ),
        (
            Waiting((A, B, C), 0, 3, 2, TOKENS, AfterWaiting.END),
            (
                "0 of 3 sites are here, 2 are needed. Waiting for a, b, c until 03:15:14 UTC, then ending the "
                "run, which resumes when the aggregator is restarted."
            ),
        ),
        (
            Waiting((A,), 1, 2, 2, TOKENS, AfterWaiting.REPEAT, TRAINING, (A, B), reopens=True),
            (
                "1 of 2 sites is here, 2 are needed. The training sum of round 5 was interrupted, and only a, b "
                "together can open it from what they have sent. Waiting for a until 03:15:14 UTC, then restarting "
                "the training sum of round 5 with those who are here."
            ),
        ),
        (
            Waiting((A,), 2, 3, 2, TOKENS, AfterWaiting.START_WITHOUT, TRAINING, (A, B, C), reopens=True),
            (
                "2 of 3 sites are here. The training sum of round 5 was interrupted, and a, b, c can open it from "
                "what they have sent. Waiting for a until 03:15:14 UTC, then starting without it."
            ),
        ),
        (
            Waiting((A,), 1, 2, 2, TOKENS, AfterWaiting.SKIP, EVALUATION, (A, B)),
            (
                "1 of 2 sites is here, 2 are needed. Only a, b can repeat the evaluation sum of round 5, because "
                "they have helped to open it; for others, each of them would have to raise "
                "policy.max_reopened_sums. Waiting for a until 03:15:14 UTC, then omitting the evaluation sum of "
                "round 5."
            ),
        ),
    ],
)
def test_waiting_is_told_in_one_sentence_for_each_fact(waiting: Waiting, words: str) -> None:
    assert waiting_words(waiting, UNTIL, NOW) == words


def test_a_time_on_another_day_has_its_date_and_any_zone_is_told_in_utc() -> None:
    waiting = Waiting((A,), 2, 3, 2, TOKENS, AfterWaiting.START_WITHOUT)
    until = datetime(2031, 5, 7, 2, 30, tzinfo=timezone(timedelta(hours=2)))
    assert "until 2031-05-07 00:30:00 UTC" in waiting_words(waiting, until, NOW)
