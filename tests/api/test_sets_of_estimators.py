"""Sets of the linear estimators: their threshold is a held-out record, so that as many are missed as promised."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from fedfair import FairClassifier, FairRegressor


def people(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(count, 2))
    return features, features @ np.array([3.0, -3.0]) + draws.normal(size=count)


def test_sets_of_a_classifier_miss_as_many_held_out_records_as_promised() -> None:
    (features, numbers), (held, answers) = people(400, 1), people(499, 2)
    labels, true = np.where(numbers > 0, "ill", "well"), np.where(answers > 0, "ill", "well")
    model = FairClassifier(worst_group_size=0.5).fit(features, labels)
    with pytest.raises(NotFittedError):
        model.predict_sets(held)
    with pytest.raises(ValueError, match="takes 19 held-out records, and there are 18"):
        model.calibrate_sets(held[:18], true[:18])
    assert model.calibrate_sets(held, true) is model
    found = model.predict_sets(held)
    places = (true == model.classes_[1]).astype(int)
    # .5 * .1 of 500 are 25: the 25th worst is the first that is not missed.
    own = np.sort(model.predict_proba(held)[np.arange(499), places])
    assert (~found[np.arange(499), places]).sum() == 24
    assert model.sets_.bound == pytest.approx(own[24], rel=1e-12)
    assert 0.05 < model.sets_.missed_at_most < 0.07
    # New people, in the worst group of that size, after the fact; four deviations of 20,000.
    more, outcomes = people(20_000, 3)
    missed = ~model.predict_sets(more)[np.arange(20_000), (outcomes <= 0).astype(int)]
    assert missed.mean() <= model.sets_.missed_at_most + 4 * (0.05 * 0.95 / 20_000) ** 0.5
    assert not hasattr(model.fit(features, labels), "sets_")


def test_intervals_of_a_regressor_reach_to_a_held_out_record() -> None:
    (features, numbers), (held, answers) = people(400, 1), people(199, 2)
    model = FairRegressor(worst_group_size=1.0).fit(features, numbers)
    model.calibrate_intervals(held, answers, group_size=0.5, missed=0.2)
    found, errors = model.predict_intervals(held), np.sort(np.abs(answers - model.predict(held)))
    # .5 * .2 of 200 are 20: the 20th greatest error is inside.
    assert found[:, 1] - found[:, 0] == pytest.approx(np.full(199, 2 * errors[-20]))
    assert ((answers < found[:, 0]) | (answers > found[:, 1])).sum() == 19
    with pytest.raises(ValueError, match="promises nothing"):
        model.calibrate_intervals(held, answers, missed=0.0)
