"""The numbers of a sparse graph, against slow and obvious versions that count every outcome."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from fedfair.secagg.graph_terms import (
    ALL,
    AUTO,
    COMPLETE_MEMBERS,
    DRAWS,
    LOSS,
    SECRECY,
    VANISHING,
    colluders_among,
    graph_terms,
    more_than,
)
from fedfair.secagg.params import MAX_MEMBERS


def counted(count: int, members: int, marked: int, drawn: int) -> Fraction:
    """Return the same probability by going through every set that can be drawn."""
    sets = list(itertools.combinations(range(members), drawn))
    return Fraction(sum(sum(one < marked for one in each) > count for each in sets), len(sets))


def one_by_one(count: int, members: int, marked: int, drawn: int) -> Fraction:
    """Return the same probability by drawing one after the other: a Markov chain, for any number of members."""
    found = [Fraction(1)]
    for place in range(drawn):
        after = [Fraction(0)] * (len(found) + 1)
        for seen, probability in enumerate(found):
            hit = Fraction(max(marked - seen, 0), members - place)
            after[seen + 1] += probability * hit
            after[seen] += probability * (1 - hit)
        found = after
    return sum(found[count + 1 :], Fraction(0))


@pytest.mark.parametrize(("members", "drawn"), [(5, 3), (8, 4), (9, 6)])
def test_a_tail_is_the_share_of_the_sets_that_it_speaks_of(members: int, drawn: int) -> None:
    for marked, count in itertools.product(range(members + 1), range(drawn + 1)):
        exact = counted(count, members, marked, drawn)
        assert more_than(count, members, marked, drawn) == exact == one_by_one(count, members, marked, drawn)


@pytest.mark.parametrize("most", [Fraction(1, 2), Fraction(1, 50), Fraction(0)])
def test_the_most_colluders_among_those_drawn_is_the_least_number_that_the_probability_allows(
    most: Fraction,
) -> None:
    for members, colluders, drawn in itertools.product(range(4, 9), range(4), range(1, 4)):
        within = [c for c in range(drawn + 1) if counted(c, members, colluders, drawn) <= most]
        assert colluders_among(members, colluders, drawn, most) == within[0]


@pytest.mark.parametrize(("members", "colluders"), [(129, 0), (200, 10), (300, 6), (500, 50), (1000, 20)])
def test_both_probabilities_are_those_of_drawing_one_member_after_the_other(members: int, colluders: int) -> None:
    terms = graph_terms(members, colluders)
    assert terms is not None
    k, honest, gone = terms.neighbours, members - colluders, -(-members // 10)
    near = terms.shares - k // 2 - 2
    # 2 * votes > q + c_q leaves one of two numbers for c_q; the smaller gives the larger probability.
    bribed = 2 * terms.votes - terms.committee - 2
    secrecy = honest * one_by_one(near, members - 1, colluders, k)
    failing = secrecy + one_by_one(bribed, members, colluders, terms.committee)
    assert terms.secrecy <= DRAWS * failing
    assert terms.secrecy >= DRAWS * secrecy
    lost = members * one_by_one(k - terms.shares, members - 1, gone, k)
    lost += one_by_one(terms.committee - terms.votes, members, gone, terms.committee)
    assert terms.loss == lost
    assert terms.secrecy <= SECRECY
    assert terms.loss <= LOSS


@pytest.mark.parametrize(("members", "colluders"), [(200, 0), (500, 5), (1000, 0), (1000, 100)])
def test_no_smaller_number_of_neighbours_would_do(members: int, colluders: int) -> None:
    terms = graph_terms(members, colluders)
    assert terms is not None
    fewer = graph_terms(members, colluders, terms.neighbours - 2)
    assert fewer is None or fewer.loss > LOSS


def test_the_thresholds_are_those_that_the_proof_asks_for() -> None:
    for members, colluders in itertools.product((129, 150, 400, 1000), (0, 1, 3, 12)):
        terms = graph_terms(members, colluders)
        assert terms is not None
        near = terms.shares - terms.neighbours // 2 - 2
        assert 0 <= near <= colluders
        assert terms.neighbours % 2 == 0
        assert terms.neighbours < members // 2
        assert terms.shares <= terms.neighbours
        assert terms.votes <= terms.committee <= members


@pytest.mark.thorough
def test_small_sessions_keep_the_complete_graph_and_so_do_those_with_many_colluders() -> None:
    for members in range(2, COMPLETE_MEMBERS + 1):
        assert graph_terms(members, 0) is None
    assert graph_terms(COMPLETE_MEMBERS + 1, 0) is not None
    assert graph_terms(MAX_MEMBERS, MAX_MEMBERS // 3) is None
    assert graph_terms(MAX_MEMBERS, 0, ALL) is None


def test_a_stated_number_of_neighbours_is_taken_where_it_is_safe() -> None:
    assert (found := graph_terms(12, 0, 6)) is not None
    assert (found.neighbours, found.shares) == (6, 5)
    assert graph_terms(12, 5, 6) is None
    assert graph_terms(7, 0, 6) is None


def test_what_a_thousand_sites_take_is_worked_by_hand() -> None:
    # Nobody colludes: c = 0, so T = k / 2 + 2, and a mask is lost where k / 2 - 1 of k neighbours vanish.
    assert (found := graph_terms(1000, 0, AUTO)) is not None
    assert (found.shares, found.committee, found.votes) == (found.neighbours // 2 + 2, 23, 12)
    assert found.neighbours == 40
    assert found.secrecy == 0
    assert Fraction(1, 10) == VANISHING
