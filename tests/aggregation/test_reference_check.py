"""How often came true what references said: against a slow version, and what no records can have."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.evaluation_sums import planned_layout
from fedfair.aggregation.evaluator import Evaluator
from fedfair.aggregation.header import Header
from fedfair.aggregation.reference_check import (
    CheckedTenth,
    check_checked,
    check_group,
    check_sums,
    checked_tenths,
)
from fedfair.aggregation.requests import histogram_spec
from fedfair.errors import RemoteProtocolError
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.record_losses import Losses
from fedfair.fairness.smoothing import SmoothedPlus
from fedfair.ids import RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY
from fedfair.training.reference_answers import came_true
from fedfair.training.statistics import evaluation_header
from tests.plans import parsed

OBJECTIVE = Objective(0.2, 0.1, SmoothedPlus("softplus", 0.05))
LAYOUT = Header(check_group(checked=True))
RECORDS = st.lists(st.tuples(st.integers(0, 256), st.booleans()), max_size=40)


def summed(records: list[tuple[int, bool]], place: int = 0) -> np.ndarray:
    """Return the fields of all splits, with records of one of them."""
    header = LAYOUT.zeros()
    sums = LAYOUT.read(header)["checked"]
    answered = np.array([(steps / 256, float(true)) for steps, true in records]).reshape(-1, 2)
    for name, values in check_sums(answered).items():
        sums[name][place] = values
    return sums


@given(RECORDS, st.integers(1, 3))
def test_tenths_are_those_of_a_slow_version(records: list[tuple[int, bool]], fewest: int) -> None:
    expected = []
    for place in range(10):
        own = [(steps, true) for steps, true in records if min(steps * 10 // 256, 9) == place]
        if len(own) >= fewest:
            said = sum(steps for steps, _ in own) / 256 / len(own)
            expected.append((place / 10, len(own), said, sum(true for _, true in own) / len(own)))
    found = checked_tenths(summed(records)[0], fewest)
    assert [(one.low, one.records) for one in found] == [one[:2] for one in expected]
    for one, (_, _, said, true) in zip(found, expected, strict=True):
        assert (one.said, one.found) == pytest.approx((said, true), abs=1e-12)
        assert one.low - 1 / 256 <= one.said <= one.high


def test_the_error_is_that_of_a_share() -> None:
    assert CheckedTenth(0.2, 0.3, 100, 0.25, 0.4).error == pytest.approx((0.25 * 0.75 / 100) ** 0.5)


def test_two_classes_are_about_the_second_and_more_about_the_likeliest() -> None:
    two = torch.tensor([[0.7, 0.3], [0.1, 0.9]])
    np.testing.assert_allclose(came_true(two, torch.tensor([0, 1])), [[0.3, 0.0], [0.9, 1.0]], rtol=1e-6)
    three = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    np.testing.assert_allclose(came_true(three, torch.tensor([1, 2])), [[0.5, 1.0], [0.6, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("fault", ["more true than records", "chances above 1", "other records", "below nothing"])
def test_what_no_records_can_have_is_refused(fault: str) -> None:
    sums, records = summed([(100, True), (200, False)]), np.array([2.0, 0.0, 0.0])
    check_checked(sums, records)
    match fault:
        case "more true than records":
            sums["came_true"][0, 3] = 2.0
        case "chances above 1":
            sums["chances"][0, 3] = 257.0
        case "other records":
            records[0] = 3.0
        case _:
            sums["came_true"][0, 5] = -1.0
    with pytest.raises(RemoteProtocolError, match="the check of the references is not over the records"):
        check_checked(sums, records)


def test_before_references_judge_nothing_is_checked() -> None:
    check_checked(summed([]), np.array([2.0, 0.0, 0.0]))
    assert checked_tenths(summed([])[0], 1) == ()


def test_an_evaluation_with_a_check_that_no_records_have_is_refused() -> None:
    plan, schema = parsed(objective={"measure": "excess"}), FeatureSchema((2,), 2, (0, 1))
    layout, spec = planned_layout(plan, schema), histogram_spec(plan, schema)
    labels = np.array([0, 1, 1])
    answered = np.array([[0.2, 0.0], [0.8, 1.0], [0.4, 1.0]])
    held = Losses(np.array([0.5, 0.7, 0.9]), labels, labels, excess=np.array([0.1, 0.2, 0.3]), answered=answered)
    header = evaluation_header({"train": held}, OBJECTIVE, 0.3, CROSS_ENTROPY, spec, layout)
    evaluator = Evaluator(plan, schema)
    evaluator.evaluate(header, RoundNumber(0), 0.3, 1)
    layout.read(header)["checked"]["came_true"][0, 8] = 7.0
    with pytest.raises(RemoteProtocolError, match="the check of the references"):
        evaluator.evaluate(header, RoundNumber(0), 0.3, 1)
