"""Whatever is asked again, put back or started again: sums about one state tell nobody from the others."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.attacks.leakage_of_plays import LeakingPlay, isolated

PLAYS = 15


def run(members: int, colluders: int, fewest: int, *, reopened: int) -> tuple[list[str], Counter[str]]:
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
    leaks, happened = run(members, colluders, fewest, reopened=0)
    assert leaks == []
    # The plays are about what they are meant to be about.
    assert min(happened[each] for each in ("sums", "restarts", "snapshots taken", "refusals")) > PLAYS


@pytest.mark.parametrize(("members", "colluders", "fewest"), CASES)
def test_one_sum_that_is_opened_for_a_second_set_shows_the_difference(
    members: int, colluders: int, fewest: int
) -> None:
    leaks, _ = run(members, colluders, fewest, reopened=1)
    assert any(leak.count("[") == 4 for leak in leaks)  # from two sums alone


def test_sums_that_overlap_are_held_against_each_other() -> None:
    def of(*parts: str) -> set[frozenset[int]]:
        return {frozenset(map(int, part)) for part in parts}

    assert isolated(of("1234"), 3) == []
    assert isolated(of("1234", "123"), 3) == [frozenset({4})]
    assert isolated(of("123", "234"), 3) == [frozenset({1, 4})]
    assert isolated(of("123", "345", "145"), 2) == []
    # Half of all three, without one of them, is one site.
    assert isolated(of("12", "23", "13"), 2) == [frozenset({1}), frozenset({2}), frozenset({3})]
