"""How often a participant may begin something."""

from __future__ import annotations

from aggregator.token_bucket import MAX_HOLDERS, TokenBuckets


def test_a_full_bucket_lets_a_burst_through_and_then_one_for_each_pause() -> None:
    buckets = TokenBuckets(3, 2.0)
    assert [buckets.take(b"a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert not buckets.take(b"a", 1.9)
    assert buckets.take(b"a", 2.0)
    assert not buckets.take(b"a", 2.0)


def test_a_refused_attempt_costs_nothing_and_a_long_pause_fills_no_more_than_the_bucket() -> None:
    buckets = TokenBuckets(2, 1.0)
    for attempt in range(100):
        buckets.take(b"a", attempt / 1000)
    assert [buckets.take(b"a", 1000.0) for _ in range(3)] == [True, True, False]


def test_nobody_spends_the_tokens_of_another() -> None:
    buckets = TokenBuckets(1, 1.0)
    assert buckets.take(b"a", 0.0)
    assert not buckets.take(b"a", 0.0)
    assert buckets.take(b"b", 0.0)


def test_the_memory_of_buckets_is_bounded() -> None:
    buckets = TokenBuckets(1, 1.0)
    for number in range(2 * MAX_HOLDERS):
        buckets.take(number.to_bytes(4), 0.0)
    assert len(buckets._buckets) == MAX_HOLDERS
