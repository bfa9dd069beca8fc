"""Calibration: two numbers from summed histograms of scores, beside those of scikit-learn and of slow descent."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.calibration import _SigmoidCalibration
from sklearn.linear_model import LogisticRegression

from fedfair.aggregation.calibration import (
    DIGITS,
    Calibration,
    ClassFit,
    Uncalibrated,
    calibrated,
    figures_of,
    fitted,
    platt,
)
from fedfair.aggregation.header import Header
from fedfair.aggregation.score_histogram import bin_middles, rounded_scores, score_group, score_sums

MIDDLES = bin_middles(1)

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]


def summed(sites: list[tuple[Scores, Labels]], columns: int = 1) -> NDArray[Any]:
    """Return the block of one split over all sites, as it is opened."""
    layout = Header(score_group(columns))
    total = layout.zeros()
    for scores, labels in sites:
        header = layout.zeros()
        block = layout.read(header)["scores"][0]
        for name, values in score_sums(scores.reshape(len(labels), columns), labels, columns).items():
            block[name] = values
        total += header
    found: NDArray[Any] = layout.read(total)["scores"][0]
    return found


def drawn(records: int, slope: float, intercept: float, seed: int = 0) -> tuple[Scores, Labels]:
    """Return scores whose logit is off by so much, with what came true."""
    draws = np.random.default_rng(seed)
    truth = draws.normal(-1.0, 1.5, records)
    labels = (draws.random(records) < 1.0 / (1.0 + np.exp(-truth))).astype(np.int64)
    return 1.0 / (1.0 + np.exp(-(truth - intercept) / slope)), labels


def fit_of(scores: Scores, labels: Labels, fewest: int = 1) -> ClassFit:
    found = fitted({"validation": summed([(scores, labels)])}, fewest)
    assert isinstance(found, Calibration)
    (fit,) = found.fits
    return fit


def test_fits_worked_by_hand() -> None:
    # 2 of 8 are positive and all have one score: targets are 3/4 and 1/8, so their mean is (2 * 3/4 + 6/8) / 8.
    fit = fit_of(np.full(8, 0.9), np.array([1, 1, 0, 0, 0, 0, 0, 0]))
    share = (2 * 0.75 + 6 / 8) / 8
    assert fit.slope == 0.0
    assert fit.intercept == pytest.approx(math.log(share / (1.0 - share)), rel=10.0**-DIGITS)
    assert calibrated(np.array([0.9]), fit)[0] == pytest.approx(share, rel=1e-8)
    # Two bins and two numbers: each bin gets exactly its own share, of smoothed targets.
    positives, negatives = np.zeros(len(MIDDLES)), np.zeros(len(MIDDLES))
    low, high = 300, 1700
    positives[[low, high]], negatives[[low, high]] = (2.0, 6.0), (8.0, 4.0)
    slope, intercept = platt(positives, negatives, MIDDLES)
    up, down = 9.0 / 10.0, 1.0 / 14.0
    wanted = [(2 * up + 8 * down) / 10, (6 * up + 4 * down) / 10]
    found = calibrated(MIDDLES[[low, high]], ClassFit(1, slope, intercept))
    assert found == pytest.approx(wanted, rel=1e-7)


def test_the_fit_is_that_of_scikit_learn_on_the_records_in_their_bins() -> None:
    scores, labels = drawn(3000, 1.7, -0.8)
    fit = fit_of(scores, labels)
    middles = rounded_scores(scores, 1)
    logits = np.log(middles / (1.0 - middles))
    # The oracle stops where its gradient is small, so it is no nearer than about 1e-5.
    oracle = _SigmoidCalibration().fit(logits, labels)
    assert (fit.slope, fit.intercept) == pytest.approx((-oracle.a_, -oracle.b_), rel=2e-3)
    # The same targets as weights of records that count twice.
    high, low = (labels.sum() + 1) / (labels.sum() + 2), 1 / (len(labels) - labels.sum() + 2)
    weights = np.where(labels == 1, high, low)
    twice = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(
        np.concatenate([logits, logits])[:, None],
        np.concatenate([np.ones_like(labels), np.zeros_like(labels)]),
        np.concatenate([weights, 1.0 - weights]),
    )
    assert (fit.slope, fit.intercept) == pytest.approx((twice.coef_[0, 0], twice.intercept_[0]), rel=1e-5)


def test_the_fit_is_near_that_of_the_scores_and_of_a_slow_descent() -> None:
    scores, labels = drawn(3000, 1.7, -0.8)
    oracle = _SigmoidCalibration().fit(np.log(scores / (1.0 - scores)), labels)
    # A logit moves by at most half a bin's width over s (1 - s): below 0.03 where the records are.
    held = np.histogram(scores, np.concatenate([[0.0], 0.5 * (MIDDLES[:-1] + MIDDLES[1:]), [1.0]]))[0] > 0
    widths = np.gradient(MIDDLES)[held] / (MIDDLES * (1.0 - MIDDLES))[held]
    fit = fit_of(scores, labels)
    found = calibrated(scores, fit)
    expected = 1.0 / (1.0 + np.exp(oracle.a_ * np.log(scores / (1.0 - scores)) + oracle.b_))
    assert np.abs(found - expected).max() <= 0.25 * 0.5 * fit.slope * widths.max() + 1e-3
    scores, labels = drawn(200, 0.6, 0.4, seed=3)
    middles = rounded_scores(scores, 1)
    logits = np.log(middles / (1.0 - middles))
    won, lost = int(labels.sum()), int(len(labels) - labels.sum())
    targets = np.where(labels, (won + 1) / (won + 2), 1 / (lost + 2))
    slope = intercept = 0.0
    for _ in range(20_000):
        off = 1.0 / (1.0 + np.exp(-(slope * logits + intercept))) - targets
        slope -= 0.005 * float(off @ logits)
        intercept -= 0.005 * float(off.sum())
    fit = fit_of(scores, labels)
    assert (fit.slope, fit.intercept) == pytest.approx((slope, intercept), rel=1e-7)


def test_scores_that_separate_or_rank_wrongly_or_end_at_0_and_1_have_finite_fits() -> None:
    fit = fit_of(np.array([0.01] * 20 + [0.99] * 20), np.array([0] * 20 + [1] * 20))
    low, high = calibrated(rounded_scores(np.array([0.01, 0.99]), 1), fit)
    assert (low, high) == pytest.approx((1 / 22, 21 / 22), rel=1e-6)
    scores, labels = drawn(500, 1.0, 0.0)
    fit = fit_of(1.0 - scores, labels)
    assert fit.slope == 0.0
    assert calibrated(np.array([0.1, 0.9]), fit) == pytest.approx([labels.mean()] * 2, abs=1 / 200)
    found = calibrated(np.array([0.0, 1e-300, 1.0]), ClassFit(1, 1e6, 0.0))
    assert np.isfinite(found).all()
    assert (found > 0.0).all()


records = st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans(), st.integers(0, 3)), min_size=2, max_size=60)


@settings(max_examples=40, deadline=None)
@given(records)
def test_calibration_keeps_order_and_mean_site_by_site(given_records: list[tuple[float, bool, int]]) -> None:
    scores = np.array([score for score, _, _ in given_records])
    labels = np.array([label for _, label, _ in given_records], np.int64)
    sites = np.array([site for _, _, site in given_records])
    labels[0], labels[1] = 0, 1
    fit = fit_of(scores, labels)
    assert fit.slope >= 0.0
    assert math.isfinite(fit.intercept)
    # The order of people never turns round.
    assert (np.diff(calibrated(np.sort(scores), fit)) >= 0.0).all()
    # The mean on the fitted records is the share of them that is positive, of smoothed outcomes.
    won, lost = int(labels.sum()), int(len(labels) - labels.sum())
    share = (won * (won + 1) / (won + 2) + lost / (lost + 2)) / len(labels)
    found = calibrated(rounded_scores(scores, 1), fit).mean()
    # a and b are rounded: a logit moves by at most 5e-9 of |a x| + |b|.
    size = abs(fit.intercept) + fit.slope * 36.0
    assert found == pytest.approx(share, abs=1e-8 + 2.0 * 10.0**-DIGITS * size)
    # However records lie at sites, the sums are the same, and so are the two numbers.
    apart = summed([(scores[sites == site], labels[sites == site]) for site in range(4)])
    assert fitted({"validation": apart}, 1) == Calibration("validation", (fit,))


def test_validation_records_are_fitted_on_first_and_too_few_are_no_calibration() -> None:
    train, held = summed([drawn(200, 2.0, 1.0)]), summed([drawn(200, 1.0, 0.0, seed=1)])
    both = fitted({"train": train, "validation": held, "test": train}, 5)
    assert both == fitted({"validation": held}, 5)
    alone = fitted({"train": train, "test": held}, 5)
    assert isinstance(alone, Calibration)
    assert alone.split == "train"
    scores, labels = np.full(20, 0.5), np.array([1] * 4 + [0] * 16)
    assert fitted({"train": summed([(scores, labels)])}, 5) == Uncalibrated(
        "fewer than 5 train records are of class 1"
    )
    assert fitted({"train": summed([(scores, 1 - labels)])}, 5) == Uncalibrated(
        "fewer than 5 train records are not of class 1"
    )
    assert isinstance(fitted({"train": summed([(scores, labels)])}, 4), Calibration)


def test_each_of_several_classes_is_fitted_against_the_rest() -> None:
    draws = np.random.default_rng(2)
    logits = draws.normal(size=(900, 3)) * 2.0
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([draws.choice(3, p=row) for row in chances])
    tilted = np.exp(2.0 * logits) / np.exp(2.0 * logits).sum(axis=1, keepdims=True)
    block = summed([(tilted, labels)], 3)
    found = fitted({"train": block}, 5)
    assert isinstance(found, Calibration)
    assert [fit.wanted for fit in found.fits] == [0, 1, 2]
    for place, fit in enumerate(found.fits):
        column = block[place]
        assert (fit.slope, fit.intercept) == platt(column["positives"], column["negatives"], bin_middles(3))
        assert 0.0 < fit.slope < 1.0
    told = figures_of(found, block, 5)
    for figures in told.values():
        assert figures.error_before is not None
        assert figures.error_after is not None
        assert figures.error_after < figures.error_before


def test_figures_say_what_was_promised_and_what_came_true() -> None:
    scores, labels = drawn(2000, 1.0, -1.5)
    block = summed([(scores, labels)])
    fit = fit_of(scores, labels)
    told = figures_of(Calibration("validation", (fit,)), block, 5)[1]
    assert told.observed == labels.mean()
    assert told.mean_before == pytest.approx(rounded_scores(scores, 1).mean(), rel=1e-12)
    assert told.mean_after == pytest.approx(told.observed, abs=1e-3)
    assert told.error_before is not None
    assert told.error_after is not None
    assert told.error_before > 0.1
    assert told.error_after < 0.03
    assert figures_of(Calibration("validation", (fit,)), block, 2001) == {}
