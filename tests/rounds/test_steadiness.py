"""Whose streams last."""

from __future__ import annotations

from fedfair.ids import ParticipantId
from fedfair.rounds.slowness.steadiness import LASTING_SECONDS, PROBATION_SECONDS, SHORT_STREAMS, Steadiness

A, B = ParticipantId("clinic-a"), ParticipantId("clinic-b")


def flapping() -> Steadiness:
    streams = Steadiness()
    for _ in range(SHORT_STREAMS):
        assert streams.seconds_until_heard(A) == 0.0
        streams.ended(A, 0.1, contributed=False)
    return streams


def test_who_only_comes_and_goes_is_heard_later_and_nobody_waits_for_it() -> None:
    streams = flapping()
    assert streams.seconds_until_heard(A) == PROBATION_SECONDS
    assert not streams.is_steady(A)
    assert streams.is_steady(B)


def test_one_stream_that_lasts_makes_up_for_all_short_ones() -> None:
    streams = flapping()
    streams.ended(A, LASTING_SECONDS, contributed=False)
    assert streams.seconds_until_heard(A) == 0.0


def test_a_bad_line_that_carries_a_contribution_now_and_then_stays_steady() -> None:
    streams = Steadiness()
    for number in range(100):
        streams.ended(A, 6.0, contributed=bool(number % 2))
        assert streams.is_steady(A)
