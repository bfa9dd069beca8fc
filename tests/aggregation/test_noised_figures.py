"""Figures of sums under noise: no bias in means, a known sign of it in tails, and intervals that hold."""

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfair.aggregation.cvar_bounds import SplitSummary
from fedfair.aggregation.dp_histogram import (
    evaluation_grid,
    evaluation_units,
    likely_histogram,
    middles,
    noised_split,
    split_units,
)
from fedfair.aggregation.evaluation_sums import confusion_matrix
from fedfair.aggregation.loss_histogram import HistogramSpec
from fedfair.aggregation.noised_figures import NoisedSplit
from fedfair.fairness.cvar import cvar

SPEC, CLASSES, GREATEST = HistogramSpec(32, 8 * math.log(2.0)), 2, 20.0
RECORDS, SITES, DRAWS = 600, 3, 1000
SIZES = (0.1, 0.3, 1.0)
SIGMA = 5.0
FEW = 150
"""Draws of what takes longer than a mean."""


@cache
def losses() -> NDArray[np.float64]:
    """Return losses like those of a trained model: most near 0, a long tail, one beyond the range."""
    drawn = np.random.Generator(np.random.PCG64(1)).gamma(0.6, 0.35, RECORDS)
    drawn[0] = 2.0 * SPEC.loss_range
    return np.minimum(drawn, SPEC.loss_range)


def smoothed() -> NDArray[np.float64]:
    return np.linspace(0.0, 2.0, RECORDS)


@cache
def unnoised() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the units of an evaluation, and the sums in them over all records."""
    values, labels = losses(), np.arange(RECORDS) % 2
    predictions = np.where(values > math.log(2.0), 1 - labels, labels)
    matrix = confusion_matrix(labels, predictions, CLASSES)
    exact = split_units(values, smoothed(), None, matrix, GREATEST, SPEC)
    return evaluation_units(SPEC, CLASSES, GREATEST), exact


def released(sigma: float, seed: int) -> NoisedSplit:
    """Return what three sites release together, all records at the first: noise does not ask where they are."""
    units, exact = unnoised()
    deviation = evaluation_grid(sigma).deviation * math.sqrt(SITES)
    noise = np.random.Generator(np.random.PCG64([seed, 7])).normal(0.0, deviation, len(exact))
    found = noised_split(RECORDS, exact + noise, units, SPEC, CLASSES)
    return NoisedSplit(found, np.array(found["confusion"]), SPEC, deviation)


@cache
def summaries(sigma: float) -> list[SplitSummary]:
    return [released(sigma, seed).summary(SIZES) for seed in range(FEW)]


def right() -> float:
    return float(np.mean(losses() <= math.log(2.0)))


@pytest.mark.parametrize("sigma", [SIGMA, 0.2])
def test_intervals_hold_what_they_say_at_least_as_often_as_they_say(sigma: float) -> None:
    true = {size: float(cvar(losses(), size)) for size in SIZES}
    held = {"mean": 0, "accuracy": 0, "worst": 0}
    for each in summaries(sigma):
        assert each.mean_interval is not None
        assert each.accuracy_interval is not None
        held["mean"] += each.mean_interval.lower <= losses().mean() <= each.mean_interval.upper
        held["accuracy"] += each.accuracy_interval.lower <= right() <= each.accuracy_interval.upper
        bounds = {size: risk.bound for size, risk in each.by_group_size.items()}
        held["worst"] += all(bounds[size].lower <= true[size] <= bounds[size].upper for size in SIZES)
        assert all(risk.bound.lower <= risk.worst <= risk.bound.upper for risk in each.by_group_size.values())
    # 95 % and four deviations of such a count.
    for name, count in held.items():
        assert count >= 0.95 * FEW - 4.0 * math.sqrt(FEW * 0.95 * 0.05), name


def test_figures_are_unbiased_and_risks_high_only_under_much_noise() -> None:
    found = [released(SIGMA, seed) for seed in range(DRAWS)]
    unit = evaluation_grid(SIGMA).deviation * math.sqrt(SITES) / RECORDS
    told = {
        # The figure, the truth, and the deviation of one draw, as the module derives it.
        "mean": ([each.mean for each in found], losses().mean(), unit * SPEC.loss_range),
        "smoothed": ([each.smoothed for each in found], smoothed().mean(), unit * GREATEST),
        "accuracy": ([each.accuracy for each in found], right(), unit * math.sqrt(CLASSES - 1)),
    }
    for name, (values, truth, deviation) in told.items():
        # Four deviations of a mean of 1000 draws: by chance one in 16,000.
        assert np.mean(values) == pytest.approx(truth, abs=4.0 * deviation / math.sqrt(DRAWS)), name
        # A variance of 1000 draws is off by its root of 2 / 1000.
        assert np.var(values) == pytest.approx(deviation**2, rel=4.0 * math.sqrt(2.0 / DRAWS)), name
    true = {size: float(cvar(losses(), size)) for size in SIZES}
    biases = {
        sigma: {
            size: np.mean([s.by_group_size[size].worst for s in summaries(sigma)]) - true[size] for size in SIZES
        }
        for sigma in (SIGMA, 0.2)
    }
    width = SPEC.loss_range / SPEC.bins
    for size in (0.1, 0.3):
        assert biases[SIGMA][size] > 0.0
        assert abs(biases[0.2][size]) < min(biases[SIGMA][size], width)
    nearly = [released(1e-6, seed).summary(SIZES) for seed in range(3)]
    for each in nearly:
        for size in SIZES:
            assert abs(each.by_group_size[size].worst - true[size]) <= width


def test_intervals_and_means_of_noised_histograms() -> None:
    means = []
    for seed in range(30):
        split = released(SIGMA, seed)
        means.append(float((likely_histogram(split.block, SPEC) * middles(SPEC)).sum()) / RECORDS)
    # This is why no mean is read from it.
    assert np.mean(means) > losses().mean() + 0.1
    found = released(1e-9, 0)
    objective = found.objective(0.3, 0.1)
    exact = 0.9 * float(cvar(losses(), 0.3)) + 0.1 * losses().mean()
    assert objective.lower <= exact + 1e-6
    assert objective.upper >= exact - 1e-6
    assert objective.upper - objective.lower <= SPEC.loss_range / SPEC.bins / 0.3
    assert found.quantile(0.7) == pytest.approx(
        np.sort(losses())[RECORDS * 7 // 10], abs=SPEC.loss_range / SPEC.bins
    )
