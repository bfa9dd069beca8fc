"""Arrays with answers that are no classes: what a program simulates with them, and what it is told."""

import numpy as np
import pytest

import fedfair
from fedfair.errors import DataError, PlanError
from tests.rounding import rounding

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]
TRAINING = {"algorithm": "fedavg", "rounds": 60, "learning_rate": 0.3}


def sites(kind: str) -> Arrays:
    source = np.random.default_rng(4)
    found = {}
    for name in ("north", "south"):
        features = source.normal(size=(80, 2))
        number = features @ [1.0, -1.0] + 0.1 * source.normal(size=80)
        answers = {
            "number": number,
            "labels": np.stack([number > 0, number > 1], axis=1),
            "time": np.stack([np.exp(number), source.integers(0, 2, 80)], axis=1),
        }
        found[name] = (features, answers[kind])
    return found


def test_numbers_are_predicted_and_evaluated_in_their_unit() -> None:
    arrays = sites("number")
    done = fedfair.simulate(
        arrays, task={"loss": {"name": "squared", "target_range": [-10, 10]}}, training=TRAINING
    )
    features, numbers = arrays["north"]
    losses = done.record_losses(features, numbers)
    predicted = done.model.predict(features)
    assert losses == pytest.approx((predicted - numbers) ** 2, rel=1e-5, abs=rounding(None))
    assert losses.mean() < 0.1
    summary = done.evaluate(features, numbers)
    assert summary.accuracy is None
    assert summary.mean == pytest.approx(losses.mean())


@pytest.mark.parametrize(
    ("kind", "loss"), [("labels", "multi_label"), ("time", {"name": "survival", "intervals": [0.5, 1, 3]})]
)
def test_labels_and_times_are_arrays_of_columns(kind: str, loss: object) -> None:
    done = fedfair.simulate(sites(kind), task={"loss": loss}, training=TRAINING)
    metrics = done.result.trained.metrics
    assert metrics
    assert done.result.history[0].train.mean > done.result.trained.mean


def test_targets_labels_and_losses_that_arrays_cannot_have_are_refused() -> None:
    with pytest.raises(DataError, match=r"outside of task\.loss\.target_range"):
        fedfair.simulate(sites("number"), task={"loss": {"name": "squared", "target_range": [-0.5, 0.5]}})
    with pytest.raises(DataError, match="labels are classes"):
        fedfair.simulate(sites("number"))
    with pytest.raises(PlanError, match="segmentation of arrays"):
        fedfair.simulate(sites("number"), task={"loss": "segmentation"})
    with pytest.raises(PlanError, match=r"task\.loss: must be cross_entropy"):
        fedfair.simulate(sites("number"), task={"loss": "absolute"})
