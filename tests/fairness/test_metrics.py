import math

import numpy as np
import pytest

from fedfair.errors import DataError, PlanError
from fedfair.fairness.metrics import GroupRisk, group_risk, summarise_losses, uniform_classifier_loss

LOSSES = np.array([0.2, 3.0, 1.0, 0.6])


def test_summaries_by_hand_at_their_ends_and_refusals() -> None:
    summary = summarise_losses(LOSSES, np.array([True, False, False, True]), (0.25, 0.5, 1.0))
    assert summary.count == 4
    assert summary.mean == pytest.approx(1.2)
    assert summary.accuracy == 0.5
    assert summary.by_group_size[0.25] == GroupRisk(3.0, pytest.approx(0.6), pytest.approx(2.4))
    assert summary.by_group_size[0.5] == GroupRisk(2.0, pytest.approx(0.4), pytest.approx(1.6))
    assert summary.by_group_size[0.5] == group_risk(LOSSES, 0.5)
    risk = group_risk(LOSSES, 1.0)
    assert risk.worst == pytest.approx(1.2)
    assert math.isnan(risk.best)
    assert math.isnan(risk.disparity)
    for classes in (2, 10):
        floor = uniform_classifier_loss(classes)
        losses = np.full(37, -math.log(1 / classes))
        risk = group_risk(losses, 0.3)
        # A mean of equal float64 numbers.
        assert risk.worst == pytest.approx(floor, rel=1e-14)
        assert risk.disparity == pytest.approx(0.0, abs=1e-14)
    with pytest.raises(DataError, match="shape"):
        summarise_losses(LOSSES, np.array([True]), (0.5,))
    with pytest.raises(PlanError, match="group size"):
        summarise_losses(LOSSES, np.ones(4, bool), (0.5, 0.0))
