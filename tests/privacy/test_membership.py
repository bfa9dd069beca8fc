"""How well losses tell members: the ROC against scikit-learn, intervals against scipy and by redraws, epsilon."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, binom, norm
from sklearn.metrics import roc_auc_score

from fedfair.errors import LocalProtocolError
from fedfair.privacy import audited_epsilon
from fedfair.privacy.audited_epsilon import GUESSED, epsilon_at_least
from fedfair.privacy.membership import FoundShare, ScoreCounts, found_at

RUNS, MISTAKE = 300, 0.05
MANY = int(binom.ppf(0.9995, RUNS, MISTAKE))
"""More mistakes than these in `RUNS` runs happen once in 2000 if each is made with the chance `MISTAKE`."""

Array = NDArray[np.float64]


def counted(train: Array, held_out: Array, edges: Array) -> ScoreCounts:
    """Return the counts in bins between edges, with open bins at both ends."""
    places = [np.searchsorted(edges, values, side="right") for values in (train, held_out)]
    return ScoreCounts(*(np.bincount(place, minlength=len(edges) + 1).astype(float) for place in places))


def drawn(source: np.random.Generator) -> ScoreCounts:
    """Return few counts of few bins, many of them 0."""
    bins = int(source.integers(1, 9))
    both = source.poisson(source.choice([0.3, 3.0, 40.0]), (2, bins)).astype(float)
    both[:, source.integers(bins)] += 1.0
    return ScoreCounts(*both)


def slow_found(counts: ScoreCounts, mistakes: float, tail: float) -> FoundShare:
    """Look at every edge and every k of the module's docstring, one by one, with scipy's distributions."""
    records, others = int(counts.train.sum()), int(counts.held_out.sum())
    edges = [
        (int(counts.train[:at].sum()), int(counts.held_out[:at].sum())) for at in range(len(counts.train) + 1)
    ]
    safe = [k for k in range(1, others + 1) if binom.cdf(k - 1, others, mistakes) <= tail]
    unsafe = [k for k in range(1, others + 1) if binom.sf(k - 1, others, mistakes) <= tail]
    lower, upper = 0.0, 1.0
    for found, mistaken in edges:
        if safe and mistaken < max(safe) and found:
            lower = max(lower, float(beta.ppf(tail, found, records - found + 1)))
        if unsafe and mistaken >= min(unsafe) and found < records:
            upper = min(upper, float(beta.isf(tail, found + 1, records - found)))
    estimate = max(found / records for found, mistaken in edges if mistaken <= mistakes * others)
    return FoundShare(estimate, lower, upper)


def test_the_area_is_that_of_every_two_records() -> None:
    source = np.random.default_rng(1)
    for _ in range(60):
        counts = drawn(source)
        both = counts.train, counts.held_out
        scores = np.concatenate([np.repeat(np.arange(len(kind)), kind.astype(int)) for kind in both])
        is_member = np.arange(len(scores)) < counts.train.sum()
        assert counts.area == pytest.approx(roc_auc_score(is_member, -scores), abs=1e-12)


def test_shares_found_are_those_of_the_slow_way() -> None:
    source = np.random.default_rng(2)
    for _ in range(150):
        counts, mistakes = drawn(source), float(source.choice([0.001, 0.01, 0.2, 0.6]))
        tail = float(source.choice([0.001, 0.0125, 0.3]))
        found, slow = found_at(counts, mistakes, tail), slow_found(counts, mistakes, tail)
        assert found.estimate == slow.estimate
        assert (found.lower, found.upper) == pytest.approx((slow.lower, slow.upper), abs=1e-9)


@pytest.mark.parametrize(("people", "mistakes"), [(4000, 0.01), (60, 0.1)])
def test_intervals_hold_the_truth_over_redraws(people: int, mistakes: float) -> None:
    source, edges, missed = np.random.default_rng(people), np.linspace(-4.0, 3.0, 400), 0
    # Members score one deviation lower: at rate alpha, norm.cdf(norm.ppf(alpha) + 1) of them are found.
    truth = float(norm.cdf(norm.ppf(mistakes) + 1.0))
    for _ in range(RUNS):
        counts = counted(source.normal(-1.0, 1.0, people), source.normal(0.0, 1.0, people), edges)
        found = found_at(counts, mistakes, MISTAKE / 4.0)
        missed += not found.lower <= truth <= found.upper
    assert missed <= MANY


def test_what_no_counts_are() -> None:
    for train, held_out in ([1.5], [1.0]), ([-1.0, 2.0], [1.0, 0.0]), ([0.0], [1.0]), ([1.0], [0.0]):
        with pytest.raises(LocalProtocolError):
            ScoreCounts(np.array(train), np.array(held_out))
    with pytest.raises(LocalProtocolError, match="same bins"):
        ScoreCounts(np.ones(2), np.ones(3))


# ------------------------------------------------------------------ epsilon


def randomised(source: np.random.Generator, records: int, share: float, epsilon: float) -> ScoreCounts:
    """Return what randomised response says of each record's side, in an order that says nothing else."""
    sides = source.random(records) < share
    said = sides ^ (source.random(records) < 1.0 / (1.0 + math.exp(epsilon)))
    scores = ~said + source.random(records)
    return counted(scores[sides], scores[~sides], np.linspace(0.0, 2.0, 200)[1:-1])


