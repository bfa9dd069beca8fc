"""The protocol's rules leak nothing in any pattern of answers; each rule left out is reported as leaking."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.attacks.leakage import Rules, leaks, leaks_of_drawn
from tests.attacks.leakage_of_plays import LeakingPlay, isolated
from tests.attacks.sparse_leakage import RingRules, drawn_pattern, drawn_rules, every_pattern, is_sound, leak


@pytest.mark.parametrize(
    ("members", "colluders", "strategies"),
    [
        (2, 0, 4), (3, 0, 64), (3, 1, 4), (4, 0, 625), (4, 1, 125), (4, 2, 4),
        pytest.param(5, 0, 248_832, marks=pytest.mark.slow), (5, 1, 1_296), (5, 2, 216), (5, 3, 4),
    ],
)  # fmt: skip
def test_no_pattern_of_answers_isolates_anybody(members: int, colluders: int, strategies: int) -> None:
    assert leaks(Rules(members, colluders)) == (strategies, 0, "")


@pytest.mark.parametrize(
    ("rules", "strategies", "leaking"),
    [
        pytest.param(Rules(5, 0, votes=False), 248_832, 30_654, marks=pytest.mark.slow),
        (Rules(4, 0, lower_threshold=1), 4_096, 57),
        (Rules(4, 1, lower_threshold=1), 125, 29),
        (Rules(5, 1, lower_threshold=1), 20_736, 69),
        (Rules(3, 0, answers=2), 343, 159),
        (Rules(4, 1, answers=2), 1_331, 401),
        (Rules(3, 0, dropped_by_aggregator=True), 15_625, 3_369),
    ],
    ids=[
        "no vote", "2t = n", "2t = n + n_C", "2t = n + n_C, one colluder", "two answers",
        "two answers, one colluder", "both shares of a member",
    ],
)  # fmt: skip
def test_a_rule_left_out_is_reported_as_leaking(rules: Rules, strategies: int, leaking: int) -> None:
    found = leaks(rules)
    assert found[:2] == (strategies, leaking)
    assert "gives the sums over" in found[2]


def test_the_smallest_leak_is_the_one_worked_by_hand() -> None:
    # n = 3, t = 2, two answers allowed: members 2 and 3 open the set {2, 3} (b_2, b_3), for which both have handed
    # over their masks with 1. Member 3 has handed over its mask with 2 as well, for {1, 3}: x_2 and x_3 lie bare.
    assert leaks(Rules(3, 0, answers=2))[2].endswith("gives the sums over [[2], [3]]")


@pytest.mark.parametrize(("members", "colluders"), [(6, 0), (7, 2), (8, 0), (9, 3), (10, 1), (12, 0), (12, 5)])
def test_no_drawn_pattern_of_answers_isolates_anybody_in_a_larger_cohort(members: int, colluders: int) -> None:
    assert leaks_of_drawn(Rules(members, colluders), 400, seed=members) == 0


@pytest.mark.parametrize(("members", "colluders"), [(6, 0), (8, 0), (9, 3), (12, 0)])
def test_the_drawn_patterns_find_a_threshold_that_is_too_low(members: int, colluders: int) -> None:
    assert leaks_of_drawn(Rules(members, colluders, lower_threshold=1), 100, seed=members) > 0


# ---- a sparse graph leaks nothing in any pattern of answers; each rule left out is reported as leaking

SIX = RingRules(6, 4, committee=frozenset({0, 2, 3}), votes_needed=2)
LARGER = [
    (8, 4, 0, 0), (9, 6, 0, 0), (12, 6, 1, 1), (20, 6, 1, 2), (20, 8, 2, 3), (30, 8, 2, 4), (40, 12, 3, 6),
    (60, 10, 2, 6),
]  # fmt: skip


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


def leaks_of_drawn_rings(shape: tuple[int, int, int, int], tries: int, **broken: object) -> int:
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
    assert leaks_of_drawn_rings(shape, 150) == 0


@pytest.mark.parametrize(
    ("shape", "broken"),
    [((8, 4, 0, 0), {"votes": False}), ((60, 10, 2, 6), {"survivors_nearby": False})],
    ids=["no vote", "any number of neighbours may be missing"],
)
def test_a_rule_left_out_on_a_ring_is_reported(shape: tuple[int, int, int, int], broken: dict[str, bool]) -> None:
    assert leaks_of_drawn_rings(shape, 400, **broken) > 0


@pytest.mark.parametrize("near", [0, 1])
def test_one_share_less_leaks_as_worked_by_hand(near: int) -> None:
    # k = 8: two arcs of four members are missing, so no mask joins the two parts of the ring. In each part the
    # last member has four neighbours on its own side and itself: five shares, and one more from a colluder where
    # the first place of an arc is a colluder's. T = k / 2 + c + 2 is one more than that.
    bad = frozenset({6, 18}) if near else frozenset()
    rules = RingRules(24, 8, near, bad, committee=frozenset({1, 13, 14}), votes_needed=2)
    assert is_sound(rules)
    opened = frozenset(range(24)) - {7, 8, 9, 19, 20, 21} - ({6, 18} if not near else set())
    told = {one: opened if one in opened else None for one in rules.honest}
    assert not rules.accepts(5, opened)
    weaker = replace(rules, lower_threshold=1)
    assert all(chosen is None or weaker.accepts(one, chosen) for one, chosen in told.items())
    parts = "[10, 11, 12, 13, 14, 15, 16, 17]", "[0, 1, 2, 3, 4, 5, 22, 23]"
    assert all(part in leak(weaker, told) for part in parts)


# ---- whatever is asked again, put back or started again: sums about one state tell nobody from the others

PLAYS = 5


def played(members: int, colluders: int, fewest: int, *, reopened: int) -> tuple[list[str], Counter[str]]:
    """Return all leaks of many plays, and what has happened in them."""
    leaks, happened = list[str](), Counter[str]()
    for seed in range(PLAYS):
        play = LeakingPlay(members, colluders, reopened=reopened, fewest=fewest, seed=seed)
        found = play.play(20)
        leaks += found.leaks
        happened.update(play.happened, sums=sum(map(len, found.sums.values())), rounds=len(play.rounds))
    return leaks, happened


CASES = [(4, 0, 3), pytest.param(5, 1, 4, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("members", "colluders", "fewest"), CASES)
def test_no_play_isolates_anybody(members: int, colluders: int, fewest: int) -> None:
    leaks, happened = played(members, colluders, fewest, reopened=0)
    assert leaks == []
    # The plays are about what they are meant to be about.
    assert min(happened[each] for each in ("sums", "restarts", "snapshots taken", "refusals")) > PLAYS


@pytest.mark.parametrize(("members", "colluders", "fewest"), CASES)
def test_one_sum_opened_for_a_second_set_shows_the_difference(members: int, colluders: int, fewest: int) -> None:
    plays = (LeakingPlay(members, colluders, reopened=1, fewest=fewest, seed=seed) for seed in range(PLAYS))
    assert any(leak.count("[") == 4 for play in plays for leak in play.play(20).leaks)  # from two sums alone


def test_sums_that_overlap_are_held_against_each_other() -> None:
    def of(*parts: str) -> set[frozenset[int]]:
        return {frozenset(map(int, part)) for part in parts}

    assert (isolated(of("1234"), 3), isolated(of("1234", "123"), 3)) == ([], [frozenset({4})])
    assert (isolated(of("123", "234"), 3), isolated(of("123", "345", "145"), 2)) == ([frozenset({1, 4})], [])
    # Half of all three, without one of them, is one site.
    assert isolated(of("12", "23", "13"), 2) == [frozenset({1}), frozenset({2}), frozenset({3})]
