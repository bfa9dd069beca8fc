"""Intervals of shares: another library's, and the two ends where they meet the definition."""

import math

import pytest
from scipy.stats import binomtest

from fedfair.errors import LocalProtocolError
from fedfair.fairness.wilson import Proportion, Z, proportion


@pytest.mark.parametrize(("count", "of"), [(0, 10), (8, 10), (10, 10), (37, 412)])
def test_scipy_finds_the_same(count: int, of: int) -> None:
    known = binomtest(count, of).proportion_ci(method="wilson")
    assert Proportion(count, of).interval == (pytest.approx(known.low), pytest.approx(known.high))


@pytest.mark.parametrize(("count", "of"), [(1, 7), (50, 100), (3, 5000)])
def test_the_ends_are_those_shares_from_which_what_was_seen_is_z_deviations_away(count: int, of: int) -> None:
    for end in Proportion(count, of).interval:
        deviation = math.sqrt(end * (1.0 - end) / of)
        assert abs(count / of - end) == pytest.approx(Z * deviation, rel=1e-9)


def test_nobody_has_no_share_and_more_than_all_is_none() -> None:
    assert proportion(0, 0) is None
    assert proportion(1, 2) == Proportion(1, 2)
    assert Proportion(1, 2).share == 0.5
    for count, of in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(LocalProtocolError):
            Proportion(count, of)
