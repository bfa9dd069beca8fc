"""The protocol's rules leak nothing in any pattern of answers; each rule left out is reported as leaking."""

from __future__ import annotations

import pytest

from tests.attacks.leakage import Rules, leaks, leaks_of_drawn


@pytest.mark.parametrize(
    ("members", "colluders", "strategies"),
    [
        (2, 0, 4),
        (3, 0, 64),
        (3, 1, 4),
        (4, 0, 625),
        (4, 1, 125),
        (4, 2, 4),
        pytest.param(5, 0, 248_832, marks=pytest.mark.slow),
        (5, 1, 1_296),
        (5, 2, 216),
        (5, 3, 4),
    ],
)
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
        "no vote",
        "2t = n",
        "2t = n + n_C",
        "2t = n + n_C, one colluder",
        "two answers",
        "two answers, one colluder",
        "both shares of a member",
    ],
)
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
    assert leaks_of_drawn(Rules(members, colluders), 1_000, seed=members) == 0


@pytest.mark.parametrize(("members", "colluders"), [(6, 0), (8, 0), (9, 3), (12, 0)])
def test_the_drawn_patterns_find_a_threshold_that_is_too_low(members: int, colluders: int) -> None:
    assert leaks_of_drawn(Rules(members, colluders, lower_threshold=1), 1_000, seed=members) > 0
