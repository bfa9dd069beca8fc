"""Intervals of slices: Student's t without scipy, and how often all of them hold the truth."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import t

from fedfair.fairness.slice_interval import slice_interval, t_quantile

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@pytest.mark.parametrize("free", [1, 2, 4, 30, 1000, 100_000])
@pytest.mark.parametrize("tail", [0.5, 0.025, 1e-3, 1e-6])
def test_a_quantile_is_that_of_scipy(tail: float, free: int) -> None:
    assert t_quantile(tail, free) == pytest.approx(float(t.isf(tail, free)), rel=1e-9, abs=1e-9)


POPULATIONS: dict[str, tuple[Draw, float]] = {
    "losses": (lambda draws, shape: np.log1p(np.exp(-draws.normal(1.0, 1.5, shape))), 1.0),
    "an excess": (lambda draws, shape: draws.exponential(0.05, shape), 0.05),
    "an excess of few": (lambda draws, shape: draws.gamma(0.3, 0.2, shape), 0.06),
    "an error of one in thirty": (lambda draws, shape: np.where(draws.random(shape) < 1 / 30, 3.0, 0.05), 0.15),
}


@pytest.mark.parametrize("people", [5, 30, 100])
@pytest.mark.parametrize("name", POPULATIONS)
def test_all_intervals_together_hold_their_means_nine_times_in_ten_or_more(name: str, people: int) -> None:
    """60 slices, of which each sixth lies twice as high, drawn 120 times."""
    draw, _ = POPULATIONS[name]
    source, slices, runs = np.random.default_rng(people), 60, 120
    factors = np.where(np.arange(slices) % 6 == 0, 2.0, 1.0)
    truth = float(draw(source, (200_000, 1)).mean()) * factors
    everybody = draw(source, (20_000, 1)) * factors[source.integers(0, slices, (20_000, 1))]
    variance, missed, high = float(everybody.var()), 0, 0
    for _ in range(runs):
        values = draw(source, (slices, people)) * factors[:, None]
        ends = np.array([slice_interval(people, row.sum(), (row * row).sum(), variance, slices) for row in values])
        missed += bool(((ends[:, 0] > truth) | (ends[:, 1] < truth)).any())
        high += bool((ends[:, 0] > truth).any())
    # What is named is named by its lower end.
    assert high <= 0.05 * runs
    assert missed <= 0.1 * runs


def test_a_slice_without_an_error_yet_is_not_certain_and_more_slices_widen_an_interval() -> None:
    low, high = slice_interval(20, 0.0, 0.0, 0.09, 10)
    assert low < 0.0
    assert high > 0.2
    one, many = (slice_interval(20, 8.0, 6.0, 0.09, slices) for slices in (1, 100))
    assert many[0] < one[0] < 0.4 < one[1] < many[1]
    assert slice_interval(1, 8.0, 6.0, 0.09, 1) == (-np.inf, np.inf)
