"""Epsilon against Opacus's PRV accountant, the closed form of the Gaussian, and what composition must satisfy."""

import math
import warnings
from dataclasses import replace

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import ROUGH_IS_ENOUGH, epsilon, is_within
from fedfair.privacy.releases import GaussianRelease, ReleaseLog, combined

DELTA = 1e-5


def training(noise: float, rate: float, steps: int) -> GaussianRelease:
    return GaussianRelease("training", noise, rate, steps)


def prv(history: list[tuple[float, float, int]]) -> float:
    """Return Opacus's estimate: its upper bound less the error that it was told to add."""
    from opacus.accountants import PRVAccountant  # which takes more than a second, and one worker needs it

    accountant, error = PRVAccountant(), 2e-3
    accountant.history = history
    with warnings.catch_warnings():
        # Its first guess of the range uses Renyi orders, of which it warns that the last is the best.
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(DELTA, eps_error=error)) - error


def exact_gaussian(noise: float, steps: int) -> float:
    """Return epsilon of a Gaussian mechanism that is used several times, by its closed form.

    delta(eps) = Phi(1/(2s) - eps s) - e^eps Phi(-1/(2s) - eps s) with s = noise / sqrt(steps). Source: Balle and
    Wang 2018, "Improving the Gaussian Mechanism for Differential Privacy", Theorem 8.
    """
    s = noise / math.sqrt(steps)

    def excess(value: float) -> float:
        far = math.exp(value + norm.logcdf(-1 / (2 * s) - value * s))
        return float(norm.cdf(1 / (2 * s) - value * s)) - far - DELTA

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, 200.0, xtol=1e-12))


@pytest.mark.parametrize(
    "history", [pytest.param([(2.0, 0.5, 30)], marks=pytest.mark.slow), [(1.0, 0.02, 500), (3.0, 0.5, 10)]]
)
def test_epsilon_agrees_with_opacus(history: list[tuple[float, float, int]]) -> None:
    # Opacus's estimate is exact to a fraction of its error of 2e-3; ours overstates by less than 1e-3.
    assert epsilon([training(*kind) for kind in history], DELTA) == pytest.approx(prv(history), abs=1e-3)


@pytest.mark.parametrize(
    ("noise", "steps"), [(0.5, 1), (1.0, 10), (4.0, 1), (4.0, 1000), (20.0, 10), (200.0, 1), (200.0, 1000)]
)
def test_without_sampling_epsilon_is_that_of_the_closed_form(noise: float, steps: int) -> None:
    exact, found = exact_gaussian(noise, steps), epsilon([training(noise, 1.0, steps)], DELTA)
    assert found >= exact - 1e-9
    if exact < 20.0:
        assert found <= exact + 1e-3


def steps_within(before: list[GaussianRelease], candidate: GaussianRelease, budget: float) -> int:
    """Return how many steps like the candidate's fit after the others, asked one number after another."""

    def fits(steps: int) -> bool:
        return is_within((*before, replace(candidate, steps=steps)), budget, DELTA)

    least, beyond = 0, 1
    while fits(beyond):
        least, beyond = beyond, 2 * beyond
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if fits(middle) else (least, middle)
    return least


def test_a_budget_is_kept_to_the_step_and_spent_leaves_none() -> None:
    budget = 0.2
    before = [GaussianRelease("evaluation", 20.0, 1.0, 2)]
    fit = steps_within(before, training(1.5, 0.02, 1), budget)

    def spent(steps: int) -> float:
        return epsilon([*before, training(1.5, 0.02, steps)], DELTA)

    assert fit == 0 or spent(fit) <= budget
    assert spent(fit + 1) > budget
    assert steps_within([training(1.0, 1.0, 1)], training(100.0, 0.001, 1), 0.5) == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(PrivacyError, match="delta is"):
        epsilon([training(1.0, 1.0, 1)], delta)
    with pytest.raises(PrivacyError, match="delta is"):
        is_within([training(1.0, 1.0, 1)], 1.0, delta)


@pytest.mark.parametrize(
    ("noise", "rate", "steps"),
    [
        (0.0, 0.1, 1), (-1.0, 0.1, 1), (math.inf, 0.1, 1), (math.nan, 0.1, 1), (1.0, 0.0, 1), (1.0, 1.1, 1),
        (1.0, 0.1, 0),
    ],
)  # fmt: skip
def test_a_release_that_promises_nothing_cannot_be_written_down(noise: float, rate: float, steps: int) -> None:
    with pytest.raises(PrivacyError, match="promises nothing"):
        training(noise, rate, steps)


def test_nothing_released_costs_nothing_and_order_and_purpose_change_nothing() -> None:
    assert epsilon([], DELTA) == 0.0
    parts = [training(2.0, 0.1, 20), GaussianRelease("evaluation", 30.0, 1.0, 3), training(2.0, 0.1, 30)]
    renamed = [GaussianRelease("standardisation", 30.0, 1.0, 3), training(2.0, 0.1, 50)]
    assert epsilon(parts, DELTA) == pytest.approx(epsilon(renamed, DELTA), abs=1e-9)
    assert combined(parts) == (training(2.0, 0.1, 50), parts[1])
    assert epsilon([training(0.001, 1.0, 10**9)], DELTA) > ROUGH_IS_ENOUGH
    log, first, second = ReleaseLog(), training(1.0, 0.1, 1), GaussianRelease("evaluation", 9.0, 1.0, 1)
    log.record(first)
    log.record(second)
    assert log.releases == [first, second]


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_noise_beyond_what_arithmetic_holds_is_worth_nothing_or_no_more_than_much(rate: float) -> None:
    assert epsilon([GaussianRelease("training", 1e-200, rate, 1)], 1e-5) == math.inf
    assert epsilon([GaussianRelease("training", 1e300, rate, 10)], 1e-5) == 0.0


@pytest.mark.parametrize("delta", [1e-12, 1e-16, 1e-100])
def test_a_delta_below_what_a_distribution_holds_is_told_by_renyi_divergences(delta: float) -> None:
    # The Gaussian mechanism with noise 1 has D_alpha = alpha / 2: epsilon is at most sqrt(2 log(1/delta)) + 1/2,
    # and by whole orders hardly more.
    found = epsilon([GaussianRelease("evaluation", 1.0, 1.0, 1)], delta)
    assert brentq(_log_excess, 1e-3, 100.0, (delta,)) <= found <= math.sqrt(2 * math.log(1 / delta)) + 0.6


def _log_excess(eps: float, delta: float) -> float:
    """Return log(delta(eps) / delta) of one sum with noise 1; as in `exact_gaussian`, without underflow."""
    first, second = norm.logcdf(0.5 - eps), eps + norm.logcdf(-0.5 - eps)
    return float(first + math.log1p(-math.exp(second - first))) - math.log(delta)
