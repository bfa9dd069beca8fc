"""How soon a site looks into a silence of its line."""

from __future__ import annotations

from collaborator.calls import FRAIL_SECONDS, MAX_FRUITLESS, Backoff, LineWatch
from fedfair.wire.service import FRAIL_KEEPALIVE, KEEPALIVE


def test_a_line_that_broke_of_late_is_watched_more_closely_and_one_that_held_is_not() -> None:
    now = [0.0]
    watch = LineWatch(lambda: now[0])
    assert watch.next(0) is KEEPALIVE
    now[0] += FRAIL_SECONDS
    assert watch.next(1) is FRAIL_KEEPALIVE
    now[0] += FRAIL_SECONDS + 1
    assert watch.next(1) is KEEPALIVE


def test_a_line_that_brings_nothing_to_its_end_is_given_its_time_until_it_does() -> None:
    watch, backoff = LineWatch(lambda: 0.0), Backoff(lambda: 0.0)
    found = []
    for _ in range(MAX_FRUITLESS + 3):
        found.append(watch.next(backoff.fruitless))
        backoff.next()
    assert found == [KEEPALIVE] + [FRAIL_KEEPALIVE] * MAX_FRUITLESS + [KEEPALIVE] * 2
    backoff.reset()
    assert watch.next(backoff.fruitless) is FRAIL_KEEPALIVE


def test_a_first_dead_line_is_found_within_five_seconds_and_the_next_within_two() -> None:
    found = [
        keepalive.silent_milliseconds + keepalive.answer_milliseconds for keepalive in (KEEPALIVE, FRAIL_KEEPALIVE)
    ]
    assert found == [5_000, 1_750]


def test_the_aggregator_allows_as_many_pings_as_any_site_sends() -> None:
    from aggregator.service import SERVER_OPTIONS

    least = dict(SERVER_OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]
    assert least <= min(KEEPALIVE.silent_milliseconds, FRAIL_KEEPALIVE.silent_milliseconds)
