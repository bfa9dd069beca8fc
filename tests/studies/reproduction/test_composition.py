"""Who is in the worst group."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.studies.reproduction.conclusions import distance, population, worst_group

GROUPS = np.array(["a", "a", "b", "b", "b"])
LABELS = np.array([0, 1, 0, 0, 1])


@pytest.mark.parametrize("size", [0.1, 0.3, 0.5, 1.0])
def test_a_model_that_treats_all_alike_has_the_population_in_its_worst_group(size: float) -> None:
    # All losses tie, as those of a uniform guess: the order of the records must not decide who is in.
    assert worst_group(np.full(5, np.log(2)), GROUPS, LABELS, size) == pytest.approx(population(GROUPS, LABELS))


@settings(deadline=None)
@given(st.integers(1, 40), st.floats(0.01, 1.0), st.integers(0, 5))
def test_shares_add_up_to_one(n: int, size: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    shares = worst_group(draw.random(n), draw.integers(0, 3, n).astype(str), draw.integers(0, 2, n), size)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_compositions_by_hand() -> None:
    losses = np.array([5.0, 1.0, 4.0, 3.0, 2.0])
    # Half of five records: the losses 5 and 4, and half of the record with 3.
    assert worst_group(losses, GROUPS, LABELS, 0.5) == pytest.approx(
        {("a", 0): 1 / 2.5, ("a", 1): 0.0, ("b", 0): 1.5 / 2.5, ("b", 1): 0.0}
    )
    assert worst_group(np.arange(5.0), GROUPS, LABELS, 1.0) == pytest.approx(population(GROUPS, LABELS))
    assert distance({("a", 0): 0.5, ("b", 0): 0.5}, {("b", 0): 0.5, ("a", 0): 0.5}) == 0.0
    assert distance({("a", 0): 1.0}, {("b", 0): 1.0}) == 1.0
    assert distance({("a", 0): 0.5, ("b", 0): 0.5}, {("a", 0): 0.25, ("b", 1): 0.75}) == pytest.approx(0.75)
