"""Skellam noise: its price against the exact divergence and the Gaussian limit, its tail, and the sampler."""

import functools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedfair.errors import PrivacyError
from fedfair.privacy.releases import SkellamRelease
from fedfair.privacy.skellam import (
    MAX_SHARE_VARIANCE,
    ORDERS,
    noise_share,
    renyi_divergence,
    skellam_epsilon,
    tail,
)

DELTA = 1e-5
FAR = 5.6
"""A normal number is farther out than this many deviations with probability 2e-8."""


def release(norm: float, mu: float, count: int = 1, dimension: int = 1) -> SkellamRelease:
    return SkellamRelease("training", math.sqrt(dimension) * norm, norm, mu, count)


@functools.cache
def log_weight(number: int, mu: float) -> float:
    """Return the log of P(Sk(mu) = number) = exp(-mu) I_number(mu), in 30 digits: no code of the product."""
    with mpmath.workdps(30):
        return float(mpmath.log(mpmath.besseli(abs(number), mu)) - mu)


def exact_divergence(order: int, shift: int, mu: float) -> float:
    """Return the Renyi divergence of Sk(mu) moved by `shift` from Sk(mu).

    The terms peak near order * shift and fall off like a Skellam number's; what is left out is below 1e-30 of it.
    """
    reach = order * shift + int(15 * math.sqrt(mu)) + 40
    terms = [
        order * log_weight(number - shift, mu) - (order - 1) * log_weight(number, mu)
        for number in range(-reach, reach + 1)
    ]
    return float(np.logaddexp.reduce(terms)) / (order - 1)