def gaussian(source: np.random.Generator, records: int, share: float, deviation: float) -> ScoreCounts:
    """Return each record's side with Gaussian noise."""
    sides = source.random(records) < share
    scores = deviation * source.normal(size=records) - sides
    return counted(scores[sides], scores[~sides], np.linspace(-1.0 - 3.5 * deviation, 3.5 * deviation, 200))


def delta_of(epsilon: float, deviation: float) -> float:
    """Return delta of one number of sensitivity 1 under Gaussian noise (Balle and Wang 2018, theorem 8)."""
    half, far = 0.5 / deviation, epsilon * deviation
    return float(norm.cdf(half - far) - math.exp(epsilon) * norm.cdf(-half - far))


@pytest.mark.parametrize(("share", "epsilon"), [(0.5, 0.0), (0.8, 1.0), (0.3, 2.0)])
def test_the_bound_exceeds_the_truth_no_more_often_than_stated(share: float, epsilon: float) -> None:
    source = np.random.default_rng(int(10 * share))
    said = [randomised(source, 3000, share, epsilon) for _ in range(RUNS)]
    bounds = [epsilon_at_least([one], share, MISTAKE) for one in said]
    assert sum(bound > epsilon for bound in bounds) <= MANY
    # It is of use, too: no more than .5 below the truth.
    assert epsilon - 0.5 <= float(np.median(bounds)) <= epsilon


def test_the_bound_of_gaussian_noise_at_its_delta() -> None:
    source, share, deviation, delta = np.random.default_rng(7), 0.8, 1.0, 1e-6
    epsilon = next(value for value in np.arange(0.0, 9.0, 0.01) if delta_of(value, deviation) <= delta)
    counts = [gaussian(source, 3000, share, deviation) for _ in range(RUNS)]
    bounds = [epsilon_at_least([one], share, MISTAKE, delta) for one in counts]
    assert sum(bound > epsilon for bound in bounds) <= MANY
    assert float(np.median(bounds)) > 1.0


def test_two_attacks_and_every_share_divide_the_chance_of_a_mistake() -> None:
    # Half of 40 records were trained on, and have the lowest scores: of 20 guesses at either end all are right.
    counts = ScoreCounts(np.array([20.0, 0.0]), np.array([0.0, 20.0]))
    for attacks, delta in (1, 0.0), (2, 0.0), (1, 1e-3):
        level = (MISTAKE - 40 * 0.5 * delta) / (2 * len(GUESSED) * attacks)
        least = level ** (1 / 20)
        wanted = math.log(least / (1.0 - least))
        assert epsilon_at_least([counts] * attacks, 0.5, MISTAKE, delta) == pytest.approx(wanted, rel=1e-9)
    assert epsilon_at_least([counts], 0.5, MISTAKE, 2.5e-3) == 0.0
    # With other shares the same is told by the other end, too.
    least = (MISTAKE / (2 * len(GUESSED))) ** (1 / 20)
    wanted = math.log(least / (1.0 - least)) + math.log(4.0)
    assert epsilon_at_least([counts], 0.8, MISTAKE) == pytest.approx(wanted, rel=1e-9)


def test_it_is_within_the_bound_of_the_paper() -> None:
    """The reference implementation of theorem 5.2, for p = 1/2, refutes what is stated here, and little more."""
    for right, guesses, delta in (90, 100, 0.0), (480, 500, 1e-5), (27, 30, 0.0):
        records = 2 * guesses
        counts = ScoreCounts(np.array([right, records - right], float), np.array([guesses - right, 0.0]))
        stated = audited_epsilon._refuted(counts, 0.5, 0.05 - records * delta / 4.0)
        assert stated > 0.5
        assert _paper(records, guesses, right, stated - 1e-9, delta) <= 0.05 + records * delta
        assert _paper(records, guesses, right, stated + 0.1, delta) > 0.05


def _paper(records: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the p-value of algorithm 1's guesses (Steinke, Nasr and Jagielski 2023, appendix D)."""
    chance = 1.0 / (1.0 + math.exp(-epsilon))
    value = float(binom.sf(right - 1, guesses, chance))
    if delta == 0.0:
        return min(value, 1.0)
    total, alpha = 0.0, 0.0
    for less in range(1, right + 1):
        total += float(binom.pmf(right - less, guesses, chance))
        alpha = max(alpha, total / less)
    return min(value + alpha * delta * 2 * records, 1.0)


def test_what_no_share_is() -> None:
    with pytest.raises(LocalProtocolError):
        epsilon_at_least([ScoreCounts(np.ones(1), np.ones(1))], 1.0, MISTAKE)
