"""Decision curves from histograms of scores: the truth lies within, and on the borders of bins it is met."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.aggregation.calibration import Calibration, ClassFit, Uncalibrated, calibrated
from fedfair.aggregation.decision_curve import (
    THRESHOLDS,
    DecisionCurve,
    decision_curve,
    decision_curves,
    odds,
)
from fedfair.aggregation.header import Header
from fedfair.aggregation.ranking import class_rankings
from fedfair.aggregation.score_histogram import score_bins, score_edges, score_group, score_sums

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]

EDGES = score_edges(score_bins(1))


def block_of(scores: Scores, labels: Labels) -> NDArray[Any]:
    """Return the block of one split, as the aggregator reads it."""
    layout = Header(score_group(1))
    header = layout.zeros()
    block = layout.read(header)["scores"][0]
    for name, values in score_sums(scores[:, None], labels, 1).items():
        block[name] = values
    return layout.read(header)["scores"][0]


def curve_of(
    scores: Scores, labels: Labels, fewest: int = 1, fit: ClassFit | None = None, groups: tuple[int, ...] = ()
) -> DecisionCurve:
    found = decision_curve(block_of(scores, labels)[0], fit, groups, fewest)
    assert found is not None
    return found


def benefit(scores: Scores, labels: Labels, threshold: float) -> float:
    """Return the net benefit by its definition, record by record."""
    total = 0.0
    for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
        if score >= threshold:
            total += 1.0 if label else -threshold / (1.0 - threshold)
    return total / len(scores)


def drawn(records: int, seed: int) -> tuple[Scores, Labels]:
    draws = np.random.default_rng(seed)
    scores = draws.beta(0.7, 1.5, records)
    return scores, (draws.random(records) < scores**1.3).astype(np.int64)


def test_a_curve_worked_by_hand() -> None:
    # At 1/2 those of .9 and .5 are acted on: 2 of class 1 and 1 other, of 5; an alarm costs as much as one found.
    scores, labels = np.array([0.9, 0.5, 0.5, 0.2, 0.1]), np.array([1, 1, 0, 0, 1])
    points = {point.threshold: point for point in curve_of(scores, labels).points}
    assert (points[0.5].model.lower, points[0.5].model.upper) == (pytest.approx(0.2), pytest.approx(0.2))
    assert points[0.5].everybody == pytest.approx((3 - 2) / 5)
    # At 1/4 an alarm costs a third of one found; everybody has 3 and 2.
    assert points[0.25].model.midpoint == pytest.approx((2 - 1 / 3) / 5)
    assert points[0.25].everybody == pytest.approx((3 - 2 / 3) / 5)
    assert points[0.95].model.midpoint == 0.0
    assert odds(0.2) == pytest.approx(0.25)


def test_where_scores_are_borders_of_bins_the_curve_is_the_direct_one() -> None:
    draws = np.random.default_rng(5)
    half = EDGES.tolist().index(0.5)
    scores = EDGES[[half - 1, half, *draws.integers(0, len(EDGES), 398)]]
    labels = draws.integers(0, 2, 400)
    for point in curve_of(scores, labels).points:
        # Every step is one bin, and all its records have one score.
        direct = benefit(scores, labels, point.threshold)
        if point.threshold in EDGES:
            assert (point.model.lower, point.model.upper) == (pytest.approx(direct), pytest.approx(direct))
        assert point.model.lower - 1e-12 <= direct <= point.model.upper + 1e-12


@given(st.integers(0, 2**32 - 1), st.integers(20, 400), st.integers(1, 9), st.booleans())
def test_the_truth_is_within(seed: int, records: int, fewest: int, fitted: bool) -> None:
    scores, labels = drawn(records, seed)
    fit = ClassFit(1, 0.6, -0.4) if fitted else None
    found = decision_curve(block_of(scores, labels)[0], fit, (), fewest)
    if min(labels.sum(), records - labels.sum()) < fewest:
        assert found is None
        return
    assert found is not None
    assert found.calibrated == fitted
    assert [point.threshold for point in found.points] == [*THRESHOLDS]
    chances = scores if fit is None else calibrated(scores, fit)
    for point in found.points:
        direct = benefit(chances, labels, point.threshold)
        assert point.model.lower - 1e-12 <= direct <= point.model.upper + 1e-12
        # No more is open than the records of one step, which are fewer than two of the fewest, or one bin's.
        busiest = np.unique(np.searchsorted(EDGES[1:-1], scores, side="right"), return_counts=True)[1].max()
        most = (2 * fewest + busiest) * (1.0 + odds(point.threshold)) / records
        assert point.model.upper - point.model.lower <= most + 1e-12
        assert point.everybody == pytest.approx(benefit(np.ones(records), labels, point.threshold))


def test_a_model_with_one_answer_acts_on_everybody_or_on_nobody() -> None:
    labels = np.array([1] * 30 + [0] * 70)
    for score, fit in ((0.3, None), (0.3, ClassFit(1, 0.0, 0.0))):
        answer = 0.3 if fit is None else 0.5
        for point in curve_of(np.full(100, score), labels, 5, fit).points:
            # No bin begins at .3 itself, so at .3 both are possible.
            expected = point.everybody if point.threshold <= answer else 0.0
            if fit is not None or point.threshold != answer:
                assert point.model.lower == point.model.upper == pytest.approx(expected)


def test_no_difference_of_two_figures_tells_of_fewer_people_than_may_be_told_of() -> None:
    fewest, met = 7, 0
    for seed in range(20):
        scores, labels = drawn(150, seed)
        block = block_of(scores, labels)
        (ranking,) = class_rankings(block, fewest)
        groups = [group.records for group in ranking.groups]
        found = decision_curve(block[0], None, groups, fewest)
        assert found is not None
        # The result has these anyway: so many records are in groups of calibration, and below one half.
        elsewhere = {0, int((scores < 0.5).sum()), *itertools.accumulate(groups)}
        exact = [point.threshold for point in found.points if point.model.lower == point.model.upper]
        told = elsewhere | {int((scores < threshold).sum()) for threshold in exact}
        met += len(told - elsewhere)
        beside = {*zip(sorted(elsewhere), sorted(elsewhere)[1:], strict=False)}
        steps = {*zip(sorted(told), sorted(told)[1:], strict=False)}
        assert all(end - start >= fewest for start, end in steps - beside)
        # With steps of one record, more would be told.
        assert curve_of(scores, labels, 1, groups=tuple(groups)) != found
    assert met


def test_only_the_split_that_speaks_for_the_model_has_a_curve() -> None:
    blocks = {name: block_of(*drawn(60, seed)) for seed, name in enumerate(("train", "validation", "test"))}
    fit = ClassFit(1, 2.0, 0.1)
    found = decision_curves(blocks, Calibration("train", (fit,)), 5)
    assert [*found] == ["test"]
    assert found["test"].calibrated
    del blocks["test"]
    found = decision_curves(blocks, Uncalibrated(), 5)
    assert [*found] == ["train"]
    assert not found["train"].calibrated
    none = {"train": block_of(np.array([0.1, 0.9]), np.array([0, 1]))}
    assert decision_curves(none, Uncalibrated(), 5) == {}
    assert decision_curves({}, Uncalibrated(), 5) == {}