@pytest.mark.parametrize("mu", [2.0, 10.0, 60.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_no_exact_divergence_is_above_the_bound_and_no_bound_below_the_gaussian(mu: float, shift: int) -> None:
    for order in (2, 3, 8, 24):
        exact, bound = exact_divergence(order, shift, mu), renyi_divergence(order, release(float(shift), mu))
        assert exact <= bound
        gaussian = order * shift**2 / (2 * mu)
        assert bound >= gaussian


@pytest.mark.parametrize("noise_multiplier", [0.5, 2.0, 6.0])
def test_epsilon_tends_to_the_gaussian_mechanisms_from_above(noise_multiplier: float) -> None:
    gaussian = RdpAccountant(ORDERS)
    gaussian.compose(GaussianDpEvent(noise_multiplier), 100)
    limit = gaussian.get_epsilon(DELTA)
    before = math.inf
    for norm in (3.0, 30.0, 3000.0):
        found = skellam_epsilon([release(norm, (noise_multiplier * norm) ** 2, 100)], DELTA)
        assert limit <= found < before
        before = found
    # At D2 = 3000 the second term is below (alpha / mu + 3 / (D2 mu)) of the first, and mu above 2e6.
    assert before == pytest.approx(limit, rel=1e-4)


@given(st.floats(0.5, 50.0), st.integers(1, 300), st.integers(1, 300))
def test_epsilon_grows_with_the_rounds_and_falls_with_the_noise(noise: float, few: int, more: int) -> None:
    mu = (noise * 100.0) ** 2
    alone = skellam_epsilon([release(100.0, mu, few)], DELTA)
    together = skellam_epsilon([release(100.0, mu, few), release(100.0, mu, more)], DELTA)
    assert together >= alone >= skellam_epsilon([release(100.0, 2 * mu, few)], DELTA)
    assert together == pytest.approx(skellam_epsilon([release(100.0, mu, few + more)], DELTA), rel=1e-12)


def test_bounds_by_hand_and_what_eight_costs() -> None:
    # alpha 2, D1 = D2 = 1, mu 10: 2/20 + min((3 + 6)/400, 3/20) = 0.1225. At mu 1/10 it is 10 + min(225, 15) = 25.
    assert renyi_divergence(2, release(1.0, 10.0)) == pytest.approx(0.1225, rel=1e-14)
    assert renyi_divergence(2, release(1.0, 0.1)) == pytest.approx(25.0, rel=1e-14)
    # The exact (PLD) accounting of the Gaussian mechanism wants a multiplier of 6.0 for epsilon 8; the composition
    # by Renyi divergences, all that is proved for the Skellam mechanism, wants 6.4.
    exact = pld.from_gaussian_mechanism(6.0 / math.sqrt(100)).get_epsilon_for_delta(DELTA)
    assert exact == pytest.approx(8.0, abs=0.01)
    by_multiplier = {z: skellam_epsilon([release(5000.0, (z * 5000.0) ** 2, 100)], DELTA) for z in (6.0, 6.4)}
    assert by_multiplier[6.0] == pytest.approx(8.64, abs=0.01)
    assert by_multiplier[6.4] == pytest.approx(8.0, abs=0.05)
    assert skellam_epsilon([], DELTA) == 0.0
    for delta in (0.0, 1.0, -1e-5):
        with pytest.raises(PrivacyError, match="outside"):
            skellam_epsilon([release(1.0, 1.0)], delta)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [((1.0, 0.0, 1.0), 1), ((1.0, 1.0, math.inf), 1), ((1.0, 2.0, 1.0), 1), ((1.0, 1.0, 1.0), 0)],
)
def test_a_release_that_promises_nothing_is_refused(sizes: tuple[float, float, float], count: int) -> None:
    with pytest.raises(PrivacyError, match="promises nothing"):
        SkellamRelease("training", *sizes, count)


@pytest.mark.parametrize("variance", [1, 7, 500, 20_000])
@pytest.mark.parametrize("probability", [0.1, 1e-6, 1e-12])
def test_the_tail_is_no_likelier_than_said_and_not_far_too_wide(variance: int, probability: float) -> None:
    size = tail(variance, probability)
    noise = stats.skellam(variance / 2, variance / 2)
    assert 2 * noise.sf(size - 1) <= probability
    # Chernoff loses a factor of about the deviations it reaches, which is less than half of the distance.
    assert 2 * noise.sf(size / 2) > probability


def test_shares_have_the_skellam_distribution_and_repeat_with_their_seed() -> None:
    count, variance = 200_000, 6
    drawn = noise_share(count, variance, 20)
    numbers = np.arange(-9, 10)
    expected = stats.skellam.pmf(numbers, variance / 2, variance / 2)
    seen = np.array([(drawn == number).sum() for number in numbers])
    rest, expected_rest = count - seen.sum(), count * (1 - expected.sum())
    statistic = ((seen - count * expected) ** 2 / (count * expected)).sum() + (
        rest - expected_rest
    ) ** 2 / expected_rest
    # Chi-square with 19 degrees of freedom: one honest sampler in 10^7 is farther out.
    assert statistic < stats.chi2.isf(1e-7, 19)
    count = 100_000
    drawn = noise_share(count, MAX_SHARE_VARIANCE, 21) / math.sqrt(MAX_SHARE_VARIANCE)
    # Mean and variance of Sk(mu) / sqrt(mu): 0 and 1, with deviations sqrt(1/n) and sqrt((2 + 1/mu) / n).
    assert abs(drawn.mean()) < FAR * math.sqrt(1 / count)
    assert abs(drawn.var() - 1) < FAR * math.sqrt(2.001 / count)
    # Dvoretzky-Kiefer-Wolfowitz at 1e-7; the distance to the normal distribution itself is below 1e-4 / 2.
    assert stats.kstest(drawn, "norm").statistic < math.sqrt(math.log(2e7) / (2 * count)) + 1e-4
    np.testing.assert_array_equal(noise_share(50, 9, 1), noise_share(50, 9, 1))
    assert (noise_share(50, 9, 1) != noise_share(50, 9, 2)).any()
    total = sum(noise_share(count, 3, seed) for seed in range(30, 34))
    # Fourth cumulant of Sk(v) is v, so that the variance of a sample variance is (2 v^2 + v) / n.
    assert abs(np.var(total) - 12) < FAR * math.sqrt((2 * 12**2 + 12) / count)
