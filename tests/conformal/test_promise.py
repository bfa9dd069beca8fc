"""The promise of prediction sets: exact for every multiset of people, beside slow sets on scores themselves."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from fedfair.conformal.promise import Promise
from fedfair.conformal.threshold import bins_missed

SHARES = st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0])
MISSED = st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9])


@given(SHARES, MISSED, st.integers(1, 5000))
@example(0.3, 0.1, 99)
@example(0.29, 0.1, 999)
def test_how_many_may_be_missed_is_exact_in_decimals(size: float, missed: float, records: int) -> None:
    promise = Promise(size, missed, 0.95)
    # In whole numbers: the shares are hundredths.
    share = round(100 * size) * round(100 * missed)
    assert promise.share == Fraction(share, 10_000)
    assert promise.allowed(records) == share * (records + 1) // 10_000
    for fewest in (1, 5):
        needed = promise.needed(fewest)
        assert promise.allowed(needed) >= fewest
        assert needed == 0 or promise.allowed(needed - 1) < fewest


@given(SHARES, MISSED, st.integers(20, 3000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_what_is_missed_with_confidence_is_the_quantile_of_an_order_statistic(
    size: float, missed: float, records: int, confidence: float
) -> None:
    promise = Promise(size, missed, confidence)
    allowed = promise.allowed(records)
    if allowed:
        expected = beta.ppf(confidence, allowed, records + 1 - allowed)
        assert expected - 1e-9 <= promise.missed_at_most(records) <= expected + 1.01e-6


def test_impossible_promises_are_refused() -> None:
    for stated in ((0.0, 0.1, 0.95), (1.1, 0.1, 0.95), (0.1, 0.0, 0.95), (0.1, 1.0, 0.95), (0.1, 0.1, 1.0)):
        with pytest.raises(ValueError, match="promises nothing"):
            Promise(*stated)


@given(
    st.lists(st.integers(0, 7), min_size=3, max_size=40),
    st.fractions(Fraction(1, 20), Fraction(19, 20)),
)
def test_of_exchangeable_people_no_more_are_missed_than_the_promise_allows(
    places: list[int], share: Fraction
) -> None:
    """Each of n + 1 people in turn is the new one: so the promise holds exactly, whoever they are."""
    people, allowed = len(places), math.floor(share * len(places))
    if not 1 <= allowed <= people - 1:
        return
    missed = 0
    for new, place in enumerate(places):
        others = np.bincount(places[:new] + places[new + 1 :], minlength=8)
        missed += place < bins_missed(others, allowed)
    assert missed <= allowed
    # Where each has a bin of their own, all that is allowed is used.
    ordered = np.arange(people)
    used = sum(
        new < bins_missed(np.bincount(np.delete(ordered, new), minlength=people), allowed) for new in range(people)
    )
    assert used == allowed


def split_conformal(fits: list[float], allowed: int) -> float:
    """Return the threshold of unbinned records: the m-th worst; slow and obvious."""
    return sorted(fits)[allowed - 1]


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=60), st.data())
def test_sets_of_a_histogram_contain_those_of_its_records(fits: list[float], data: st.DataObject) -> None:
    allowed = data.draw(st.integers(1, len(fits)))
    edges = np.linspace(0.0, 1.0, 9)
    places = np.searchsorted(edges[1:-1], fits, side="right")
    found = edges[bins_missed(np.bincount(places, minlength=8), allowed)]
    exact = split_conformal(fits, allowed)
    assert found <= exact
    # By less than a bin: the next edge is beyond it, so no better edge would do.
    assert (exact < 1.0 and exact < found + 1 / 8) or found == 7 / 8


def missed_of_worst_group(missed: np.ndarray, size: float) -> float:
    """Return the share that is missed in the worst group of a size: all the missed first, then others."""
    members = np.argsort(~missed, kind="stable")[: math.ceil(size * len(missed))]
    return float(missed[members].mean())


@pytest.mark.parametrize(("size", "share", "records"), [(0.2, 0.25, 199), (0.5, 0.1, 400), (1.0, 0.05, 240)])
def test_the_worst_group_that_anybody_finds_is_missed_no_more_than_promised(
    size: float, share: float, records: int
) -> None:
    promise, draws, redraws = Promise(size, share, 0.9), np.random.default_rng(7), 1500
    # Scores of a population that ties often, in 40 bins.
    population = np.minimum(40 * draws.beta(4, 2, 4000), 39).astype(int)
    worst, broken = [], 0
    for _ in range(redraws):
        drawn = np.bincount(draws.choice(population, records), minlength=40)
        missed = population < bins_missed(drawn, promise.allowed(records))
        worst.append(missed_of_worst_group(missed, size))
        broken += missed.mean() > promise.missed_at_most(records)
    # Four standard errors of the mean; the confidence is exceeded as often as chance lets it.
    assert np.mean(worst) <= share + 4 * np.std(worst) / math.sqrt(redraws)
    assert broken <= binom.isf(1e-4, redraws, 0.1)
    # Not by being idle: without the rounding to bins, nearly all that is allowed is missed.
    assert np.mean(worst) > 0.5 * share
