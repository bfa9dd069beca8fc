"""Projections against trying every set of ends, against a solver, and against what defines a projection."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError
from fedfair.fairness.simplex import project_on_box, project_on_simplex
from tests.simulation.slow_algorithms import project

NUMBERS = st.floats(-50.0, 50.0)


@settings(deadline=None, max_examples=30)
@given(
    point=st.lists(NUMBERS, min_size=1, max_size=5), ends=st.lists(st.floats(0.0, 3.0), min_size=10, max_size=10)
)
def test_it_is_the_nearest_of_all_sets_of_ends(point: list[float], ends: list[float]) -> None:
    n = len(point)
    low, high = np.array(ends[:n]) - 1.0, np.array(ends[:n]) - 1.0 + np.array(ends[5 : 5 + n])
    total = float(low.sum() + 0.37 * (high - low).sum())
    found = project_on_box(np.array(point), low, high, total)
    # Numbers up to 50 sum with roundings of 50 * 2^-52 each.
    np.testing.assert_allclose(found, project(np.array(point), low, high, total), rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(point=st.lists(NUMBERS, min_size=1, max_size=200), floor=st.floats(0.0, 0.9), share=st.floats(0.0, 1.0))
def test_no_other_point_lies_in_the_projected_direction(point: list[float], floor: float, share: float) -> None:
    values = np.array(point)
    total = (floor + share * (1.0 - floor)) * len(values)
    found = project_on_box(values, floor, 1.0, total)
    assert (found >= floor).all()
    assert (found <= 1.0).all()
    assert found.sum() == pytest.approx(total, abs=1e-12 * len(values))
    # x is the projection of v exactly if (v - x) (y - x) <= 0 for all y of the set; a linear function of y is
    # greatest where the entries with the largest v - x are at their upper ends.
    direction = values - found
    best, left = np.full(len(values), floor), total - floor * len(values)
    for place in np.argsort(-direction):
        taken = min(1.0 - floor, max(left, 0.0))
        best[place] += taken
        left -= taken
    assert direction @ (best - found) <= 1e-9


def test_a_solver_finds_the_same_weights_of_five_hundred_records() -> None:
    point = np.random.default_rng(5).exponential(size=500)
    x = cp.Variable(500)
    box = [x >= 0.02, x <= 1.0, cp.sum(x) == 0.3 * 500]
    cp.Problem(cp.Minimize(cp.sum_squares(x - point)), box).solve(solver=cp.OSQP, eps_abs=1e-10, eps_rel=1e-10)
    np.testing.assert_allclose(project_on_box(point, 0.02, 1.0, 150.0), x.value, rtol=0, atol=1e-7)


@pytest.mark.parametrize("point", [[np.nan, 1.0], [np.inf, 0.0]])
def test_what_is_not_finite_is_refused(point: list[float]) -> None:
    with pytest.raises(LocalProtocolError, match="not finite"):
        project_on_simplex(np.array(point))


def test_points_and_ends_of_the_set_by_hand() -> None:
    # Taking 0.3 away from each leaves (0.7, 0.3, -0.5): the last is cut off and the others sum to 1.
    assert project_on_simplex(np.array([1.0, 0.6, -0.2])).tolist() == pytest.approx([0.7, 0.3, 0.0], abs=1e-15)
    inside = np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(project_on_simplex(inside), inside, rtol=0, atol=1e-16)
    point = np.array([3.0, -1.0, 0.5])
    assert project_on_box(point, 0.1, 1.0, 3.0).tolist() == [1.0, 1.0, 1.0]
    assert project_on_box(point, 0.1, 1.0, 0.1 * 3).tolist() == pytest.approx([0.1, 0.1, 0.1], abs=1e-15)
    assert project_on_simplex(np.array([-7.0])).tolist() == [1.0]
    assert project_on_simplex(np.array([1e300, 1.0, 0.0])).tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(LocalProtocolError, match="can sum up to 4"):
        project_on_box(np.zeros(3), 0.0, 1.0, 4.0)
