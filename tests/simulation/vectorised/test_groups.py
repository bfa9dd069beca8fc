"""Groups fit their budget, hold every site once, and hold none that padding would drown."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedfair.simulation.vectorised.groups import MIN_SHARE, cut_groups

numbers = st.integers(1, 50)


def groups_of(sizes: list[int], lengths: list[int], *footprint: int) -> list[list[int]]:
    return [group.tolist() for group in cut_groups(np.array(lengths), np.array(sizes), *footprint)]


def test_groups_are_cut_by_the_budget_and_pad_nobody_to_more_than_twice_its_size() -> None:
    # A member takes 20 + 10 * 8 = 100 bytes.
    assert groups_of([10] * 5, [1] * 5, 250, 20, 8) == [[0, 1], [2, 3], [4]]
    assert groups_of([1000, 900], [1, 1], 1, 1, 1) == [[0], [1]]
    assert groups_of([4, 100, 60, 8, 3], [1] * 5, 10**9, 0, 1) == [[1, 2], [3, 0], [4]]


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40), st.integers(1, 400))
def test_groups_hold_all_sites_once_within_the_budget(everybody: list[tuple[int, int]], budget: int) -> None:
    sizes, lengths = (list(part) for part in zip(*everybody, strict=True))
    groups = groups_of(sizes, lengths, budget, 3, 2)
    assert sorted(place for group in groups for place in group) == list(range(len(everybody)))
    for first, *others in groups:
        widest = max(sizes[place] for place in [first, *others])
        assert widest == sizes[first]
        assert not others or (1 + len(others)) * (3 + 2 * widest) <= budget
        least = MIN_SHARE * sizes[first] * lengths[first]
        assert all(sizes[place] * lengths[place] >= least for place in others)
