"""The difference of two models on the same records: exact terms, and intervals that hold the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.fairness.paired_difference import paired_difference, worst_group_terms
from fedfair.fairness.worst_group import worst_group_risk


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_the_mean_of_the_terms_is_the_risk_of_the_worst_group(losses: list[float], size: float) -> None:
    found = worst_group_terms(np.array(losses), size).mean()
    assert found == pytest.approx(worst_group_risk(losses, size), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("size", [0.2, 1.0])
def test_the_interval_holds_the_difference_of_the_population(size: float) -> None:
    # Exponential losses of scale s: the worst group of a size has the mean loss s (1 - log size). Half of what a
    # record loses is the same under both models.
    draw, runs, held = np.random.default_rng(0), 1000, 0
    truth = 0.25 * (1.0 - math.log(size))
    widths = []
    for _ in range(runs):
        drawn = draw.exponential(size=600)
        first, second = worst_group_terms(drawn, size), worst_group_terms(1.25 * drawn, size)
        found = paired_difference(first, second)
        held += found.low <= truth <= found.high
        alone = paired_difference(draw.permutation(first), second)
        widths.append((found.high - found.low) / (alone.high - alone.low))
    # 95 % but for four deviations of so many draws, and for the skewness of a tail of 120 records.
    assert 0.91 <= held / runs <= 0.95 + 4 * math.sqrt(0.95 * 0.05 / runs)
    assert max(widths) < 0.3


def test_alike_and_single_records() -> None:
    losses = np.array([0.5, 1.5, 0.1])
    same = paired_difference(losses, losses)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    alone = paired_difference(losses[:1], losses[1:2])
    assert (alone.value, alone.low, alone.high) == (1.0, -math.inf, math.inf)
