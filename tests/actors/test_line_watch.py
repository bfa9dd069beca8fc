"""How soon a site looks into a silence of its line."""

from __future__ import annotations

from collaborator.line_watch import BREAKS, BREAKS_SECONDS, LineWatch
from fedfair.wire.service import FRAIL_KEEPALIVE, KEEPALIVE


def test_a_line_that_broke_several_times_of_late_is_watched_more_closely_and_one_that_held_is_not() -> None:
    now = [0.0]
    watch = LineWatch(lambda: now[0])
    assert [watch.next() for _ in range(BREAKS)] == [KEEPALIVE] * BREAKS
    assert watch.next() is FRAIL_KEEPALIVE
    now[0] = BREAKS_SECONDS
    assert watch.next() is FRAIL_KEEPALIVE
    now[0] += BREAKS_SECONDS + 1
    assert watch.next() is KEEPALIVE


def test_the_aggregator_allows_as_many_pings_as_any_site_sends() -> None:
    from aggregator.service import SERVER_OPTIONS

    least = dict(SERVER_OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]
    assert least <= min(KEEPALIVE.silent_milliseconds, FRAIL_KEEPALIVE.silent_milliseconds)
