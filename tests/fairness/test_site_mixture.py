"""Bounds for sites in declared proportions, against populations of which everything is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import binom

from fedfair.errors import DataError
from fedfair.fairness.cvar import cvar
from fedfair.fairness.population_bounds import LossHistogram, join_small_bins, population_bounds
from fedfair.fairness.site_mixture import largest_ratio

RHO = (0.05, 0.1, 0.3, 0.5, 1.0)


def weighted_cvar(losses: NDArray[np.float64], masses: NDArray[np.float64], size: float) -> float:
    """Return max sum d_i m_i l_i over 0 <= d_i <= 1/rho with sum d_i m_i = 1, by a linear program."""
    solution = linprog(-masses * losses, A_eq=masses[None, :], b_eq=[1.0], bounds=(0.0, 1.0 / size))
    assert solution.status == 0
    return float(-solution.fun)


parts = st.lists(st.lists(st.floats(0.0, 4.0), min_size=1, max_size=8), min_size=1, max_size=4)


@settings(deadline=None, max_examples=50)
@given(parts, st.data(), st.floats(0.02, 1.0))
def test_smaller_groups_bound_weighted_ones(sites: list[list[float]], data: st.DataObject, size: float) -> None:
    # The records are the whole population here, so that nothing is left to chance.
    raw = data.draw(st.lists(st.floats(0.1, 9.0), min_size=len(sites), max_size=len(sites)))
    weights = {str(place): weight for place, weight in enumerate(raw)}
    records = {str(place): len(losses) for place, losses in enumerate(sites)}
    losses = np.concatenate([np.array(each) for each in sites])
    masses = np.concatenate(
        [np.full(len(each), weight / sum(raw) / len(each)) for each, weight in zip(sites, raw, strict=True)]
    )
    ratio = largest_ratio(weights, records, len(losses))
    assert ratio >= 1.0
    # HiGHS solves to 1e-7 on losses up to 4, divided by rho >= 0.02.
    assert weighted_cvar(losses, masses, size) <= cvar(losses, size / ratio) + 2e-5


BINS, RANGE, REDRAWS, DELTA = 64, 4.0, 120, 0.2
PEOPLE = {
    "large": np.random.default_rng(1).exponential(0.1, 20_000),
    "small": 0.5 + np.random.default_rng(2).exponential(0.4, 20_000),
}
DRAWN = {"large": 900, "small": 100}


def population_risk(weights: dict[str, float], size: float) -> float:
    """Return the worst risk of the people of both sites, mixed by weights that sum to 1, loss by loss."""
    losses = np.concatenate([np.minimum(PEOPLE[site], RANGE) for site in weights])
    masses = np.concatenate([np.full(20_000, weight / 20_000) for weight in weights.values()])
    order = np.argsort(-losses)
    left = np.clip(size - np.concatenate([[0.0], masses[order].cumsum()[:-1]]), 0.0, masses[order])
    return float((left * losses[order]).sum() / size)


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.1, 0.3, 0.02])
def test_bounds_for_declared_shares_hold_in_redraws_of_fixed_numbers_of_records(share: float) -> None:
    weights = {"large": 1.0 - share, "small": share}
    ratio = largest_ratio(weights, DRAWN, 1000)
    truth = [population_risk(weights, size) for size in RHO]
    generator, edges, failed = np.random.default_rng(3), np.linspace(0.0, RANGE, BINS + 1), 0
    for _ in range(REDRAWS):
        losses = np.concatenate([generator.choice(PEOPLE[site], count) for site, count in DRAWN.items()])
        place = np.searchsorted(edges, losses, side="right") - 1
        counts = np.bincount(place, minlength=BINS + 1)
        sums = np.bincount(place, weights=losses, minlength=BINS + 1)
        held = LossHistogram.planned(BINS, RANGE, tuple(counts.tolist()), tuple(sums.tolist()))
        bounds = population_bounds(join_small_bins(held, 10), [size / ratio for size in RHO], delta=DELTA)
        failed += any(bound < true for bound, true in zip(bounds, truth, strict=True))
    assert failed <= binom.isf(1e-6, REDRAWS, DELTA)


def test_ratios_by_hand_and_where_nobody_knows_the_records() -> None:
    # a has 3/4 of the records and 1/2 of the people, b the rest: people of b count twice.
    assert largest_ratio({"a": 5.0, "b": 5.0}, {"a": 75, "b": 25}, 100) == pytest.approx(2.0, rel=1e-9)
    assert largest_ratio({"a": 3.0, "b": 1.0}, {"a": 75, "b": 25}, 100) == pytest.approx(1.0, rel=1e-9)
    # A site without a weight has no people in the population, so those of the other count more.
    assert largest_ratio({"b": 1.0}, {"a": 75, "b": 25}, 100) == pytest.approx(4.0, rel=1e-9)
    with pytest.raises(DataError, match="the weights name c, of whose evaluated records no number is known"):
        largest_ratio({"a": 1.0, "c": 1.0}, {"a": 75}, 100)
    # So the test above can fail: with equal shares, the worst half is the small site, a tenth of the records.
    held = np.concatenate([np.minimum(PEOPLE["large"], RANGE)[:9000], np.minimum(PEOPLE["small"], RANGE)[:1000]])
    assert population_risk({"large": 0.5, "small": 0.5}, 0.5) > 2 * cvar(held, 0.5)
