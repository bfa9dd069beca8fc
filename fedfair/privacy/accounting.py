"""Composes releases: epsilon at a delta, by the distribution of the privacy loss.

Composition is numerical and exact up to a discretisation that only ever overstates epsilon (connect-the-dots,
Doroshenko et al. 2022, in Google's dp-accounting). The unit is one record that is
zeroed out: with Poisson samples its two privacy losses are those of adding and of removing it. Opacus's PRV
accountant agrees to 1e-3 (tested) and is not used here: it divides by zero at a sampling rate of 1, which every
evaluation has, and takes forty seconds for 100 000 steps where this takes one. Central-limit shortcuts (GDP)
understate epsilon and are nowhere. No torch, so that an aggregator may ask too. dp-accounting takes a second to
import and is imported where it is used: most runs never need it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, TypeAlias

from fedfair.errors import PrivacyError
from fedfair.privacy.releases import RecordRelease, SharedNoiseRelease

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


COARSE, FINE = 1e-3, 1e-4
"""Widths of the discretisation, in units of epsilon."""

ROUGH_IS_ENOUGH = 100.0
"""From here on epsilon promises nothing. It is then computed by Renyi divergences, a bound that is quick and never
low: the distribution would take memory in proportion to epsilon."""

COARSE_IS_ENOUGH = 20.0
"""From here on epsilon promises next to nothing, and its third decimal is not worth the seconds."""

ORDERS = (*range(2, 64), *(1 << power for power in range(6, 13)))
"""Renyi orders of the quick bound; whole ones, for which the series is finite."""

RENYI_ALONE = 0.0
"""Stands for the sampling rate of a release of which only the Renyi divergences are known."""

Counted: TypeAlias = tuple[tuple[tuple[float, float], int], ...]
"""How many steps there were by noise multiplier and sampling rate; hashable, as one plan is priced many times."""

MIN_NOISE, MAX_NOISE = 1e-9, 1e9
"""Noise multipliers whose squares the accountants can use: less is worth nothing, and more counts as this."""


def accountant(releases: Iterable[RecordRelease] = ()) -> str:
    """Return what computes epsilon of releases, and its version where it is installed."""
    kind = "RDP" if any(isinstance(release, SharedNoiseRelease) for release in releases) else "PLD"
    try:
        return f"{kind} (dp-accounting {version('dp-accounting')})"
    except PackageNotFoundError:
        return f"{kind} (dp-accounting)"


def epsilon(releases: Iterable[RecordRelease], delta: float) -> float:
    """Return an upper bound of the smallest epsilon for which the releases together are (epsilon, delta)-DP.

    Args:
        releases: everything that was let out about the same records; nothing costs 0.
        delta: in (0, 1).

    Returns:
        epsilon, at least 0, at most 1e-3 above the truth for values below `COARSE_IS_ENOUGH` and up to 100 000
        steps; infinity where no epsilon would do at this delta. Where a release is known by its Renyi divergences
        alone, all are composed by these, which overstates it by more.

    Raises:
        PrivacyError: delta is outside (0, 1).
    """
    _check_delta(delta)
    counted = _counted(releases)
    if not counted:
        return 0.0
    rough = _rough(counted, delta)
    if rough >= ROUGH_IS_ENOUGH or any(rate == RENYI_ALONE for (_, rate), _ in counted):
        return rough
    # All are upper bounds; a distribution holds no delta as small as some that Renyi divergences do.
    coarse = min(rough, _composed(counted, delta, COARSE))
    return coarse if coarse >= COARSE_IS_ENOUGH else min(coarse, _composed(counted, delta, FINE))


def is_within(releases: Sequence[RecordRelease], budget_epsilon: float, delta: float) -> bool:
    """Return whether the releases together cost at most `budget_epsilon`; quicker than to compute what they cost.

    Raises:
        PrivacyError: delta is outside (0, 1).
    """
    _check_delta(delta)
    counted = _counted(releases)
    # The quick bound settles all but a few questions.
    return not counted or _rough(counted, delta) <= budget_epsilon or epsilon(releases, delta) <= budget_epsilon


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise PrivacyError(f"delta is {delta}, outside (0, 1)", "use 1e-5, or less than one over the records")


def _counted(releases: Iterable[RecordRelease]) -> Counted:
    counted: dict[tuple[float, float], int] = {}
    for release in releases:
        rate = RENYI_ALONE if isinstance(release, SharedNoiseRelease) else release.sampling_rate
        kind = (min(release.noise_multiplier, MAX_NOISE), rate)
        counted[kind] = counted.get(kind, 0) + release.steps
    return tuple(counted.items())


@functools.lru_cache(256)
def _rough(counted: Counted, delta: float) -> float:
    if min(noise_multiplier for (noise_multiplier, _), _ in counted) < MIN_NOISE:
        return math.inf
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(ORDERS)
    for (noise_multiplier, sampling_rate), steps in counted:
        event = GaussianDpEvent(noise_multiplier)
        accountant.compose(PoissonSampledDpEvent(sampling_rate, event) if sampling_rate else event, steps)
    return float(accountant.get_epsilon(delta))


@functools.lru_cache(256)
def _composed(counted: Counted, delta: float, interval: float) -> float:
    parts = [_one_step(*kind, interval).self_compose(steps) for kind, steps in counted]
    total = functools.reduce(lambda left, right: left.compose(right), parts)
    return max(0.0, float(total.get_epsilon_for_delta(delta)))


@functools.lru_cache(32)
def _one_step(noise_multiplier: float, sampling_rate: float, interval: float) -> PrivacyLossDistribution:
    """Return the privacy loss of one noised sum, with a record and with it zeroed out, both ways."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=sampling_rate, value_discretization_interval=interval
    )
