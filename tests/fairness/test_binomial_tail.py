"""The upper end of Clopper and Pearson's interval, against scipy's inverse of the incomplete beta function."""

import itertools
import math

import pytest
from scipy.special import betainccinv

from fedfair.fairness import binomial_tail
from fedfair.fairness.binomial_tail import upper_chance

LEVELS, SHARES = (0.5, 0.05, 1e-4, 1e-8, 1e-12, 1e-14), (0.0, 1e-6, 0.001, 0.02, 0.3, 0.5, 0.9, 0.999, 1.0)


@pytest.mark.parametrize("records", [2, 3, 17, 569, 12_345, 1_000_000, 30_000_000])
def test_it_is_scipys(records: int) -> None:
    for count, level in itertools.product({round(share * (records - 2)) for share in SHARES}, LEVELS):
        found, wanted = upper_chance(count, records, level), betainccinv(count + 1.0, records - count, level)
        assert found == pytest.approx(wanted, rel=1e-11), (count, level)


def test_values_by_hand() -> None:
    # None of n: (1 - u)^n = level. All but one of two: 1 - u^2 = level.
    assert upper_chance(0, 10, 0.05) == pytest.approx(1.0 - 0.05**0.1, rel=1e-14)
    assert upper_chance(1, 2, 0.19) == pytest.approx(0.9, rel=1e-14)


@pytest.mark.parametrize("count", [40_000, 1 << 20, 1 << 30, 1 << 48])
def test_beyond_its_terms_it_is_never_below_the_truth(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = betainccinv(count + 1.0, 3 * count, 1e-5)
    for terms in (1, 100, 1 << 15):
        monkeypatch.setattr(binomial_tail, "MAX_TERMS", terms)
        found = upper_chance(count, 4 * count, 1e-5)
        # The bound of the rest overstates the tail by less than 10 %, which moves u by part of its deviation.
        assert wanted * (1.0 - 1e-11) <= found <= wanted * (1.0 + 0.05 / math.sqrt(count))
