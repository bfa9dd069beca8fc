"""Whom a model finds, misses and alarms for nothing, out of 100 people."""

from hypothesis import given
from hypothesis import strategies as st

from fedfair.report.per_hundred import PerHundred, per_hundred

COUNT = st.integers(0, 10**9)


def test_a_matrix_worked_by_hand() -> None:
    # 1000 people: 300 of class 1, of whom 240 are found; of the 700 others 35 are alarmed for nothing.
    assert per_hundred([[665, 35], [60, 240]]) == PerHundred(24, 6, 4, 66, 0.8, 0.95, 240 / 275)
    assert per_hundred([[9, 0], [0, 0]]) == PerHundred(0, 0, 0, 100, None, 1.0, None)
    assert per_hundred([[0, 0], [0, 0]]) is None
    assert per_hundred(None) is None
    assert per_hundred([[1, 0, 0], [0, 1, 0], [0, 0, 1]]) is None


@given(COUNT, COUNT, COUNT, COUNT)
def test_hundred_people_are_a_hundred_and_none_is_off_by_one(a: int, b: int, c: int, d: int) -> None:
    found = per_hundred([[a, b], [c, d]])
    if a + b + c + d == 0:
        assert found is None
        return
    assert found is not None
    whole = (found.spared, found.alarmed, found.missed, found.found)
    assert sum(whole) == 100
    assert all(
        abs(number - 100 * count / (a + b + c + d)) < 1 for number, count in zip(whole, (a, b, c, d), strict=True)
    )
