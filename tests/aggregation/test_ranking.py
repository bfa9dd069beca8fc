"""Histograms of scores: what a site adds, and that the truth lies within what the sums prove."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss, roc_auc_score

from fedfair.aggregation.evaluation_sums import evaluation_layout, planned_layout
from fedfair.aggregation.evaluator import Evaluator
from fedfair.aggregation.header import Header
from fedfair.aggregation.loss_histogram import HistogramSpec, block_layout, loss_block
from fedfair.aggregation.ranking import (
    GROUPS,
    ClassRanking,
    auc_interval,
    calibration_groups,
    check_score_sums,
    class_rankings,
)
from fedfair.aggregation.requests import histogram_spec
from fedfair.aggregation.score_histogram import (
    bounded_scores,
    rounded_scores,
    score_bins,
    score_edges,
    score_group,
    score_sums,
    scored_classes,
)
from fedfair.errors import LocalProtocolError, RemoteProtocolError, TrainingError
from fedfair.fairness.ranking import area_under_curve
from fedfair.ids import RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sections import MAX_SITE_MEANS
from fedfair.secagg.shape import MAX_HEADER_VALUES
from tests import plans

Scores = NDArray[np.float64]


def summed(sites: list[tuple[Scores, NDArray[np.int64]]], columns: int) -> NDArray[Any]:
    """Return the block of the first split, summed over sites, as the aggregator reads it."""
    layout = Header(score_group(columns))
    total = layout.zeros()
    for scores, labels in sites:
        header = layout.zeros()
        block = layout.read(header)["scores"][0]
        for name, values in score_sums(scores, labels, columns).items():
            block[name] = values
        total += header
    return layout.read(total)["scores"][0]


def of_class_one(scores: list[float], labels: list[int], fewest: int = 1) -> ClassRanking:
    block = summed([(np.array(scores)[:, None], np.array(labels))], 1)
    (found,) = class_rankings(block, fewest)
    return found


def test_a_value_worked_by_hand() -> None:
    # Pairs (positive, negative): (.9, .2), (.9, .5) and (.5, .2) are in order, (.5, .5) is tied.
    found = of_class_one([0.9, 0.5, 0.5, 0.2], [1, 1, 0, 0])
    assert (found.wanted, found.positives, found.negatives) == (1, 2, 2)
    assert found.auc is not None
    assert (found.auc.lower, found.auc.upper, found.auc.midpoint) == (0.75, 1.0, 0.875)
    assert area_under_curve(np.array([0.9, 0.5, 0.5, 0.2]), np.array([True, True, False, False])) == 0.875
    # Scores count as the middles of their bins, here less than 1/2400 away.
    assert found.brier == pytest.approx((0.01 + 0.25 + 0.25 + 0.04) / 4, abs=1e-4)
    assert found.brier != pytest.approx((0.01 + 0.25 + 0.25 + 0.04) / 4, rel=1e-9)
    # Groups are of one record or more: .2, both of .5, and .9.
    assert [(group.records, group.observed) for group in found.groups] == [(1, 0.0), (2, 0.5), (1, 1.0)]
    assert found.calibration_error == pytest.approx((0.2 + 2 * 0.0 + 0.1) / 4, abs=2e-4)


@given(st.lists(st.floats(0.0, 1.0), min_size=1), st.sampled_from([1, 3, 10]))
def test_a_score_counts_as_the_middle_of_its_bin(values: list[float], columns: int) -> None:
    scores = np.array(values)
    rounded, bins = rounded_scores(scores, columns), score_bins(columns)
    # No bin is wider than 2 / bins, and the middle is at most half of that away.
    assert (np.abs(rounded - scores) <= 1.0 / bins).all()
    assert len(set(rounded.tolist())) <= bins
    assert rounded_scores(rounded, columns).tolist() == rounded.tolist()


def test_bins_cover_all_scores_and_are_narrow_at_both_ends_and_in_the_middle() -> None:
    for bins in (2048, 672, 192):
        edges = score_edges(bins)
        assert (edges[0], edges[-1]) == (0.0, 1.0)
        assert (np.diff(edges) > 0.0).all()
        np.testing.assert_allclose(edges, 1.0 - edges[::-1], rtol=0.0, atol=2.0**-53)
        widths = np.diff(edges)
        assert edges[bins // 2] == 0.5
        assert widths[[0, bins // 2, -1]] == pytest.approx(4.0 / bins**2, rel=1e-9)
        assert widths.max() == pytest.approx(2.0 / bins, rel=0.02)
    # Worked by hand: h = 1/4 and h = 3/4 of eight bins.
    assert score_edges(8).tolist() == [0.0, 0.0625, 0.25, 0.4375, 0.5, 0.5625, 0.75, 0.9375, 1.0]
    assert [score_bins(columns) for columns in (1, 3, 5, 6, 10)] == [2048, 672, 400, 336, 192]
    ends = score_sums(np.array([[0.0], [1.0], [score_edges(2048)[1]]]), np.array([0, 1, 0]), 1)
    assert np.flatnonzero(ends["negatives"]).tolist() == [0, 1]
    assert np.flatnonzero(ends["positives"]).tolist() == [2047]
    assert np.flatnonzero(ends["scores"]).tolist() == [0, 127]


LEVELS = st.one_of(
    st.floats(0.0, 1.0),
    st.sampled_from([0.0, 1.0, 0.5, 0.25, 1 / 3, *score_edges(2048)[[1, 7, 1023, 1024, 1600, 2047]]]),
)
"""Scores with many ties, on edges of bins, and between."""


@st.composite
def federations(draw: st.DrawFn) -> list[tuple[Scores, NDArray[np.int64]]]:
    levels = draw(st.lists(LEVELS, min_size=1, max_size=8))
    records = st.lists(st.tuples(st.sampled_from(levels), st.integers(0, 1)), max_size=30)
    drawn = draw(st.lists(records, min_size=1, max_size=4))
    return [
        (np.array([score for score, _ in site]).reshape(-1, 1), np.array([label for _, label in site], np.int64))
        for site in drawn
    ]


@given(federations())
def test_the_truth_is_inside_with_any_ties_and_sites(sites: list[tuple[Scores, NDArray[np.int64]]]) -> None:
    (found,) = class_rankings(summed(sites, 1), 1)
    scores = np.concatenate([scores[:, 0] for scores, _ in sites])
    labels = np.concatenate([labels for _, labels in sites])
    exact = area_under_curve(scores, labels == 1)
    if found.auc is None or exact is None:
        assert (exact, found.auc) == (None, None)
        assert len(set(labels.tolist())) < 2
    else:
        assert found.auc.lower <= exact <= found.auc.upper
        # scikit-learn adds up trapezoids in floats.
        assert exact == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    if len(labels):
        middles = float(brier_score_loss(labels, rounded_scores(scores, 1), pos_label=1))
        assert found.brier == pytest.approx(middles, abs=1e-12)
        assert abs(found.brier - float(brier_score_loss(labels, scores, pos_label=1))) <= 2.0 / 2048
        assert sum(group.records for group in found.groups) == len(labels)


@pytest.mark.parametrize("classes", [3, 6, 10])
def test_several_classes_are_each_against_the_rest(classes: int) -> None:
    draws = np.random.default_rng(classes)
    labels = draws.integers(0, classes, 600)
    logits = draws.normal(0.0, 1.0, (600, classes)) + 1.5 * np.eye(classes)[labels]
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = class_rankings(summed([(scores[:200], labels[:200]), (scores[200:], labels[200:])], classes), 1)
    assert [each.wanted for each in found] == list(range(classes))
    intervals = [each.auc for each in found if each.auc is not None]
    macro = roc_auc_score(labels, scores, multi_class="ovr", average="macro", labels=range(classes))
    low, high = (sum(ends) / classes for ends in zip(*((one.lower, one.upper) for one in intervals), strict=True))
    assert low <= macro <= high
    assert high - low < 0.01
    told, squares = (
        ((values - np.eye(classes)[labels]) ** 2).sum(axis=1).mean()
        for values in (rounded_scores(scores, classes), scores)
    )
    assert sum(each.brier for each in found) == pytest.approx(told, rel=1e-12)
    assert abs(told - squares) < 1e-3


def slow_groups(scores: Scores, labels: NDArray[np.int64], least: int) -> list[list[int]]:
    """Return the records of each group, found one joined bin after the other from the records themselves."""
    edges = score_edges(2048)[::16].tolist()
    groups: list[list[int]] = [[]]
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = [
            place for place, score in enumerate(scores) if low <= score < high or (number == 127 and score == 1.0)
        ]
        groups[-1] += inside
        if len(groups[-1]) >= least:
            groups.append([])
    left = groups.pop()
    groups[-1] += left
    assert sum(map(len, groups)) == len(labels)
    return groups


@pytest.mark.parametrize(("records", "fewest"), [(500, 5), (73, 5), (40, 9), (9, 9)])
def test_calibration_is_that_of_the_records_of_each_group(records: int, fewest: int) -> None:
    draws = np.random.default_rng(records)
    scores = draws.beta(0.4, 1.2, records)
    labels = (draws.random(records) < scores**1.5).astype(np.int64)
    found = of_class_one(scores.tolist(), labels.tolist(), fewest)
    expected = slow_groups(scores, labels, max(fewest, math.ceil(records / GROUPS)))
    assert [group.records for group in found.groups] == [len(group) for group in expected]
    off, middles = 0.0, rounded_scores(scores, 1)
    for group, members in zip(found.groups, expected, strict=True):
        assert group.mean_score == pytest.approx(middles[members].mean(), rel=1e-12)
        assert abs(group.mean_score - scores[members].mean()) <= 1.0 / 2048
        assert group.observed == labels[members].mean()
        off += len(members) / records * abs(middles[members].mean() - labels[members].mean())
    assert found.calibration_error == pytest.approx(off, abs=1e-13)


@pytest.mark.parametrize("scores", [[[0.5, 0.5]], [[1.5]], [[math.nan]]])
def test_what_is_no_probability_is_refused_in_words(scores: list[list[float]]) -> None:
    with pytest.raises(TrainingError, match=r"the model gives scores of shape .* probabilities for each"):
        score_sums(np.array(scores), np.array([1]), 1)


# ------------------------------------------------------------------ totals that no records have


def possible() -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    """Return the summed scores, records and matrices of three splits, of which two are empty."""
    layout = Header(score_group(1))
    scores = layout.read(layout.zeros())["scores"]
    for name, values in score_sums(np.array([[0.9], [0.4], [0.1]]), np.array([1, 0, 0]), 1).items():
        scores[0][name] = values
    splits = np.array([(3.0,), (0.0,), (0.0,)], [("records", np.float64)])
    confusion = np.zeros((3, 2, 2))
    confusion[0] = [[2.0, 0.0], [0.0, 1.0]]
    return scores, splits, confusion


@pytest.mark.parametrize("place", ["positives", "negatives", "scores", "squares"])
@pytest.mark.parametrize("change", [-4.0, 1e-3, 4.0])
def test_a_total_that_no_records_have_is_refused(place: str, change: float) -> None:
    scores, splits, confusion = possible()
    check_score_sums(scores, splits, confusion)
    scores[place][0, 0] += change
    if (place, change) == ("squares", 1e-3):
        check_score_sums(scores, splits, confusion)  # Another Brier score, which some records have.
        return
    with pytest.raises(RemoteProtocolError, match="histograms of scores in an evaluation do not fit"):
        check_score_sums(scores, splits, confusion)


def test_groups_of_few_records_without_columns_or_with_huge_counts() -> None:
    assert calibration_groups([2], [2], [1.0], 5) == ()
    found = of_class_one([0.5, 0.5], [1, 0], fewest=5)
    assert found.calibration_error is None
    many = 2**40
    interval = auc_interval([many, 1, many], [many, 3, many - 1])
    assert interval is not None
    pairs = (2 * many + 1) * (2 * many + 2)
    assert interval.lower == (many + many * (many + 3)) / pairs
    assert interval.upper - interval.lower == pytest.approx(0.5, abs=1e-9)
    layout = Header(score_group(0))
    assert layout.length == 0
    assert scored_classes(1) == (1,)
    assert scored_classes(3) == (0, 1, 2)
    assert bounded_scores(np.array([math.nan, math.inf, -1.0, 0.25])).tolist() == [0.0, 1.0, 0.0, 0.25]


def test_impossible_scores_are_refused_and_the_rest_fits_a_masked_header() -> None:
    assert area_under_curve(np.array([]), np.array([], bool)) is None
    for scores in (np.array([math.nan]), np.array([0.5, 0.5])):
        with pytest.raises(LocalProtocolError, match="one for each record"):
            area_under_curve(scores, np.array([True]))
    scores, splits, confusion = possible()
    scores["positives"][0, 0], scores["negatives"][0, 0] = (
        scores["negatives"][0, 0].copy(),
        scores["positives"][0, 0].copy(),
    )
    with pytest.raises(RemoteProtocolError, match="do not fit"):
        check_score_sums(scores, splits, confusion)
    for classes, columns in [(2, 1), *((classes, classes) for classes in range(3, 11))]:
        layout = evaluation_layout(HistogramSpec(4096, 1.0), classes, MAX_SITE_MEANS, columns)
        counts = int(layout.counts(noised=False).sum())
        assert counts + 2 * (layout.length - counts) <= MAX_HEADER_VALUES


def test_an_evaluation_whose_scores_are_not_of_its_records_is_refused() -> None:
    plan, schema = plans.parsed(evaluation={"scores": True, "bins": 8}), FeatureSchema((2,), 2)
    judge, layout = Evaluator(plan, schema), planned_layout(plan, schema)
    header = layout.zeros()
    sums = layout.read(header)
    block = loss_block(np.array([0.25, 0.5]), np.array([True, False]), 1.0, histogram_spec(plan, schema))
    sums["splits"][0] = block_layout(histogram_spec(plan, schema)).read(block)
    sums["confusion"][0] = [[0.0, 0.0], [1.0, 1.0]]
    with pytest.raises(RemoteProtocolError, match="histograms of scores"):
        judge.evaluate(header, RoundNumber(0), 0.0, 3)
    for name, values in score_sums(np.array([[0.75], [0.25]]), np.array([1, 1]), 1).items():
        sums["scores"][0][name] = values
    judge.evaluate(header, RoundNumber(0), 0.0, 3)
    ((only,),) = judge.rankings(header).values()
    assert (only.positives, only.negatives, only.auc) == (2, 0, None)
