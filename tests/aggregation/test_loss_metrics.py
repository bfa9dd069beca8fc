"""The metrics that sums of figures give, against those of libraries on the records themselves."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, precision_score, r2_score, recall_score

from fedfair.aggregation.loss_metrics import MAX_FIGURE, bounded_figures, figure_count, metrics_of
from fedfair.aggregation.target_scaling import target_scaling
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import (
    HuberLoss,
    Loss,
    MultiLabelLoss,
    PinballLoss,
    SegmentationLoss,
    SquaredLoss,
    SurvivalLoss,
)
from fedfair.plan.task_outputs import with_outputs
from fedfair.training.record_loss import record_loss

N = 300
RANGE = 37.0


def sums_of(loss: Loss, schema: FeatureSchema, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    shaped = with_outputs(loss, schema)
    figures = record_loss(loss, shaped, RANGE, Path()).figures_of(torch.tensor(outputs), torch.tensor(targets))
    assert figures.shape == (len(outputs), figure_count(loss, shaped))
    return figures.numpy().sum(axis=0)


@pytest.mark.parametrize(
    "loss",
    [
        SquaredLoss(name="squared", target_range=(-50.0, 100.0)),
        HuberLoss(name="huber", delta=0.3),
        PinballLoss(name="pinball", quantile=0.9),
    ],
)
def test_regression_metrics_are_those_of_scikit_learn(loss: SquaredLoss | HuberLoss | PinballLoss) -> None:
    source = np.random.default_rng(1)
    targets = 20.0 + 5.0 * source.normal(size=N)
    outputs = targets + source.normal(size=N)
    # A declared range scales targets and outputs alike; figures are in the target's own unit all the same.
    target = target_scaling(loss, None)
    inside = target.placed(outputs)[:, None], target.placed(targets)
    found = metrics_of(loss, sums_of(loss, FeatureSchema((1,), 0), *inside), N, RANGE, 5)
    assert found["mean_squared_error"] == pytest.approx(mean_squared_error(targets, outputs), rel=1e-12)
    assert found["mean_absolute_error"] == pytest.approx(mean_absolute_error(targets, outputs), rel=1e-12)
    # The spread is a difference of sums about 16 times as large: it loses no more than two digits.
    assert found["r_squared"] == pytest.approx(r2_score(targets, outputs), abs=1e-11)


def test_labels_have_recall_and_precision_each_where_enough_records_have_them() -> None:
    source, loss = np.random.default_rng(2), MultiLabelLoss(name="multi_label")
    targets = (source.random((N, 3)) < [0.5, 0.2, 0.005]).astype(np.float64)
    outputs = targets + source.normal(size=(N, 3)) - 0.5
    found = metrics_of(loss, sums_of(loss, FeatureSchema((1,), 0, targets=(3,)), outputs, targets), N, RANGE, 5)
    named = outputs > 0
    recall, precision = found["label_recall"], found["label_precision"]
    assert isinstance(recall, tuple)
    assert isinstance(precision, tuple)
    for place in range(2):
        assert recall[place] == pytest.approx(recall_score(targets[:, place], named[:, place]))
        assert precision[place] == pytest.approx(precision_score(targets[:, place], named[:, place]))
    assert targets[:, 2].sum() < 5
    assert recall[2] is None
    assert found["mean_label_accuracy"] == pytest.approx((named == (targets > 0.5)).mean())


def test_expected_events_are_the_hazards_of_those_at_risk() -> None:
    loss = SurvivalLoss(name="survival", intervals=(1.0, 2.0))
    targets = np.array([[0.5, 1.0], [1.5, 0.0], [1.5, 1.0], [3.0, 0.0]])
    outputs = np.zeros((4, 2))
    found = metrics_of(loss, sums_of(loss, FeatureSchema((1,), 0, targets=(2,)), outputs, targets), 4, RANGE, 1)
    # In the second interval: one event, one survivor; the record last seen in it is not counted.
    assert found["interval_at_risk"] == (4.0, 2.0)
    assert found["interval_events"] == (1.0, 1.0)
    assert found["interval_expected_events"] == (2.0, 1.0)
    assert found["interval_observed_to_expected"] == (0.5, 1.0)
    assert (found["observed_events"], found["expected_events"]) == (2.0, 3.0)
    assert found["observed_to_expected"] == pytest.approx(2 / 3)
    few = metrics_of(loss, sums_of(loss, FeatureSchema((1,), 0, targets=(2,)), outputs, targets), 4, RANGE, 3)
    assert few["interval_events"] == (1.0, None)
    assert few["interval_observed_to_expected"] == (0.5, None)
    # Totals are of the intervals that are told: otherwise their difference would tell of the other one.
    assert (few["observed_events"], few["expected_events"], few["observed_to_expected"]) == (1.0, 2.0, 0.5)
    none = metrics_of(
        loss, sums_of(loss, FeatureSchema((1,), 0, targets=(2,)), outputs[:0], targets[:0]), 9, RANGE, 5
    )
    assert none["observed_events"] is None
    assert none["observed_to_expected"] is None


def test_overlap_is_the_joint_area_of_both_masks() -> None:
    loss, source = SegmentationLoss(name="segmentation"), np.random.default_rng(4)
    targets, outputs = source.integers(0, 3, (6, 4, 4)), source.normal(size=(6, 3, 4, 4))
    found = metrics_of(
        loss, sums_of(loss, FeatureSchema((1, 4, 4), 3, targets=(4, 4)), outputs, targets), 6, RANGE, 5
    )
    named = outputs.argmax(1)
    assert found["pixel_accuracy"] == pytest.approx((named == targets).mean())
    slow = [((named == k) & (targets == k)).sum() / ((named == k) | (targets == k)).sum() for k in range(3)]
    assert found["overlap"] == pytest.approx(slow)


def test_figures_without_a_meaning_or_of_too_few_records_are_not_told() -> None:
    loss = SquaredLoss(name="squared")
    sums = sums_of(loss, FeatureSchema((1,), 0), np.zeros((N, 1)), np.full(N, 3.0))
    assert metrics_of(loss, sums, N, RANGE, 5)["r_squared"] is None
    loss = SurvivalLoss(name="survival", intervals=(1.0,))
    found = metrics_of(loss, np.array([9.0, 0.0, 0.0]), 9, RANGE, 5)
    assert found["interval_observed_to_expected"] == (None,)
    assert found["observed_to_expected"] is None
    loss = SquaredLoss(name="squared")
    assert metrics_of(loss, np.ones(4), 4, RANGE, 5) == {}
    bounded, replaced = bounded_figures(np.array([[1.0, np.nan], [2.0, 3.0], [np.inf, 2.0 * MAX_FIGURE]]))
    assert replaced == 2
    assert bounded.tolist() == [[1.0, 0.0], [2.0, 3.0], [MAX_FIGURE, MAX_FIGURE]]
    assert bounded_figures(np.zeros((3, 0)))[1] == 0
