"""A sparse graph leaks nothing in any pattern of answers; each rule left out is reported as leaking."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.attacks.sparse_leakage import RingRules, drawn_pattern, drawn_rules, every_pattern, is_sound, leak

SIX = RingRules(6, 4, committee=frozenset({0, 2, 3}), votes_needed=2)
LARGER = [
    (8, 4, 0, 0),
    (9, 6, 0, 0),
    (12, 6, 1, 1),
    (20, 6, 1, 2),
    (20, 8, 2, 3),
    (30, 8, 2, 4),
    (40, 12, 3, 6),
    (60, 10, 2, 6),
]


@pytest.mark.parametrize(
    ("rules", "patterns"),
    [pytest.param(SIX, 238_249, marks=pytest.mark.slow), (replace(SIX, cohort=frozenset(range(5))), 144)],
    ids=["all six", "five of six"],
)
def test_no_pattern_of_answers_on_a_small_ring_isolates_anybody(rules: RingRules, patterns: int) -> None:
    assert is_sound(rules)
    # One in five of many patterns: the number of choices of a member is no multiple of it.
    step, count = 5 if patterns > 1000 else 1, 0
    for count, choices in enumerate(every_pattern(rules), 1):
        assert count % step or not leak(rules, choices)
    assert count == patterns


def leaks_of_drawn(shape: tuple[int, int, int, int], tries: int, **broken: object) -> int:
    """Return how many of so many drawn patterns leak under rules that are broken in one place."""
    draw, found, tried = random.Random(shape[0]), 0, 0  # noqa: S311 - which lie
    while tried < tries:
        rules = drawn_rules(draw, *shape)
        if rules is None:
            continue
        rules = replace(rules, **broken)  # type: ignore[arg-type]  # one of its own fields
        for _ in range(20):
            found += bool(leak(rules, drawn_pattern(draw, rules)))
            tried += 1
    return found


@pytest.mark.parametrize("shape", LARGER)
def test_no_drawn_pattern_isolates_anybody_on_a_larger_ring(shape: tuple[int, int, int, int]) -> None:
    assert leaks_of_drawn(shape, 600) == 0


@pytest.mark.parametrize(
    ("shape", "broken"),
    [((8, 4, 0, 0), {"votes": False}), ((60, 10, 2, 6), {"survivors_nearby": False})],
    ids=["no vote", "any number of neighbours may be missing"],
)
def test_a_rule_left_out_is_reported_as_leaking(shape: tuple[int, int, int, int], broken: dict[str, bool]) -> None:
    assert leaks_of_drawn(shape, 2_000, **broken) > 0


@pytest.mark.parametrize("near", [0, 1])
def test_one_share_less_leaks_as_worked_by_hand(near: int) -> None:
    # k = 8: two arcs of four members are missing, so no mask joins the two parts of the ring. In each part the
    # last member has four neighbours on its own side and itself: five shares, and one more from a colluder where
    # the first place of an arc is a colluder's. T = k / 2 + c + 2 is one more than that.
    bad = frozenset({6, 18}) if near else frozenset()
    rules = RingRules(24, 8, near, bad, committee=frozenset({1, 13, 14}), votes_needed=2)
    assert is_sound(rules)
    everybody = frozenset(range(24))
    opened = everybody - {7, 8, 9, 19, 20, 21} - ({6, 18} if not near else set())
    told = {one: opened if one in opened else None for one in rules.honest}
    assert not rules.accepts(5, opened)
    weaker = replace(rules, lower_threshold=1)
    assert all(chosen is None or weaker.accepts(one, chosen) for one, chosen in told.items())
    parts = "[10, 11, 12, 13, 14, 15, 16, 17]", "[0, 1, 2, 3, 4, 5, 22, 23]"
    assert all(part in leak(weaker, told) for part in parts)
