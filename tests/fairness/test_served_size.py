"""From which group size on a model beats guessing: from its losses, and from intervals of a few sizes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import DataError
from fedfair.fairness.cvar import cvar
from fedfair.fairness.served_size import ServedSizes, served_sizes, smallest_served_size

GUESS = math.log(2)
LOSSES = st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30)


def test_served_sizes_by_hand_at_both_ends_and_with_wide_intervals() -> None:
    # One loss of 2 and nine of 0: the worst share s >= 0.1 has the mean 0.2 / s, which is log 2 at 0.2885.
    losses = np.array([2.0] + 9 * [0.0])
    assert smallest_served_size(losses, GUESS) == pytest.approx(0.2 / GUESS)
    # The chord from (0.1, 0.2) to (1, 0.2) and the line of slope 0 behind it are g itself.
    known = served_sizes({0.1: (2.0, 2.0)}, 0.2, GUESS)
    assert known == ServedSizes(pytest.approx(0.2 / GUESS), pytest.approx(0.2 / GUESS))
    assert smallest_served_size(np.full(300, GUESS), GUESS) is None
    assert smallest_served_size(np.full(300, GUESS + 1.0), GUESS) is None
    assert smallest_served_size(np.full(3, 0.5), GUESS) == 0.0
    assert served_sizes({0.5: (GUESS, GUESS)}, GUESS, GUESS) == ServedSizes(1.0, None)
    assert served_sizes({0.5: (0.5, 0.5)}, 0.5, GUESS).served_from == 0.0
    found = served_sizes({0.2: (0.9, 1.1), 0.5: (0.55, 0.65)}, 0.4, GUESS)
    assert found.served_from is not None
    assert 0.2 < found.not_served_to < found.served_from < 0.5


@given(losses=LOSSES)
def test_the_size_from_losses_is_where_the_worst_groups_risk_crosses_the_guess(losses: list[float]) -> None:
    values = np.array(losses)
    found = smallest_served_size(values, GUESS)
    for size in np.linspace(0.02, 1.0, 50):
        risk = cvar(values, size)
        if found is None or size < found * (1 - 1e-6):
            assert risk >= GUESS * (1 - 1e-8) or size < 1 / len(values)
        elif size > max(found, 1 / len(values)) * (1 + 1e-6):
            assert risk <= GUESS


@given(losses=LOSSES, width=st.floats(0.0, 0.5), sizes=st.sets(st.sampled_from([0.05, 0.1, 0.2, 0.3, 0.5, 0.8])))
def test_what_intervals_say_is_certain(losses: list[float], width: float, sizes: set[float]) -> None:
    values = np.array(losses)
    # Below one record the risk is the greatest loss, so that g is concave from the first record on only.
    sizes = {size for size in sizes if size * len(values) >= 1}
    risks = {size: cvar(values, size) for size in sizes}
    intervals = {size: (max(risk - width, 0.0), risk + width) for size, risk in risks.items()}
    found = served_sizes(intervals, float(values.mean()), GUESS)
    for size in np.linspace(1 / len(values), 1.0, 40):
        risk = cvar(values, size)
        if size <= found.not_served_to * (1 - 1e-9):
            assert risk >= GUESS * (1 - 1e-6)
        if found.served_from is not None and size > found.served_from * (1 + 1e-9):
            assert risk <= GUESS * (1 + 1e-6)
    exact = smallest_served_size(values, GUESS)
    assert found.served_from is None or exact is None or exact <= found.served_from + 1e-6


@pytest.mark.parametrize(
    "intervals", [{0.0: (0.1, 0.2)}, {1.5: (0.1, 0.2)}, {0.5: (0.3, 0.2)}, {0.5: (-0.1, 0.2)}]
)
def test_intervals_that_cannot_be_are_refused(intervals: dict[float, tuple[float, float]]) -> None:
    with pytest.raises(DataError, match="has the interval"):
        served_sizes(intervals, 0.3, GUESS)
