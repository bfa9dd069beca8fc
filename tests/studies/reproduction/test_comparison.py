"""The tests that decide claims: their level by simulation, their formulas by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from fedfair.studies.reproduction.comparison import (
    RiskComparison,
    Verdict,
    alike,
    holm,
    not_above,
    not_above_level,
    verdict,
)

TRIALS = 250
SLACK = 4 * math.sqrt(0.05 * 0.95 / TRIALS)
"""Four standard errors of a share of 5 % that is counted in so many trials."""


@pytest.mark.thorough
@pytest.mark.parametrize(("errors", "repeats"), [((1.0, 1.0), 3), ((1.0, 0.2), 3), ((0.1, 1.0), 5)])
def test_a_border_claim_is_wrong_as_often_as_the_level_says(errors: tuple[float, float], repeats: int) -> None:
    draw, tolerance = np.random.default_rng(17), 0.3
    found = [
        not_above(
            "", draw.normal(tolerance, errors[0], repeats).tolist(), draw.normal(0.0, errors[1], 3).tolist(),
            tolerance,
        )
        for _ in range(TRIALS)
    ]  # fmt: skip
    for wrong in ([one.holds for one in found], [one.fails for one in found]):
        # Welch's number of degrees of freedom is an estimate, which costs a little with three values.
        assert np.mean([value is not None and value <= 0.05 for value in wrong]) <= 0.05 + 0.02 + SLACK


def test_the_p_value_is_that_of_welch_worked_by_hand() -> None:
    one, other = [1.0, 1.2, 1.4], [0.1, 0.5, 0.9, 0.5]
    a, b = np.var(one, ddof=1) / 3, np.var(other, ddof=1) / 4
    freedom = (a + b) ** 2 / (a**2 / 2 + b**2 / 3)
    statistic = (np.mean(one) - np.mean(other) - 0.2) / math.sqrt(a + b)
    found = not_above("", one, other, 0.2)
    assert found.fails == pytest.approx(student.sf(statistic, freedom))
    assert found.holds == pytest.approx(student.cdf(statistic, freedom))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=1), st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_single_repetitions_decide_nothing(one: list[float], other: list[float]) -> None:
    for found in (not_above("", one, other, 0.1), alike("", other, one, 0.1), not_above_level("", one, 0.5, 0.1)):
        assert (found.holds, found.fails) == (None, None)
        assert verdict([found]) is Verdict.UNDECIDED


def test_verdicts_of_means_that_are_far_near_alike_or_without_spread() -> None:
    low, high = [1.0, 1.01, 0.99], [2.0, 2.02, 1.98]
    assert verdict([not_above("", low, high, 0.01)]) is Verdict.HOLDS
    assert verdict([not_above("", high, low, 0.01)]) is Verdict.FAILS
    assert verdict([not_above("", low, low, 0.005)]) is Verdict.UNDECIDED
    assert verdict([not_above_level("", low, 0.9, 0.3)]) is Verdict.HOLDS
    assert verdict([not_above_level("", low, 0.5, 0.3)]) is Verdict.FAILS
    assert verdict([alike("", low, low, 0.1)]) is Verdict.HOLDS
    assert verdict([alike("", low, high, 0.1)]) is Verdict.FAILS
    assert verdict([alike("", high, low, 0.1)]) is Verdict.FAILS
    assert verdict([alike("", low, low, 0.01)]) is Verdict.UNDECIDED
    assert verdict([not_above("", [1.0, 1.0], [2.0, 2.0], 0.1)]) is Verdict.HOLDS
    assert verdict([not_above("", [2.0, 2.0], [1.0, 1.0], 0.1)]) is Verdict.FAILS


def test_claims_hold_by_every_comparison_and_fail_by_holm() -> None:
    sure, open_, against = (
        RiskComparison("", 0.01, 0.99), RiskComparison("", 0.4, 0.6), RiskComparison("", 0.99, 0.02),
    )  # fmt: skip
    assert verdict([sure, sure]) is Verdict.HOLDS
    assert verdict([sure, open_]) is Verdict.UNDECIDED
    assert verdict([sure, against]) is Verdict.FAILS
    # Three tests: the smallest p value counts three times.
    assert verdict([sure, sure, against]) is Verdict.UNDECIDED
    assert verdict([]) is Verdict.UNDECIDED
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_holms_adjustment_rejects_what_the_step_down_procedure_rejects(found: list[float], level: float) -> None:
    order, rejected_ones = sorted(range(len(found)), key=lambda index: found[index]), set()
    for place, index in enumerate(order):
        if found[index] * (len(found) - place) > level:
            break
        rejected_ones.add(index)
    assert {index for index, adjusted in enumerate(holm(found)) if adjusted <= level} == rejected_ones
