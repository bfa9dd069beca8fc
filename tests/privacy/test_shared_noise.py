"""Noise that all sites share for single records: its worth against the theorem, its spread, its composition."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError, PrivacyError
from fedfair.privacy.accounting import ORDERS, epsilon, is_within
from fedfair.privacy.entries import LedgerEntry, Origin, parse_release
from fedfair.privacy.releases import GaussianRelease, SharedNoiseRelease, SkellamRelease, combined
from fedfair.privacy.shared_noise import SharedNoise, multiplier_epsilon, shared_noise
from fedfair.privacy.skellam import renyi_divergence
from fedfair.privacy.spending import spending

DELTA = 1e-5


@given(st.integers(1, 2000), st.sampled_from([1, 16, 1024, 4096]), st.integers(1, 1 << 28), st.integers(1, 50))
@example(1, 1, 10, 1)
@settings(max_examples=60)
def test_no_order_costs_more_than_the_gaussian_noise_that_stands_for_it(
    parts: int, scale: int, share_variance: int, shares: int
) -> None:
    noise = SharedNoise(parts, scale, share_variance, shares)
    least = float(share_variance * shares)
    sum_of_all = SkellamRelease("statistics", parts * scale, max(1.0, math.sqrt(parts)) * scale, least, 1)
    for order in ORDERS:
        stated = order / (2.0 * noise.multiplier**2)
        assert renyi_divergence(order, sum_of_all) <= stated * (1 + 1e-12)


@pytest.mark.parametrize("asked", [0.05, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("parts", [1, 7, 400])
def test_a_sum_costs_no_more_than_the_plan_says_and_hardly_less(asked: float, parts: int) -> None:
    noise = shared_noise(parts, asked, DELTA, 3)
    assert multiplier_epsilon(noise.multiplier, DELTA) <= asked
    assert multiplier_epsilon(0.99 * noise.multiplier, DELTA) > asked
    # The ledger of a site composes by another library, and charges the same.
    assert epsilon([noise.release], DELTA) <= asked
    assert is_within([noise.release], asked, DELTA)


def test_more_parts_or_fewer_honest_shares_take_more_noise_in_each_share() -> None:
    few, many = (shared_noise(parts, 1.0, DELTA, 4) for parts in (1, 100))
    assert many.deviation(4) == pytest.approx(10.0 * few.deviation(4), rel=1e-3)
    alone = shared_noise(1, 1.0, DELTA, 1)
    # Whoever colludes takes shares away: those that are left are worth as much by themselves.
    assert alone.share_variance / alone.scale**2 == pytest.approx(4 * few.share_variance / few.scale**2, rel=1e-6)


def test_noise_that_cannot_be_drawn_exactly_is_refused() -> None:
    with pytest.raises(PlanError, match="more noise than can be drawn exactly"):
        shared_noise(3000, 0.001, DELTA, 1)


def test_shares_add_up_to_the_stated_variance_and_exceed_their_reach_as_seldom_as_stated() -> None:
    noise, members, numbers = shared_noise(5, 1.0, DELTA, 3), 4, 200_000
    total = sum(noise.share(numbers, seed) for seed in range(members)) / noise.scale
    variance = noise.deviation(members) ** 2
    # The fourth central moment of Sk(m) is 3 m^2 + m: the sample's variance is off by sqrt((2 m^2 + m) / n).
    steps = members * noise.share_variance
    off = math.sqrt((2.0 * steps**2 + steps) / numbers) / noise.scale**2
    assert abs(float(np.mean(total**2)) - variance) < 5 * off
    assert abs(float(np.mean(total))) < 5 * math.sqrt(variance / numbers)
    chance = 0.01
    beyond = float(np.mean(total > noise.reach(members, chance)))
    assert 0 < beyond <= chance + 5 * math.sqrt(chance / numbers)


def test_releases_of_both_kinds_compose_by_their_renyi_divergences() -> None:
    gaussian = GaussianRelease("training", 2.0, 1.0, 4)
    shared = SharedNoiseRelease("statistics", 2.0, 4)
    together = epsilon([gaussian, shared], DELTA)
    # As many steps of the one kind as of both cost the same by divergences; the distribution says a little less.
    assert together == pytest.approx(epsilon([SharedNoiseRelease("statistics", 2.0, 8)], DELTA), rel=1e-9)
    assert epsilon([GaussianRelease("training", 2.0, 1.0, 8)], DELTA) < together
    assert combined([shared, shared]) == (SharedNoiseRelease("statistics", 2.0, 8),)


def test_a_ledger_line_is_read_back_and_stated_by_the_accountant_that_counted_it() -> None:
    release = SharedNoiseRelease("statistics", 4.25, 1)
    entry = LedgerEntry("2031-05-04T10:11:12+00:00", Origin("a", "wards", "sha256:0", None), release)
    assert parse_release(entry.kind, entry.parameters) == release
    found = spending([entry], None, DELTA, None)
    assert found.spent == epsilon([release], DELTA)
    assert "1 statistics of columns with noise multiplier 4.25, accountant RDP" in found.statement


@pytest.mark.parametrize("wrong", [{"noise_multiplier": 0.0}, {"steps": 0}, {"purpose": "gossip"}])
def test_a_release_that_promises_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(PrivacyError, match="promises nothing"):
        SharedNoiseRelease(**{"purpose": "statistics", "noise_multiplier": 1.0, "steps": 1} | wrong)  # type: ignore[arg-type]
